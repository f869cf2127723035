"""`estimate`: what a plan costs on this machine before it starts: runs, forward passes, hours, disk."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.cli.exhibits import every_one, needs_of, selection_for, under_its_profile, with_defaults
from benchmark.cli.options import SELECTION, Command, Request
from benchmark.cli.training import announce, place_of
from benchmark.errors import COMPLETE, UsageError
from benchmark.exhibits.base import Material, Need, all_exhibits
from benchmark.flags import flag

if TYPE_CHECKING:
    from benchmark.plan.selection import Selection
    from benchmark.plan.spec import RunSpec
    from benchmark.run.estimate import Cost
    from benchmark.run.standing import Standing

BYTES_PER_EPOCH = 700  # a line of metrics.jsonl
BYTES_PER_RUN = 12_000  # run.json, log.txt, folders
MEGABYTE, GIGABYTE = 1e6, 1e9


@dataclass(frozen=True)
class Own:
    what: str = flag("table2", positional=True, choices=(*(exhibit.name for exhibit in all_exhibits()), "run", "all"))
    detect: float | None = flag(
        None, "instead: how many seeds a difference of so many points needs", kind=float, metavar="POINTS"
    )


def run(request: Request, own: Own) -> int:
    wanted = every_one() if own.what == "all" else with_defaults()
    chosen = {e: options for e, options in wanted.items() if own.what in (e.name, "all")}
    if len(chosen) == 1:
        request = under_its_profile(request, next(iter(chosen)))
    selection = selection_for(request, chosen)
    if own.detect is not None:
        return print_seeds(request, selection, own.detect)
    announce(request, f"Estimate for {own.what}", selection)
    if own.what == "run":
        return print_estimate(request, selection, selection.specs())
    needs = needs_of(chosen, selection)
    return print_estimate(request, selection, [spec for need in needs.values() for spec in need.specs])


def print_seeds(request: Request, selection: Selection, wanted: float) -> int:
    """How many seeds would show a difference, from the spread of the runs that are there."""
    from benchmark.analysis.contents import REFERENCE
    from benchmark.analysis.seeds import seeds_table, usual_reference
    from benchmark.analysis.table import to_text

    if not 0 < wanted < 100:
        raise UsageError(f"--detect {wanted:g}: give accuracy points above 0, for example --detect 1.0.")
    need = Need()
    need.add(selection.specs())
    material = Material(selection, need, place_of(request))
    contents = replace(material.contents, reference=usual_reference(selection.methods, REFERENCE))
    print(to_text(seeds_table(material.runs, contents, wanted)))
    return COMPLETE


def print_estimate(request: Request, selection: Selection, specs: Sequence[RunSpec]) -> int:
    """Print the plan, and unless --dry-run measure and project it."""
    from benchmark.run import devices
    from benchmark.run.devices import parse_jobs
    from benchmark.run.estimate import forward_passes, measure
    from benchmark.run.standing import standing

    now = standing(specs, request.results)
    slots = parse_jobs(request.jobs, devices.resolve(request.device))
    missing = {name: reason for name in selection.datasets if (reason := _absent(selection, name, request.data))}
    passes = sum(forward_passes(spec, selection) for spec in now.specs)
    print(f"Runs             {len(now.specs)}, of which {now.count('done')} are done and {len(now.todo)} are to do")
    print(f"Forward passes   {passes:.3g} in all, {sum(forward_passes(s, selection) for s in now.todo):.3g} to do")
    for name, reason in missing.items():
        print(f"Missing data     {name}: {reason}")
    if not request.dry_run and now.todo:
        _print_costs(now, measure(now.todo, selection, place_of(request), missing), slots, request.results)
    return COMPLETE


def _print_costs(now: Standing, costs: dict[tuple[str, str], Cost], slots: Sequence[str], results: Path) -> None:
    measured = sorted({pair for pair, cost in costs.items() if cost.measured})
    if not measured:
        print("Time             cannot be measured: none of the data sets is on this machine")
        return
    total = sum(costs[s.method, s.dataset].seconds for s in now.todo)
    elapsed = max(total / len(slots), max(costs[s.method, s.dataset].seconds for s in now.todo))
    print(f"Time             {_hours(elapsed)} on {len(slots)} × {slots[0]} ({_hours(total)} of computing)")
    records = sum(s.train.epochs * BYTES_PER_EPOCH + BYTES_PER_RUN for s in now.todo)
    heaviest = sorted((costs[s.method, s.dataset].checkpoint_bytes for s in now.todo), reverse=True)[: len(slots)]
    print(
        f"Disk             {records / MEGABYTE:.0f} MB of records; up to {2 * sum(heaviest) / MEGABYTE:.0f} MB of "
        f"checkpoints with {len(slots)} at a time; {_free(results) / GIGABYTE:.0f} GB are free"
    )
    print(
        f"Measured         {len(measured)} of {len(costs)} pairs of method and data set, a few steps each, here and now"
    )
    guessed = sorted(f"{method} on {dataset}" for (method, dataset), cost in costs.items() if not cost.measured)
    if guessed:
        shown = ", ".join(guessed[:6]) + (f" and {len(guessed) - 6} more" if len(guessed) > 6 else "")
        print(f"Extrapolated     {shown}: by forward passes from what was measured")


def _absent(selection: Selection, dataset: str, root: Path) -> str:
    found = selection.source(dataset).find(root)
    return "" if found.status == "found" else f"{found.detail}; {found.how}"


def _hours(seconds: float) -> str:
    from benchmark.run.progress import duration

    return f"about {seconds / 3600:.1f} h" if seconds >= 36_000 else f"about {duration(seconds)}"


def _free(folder: Path) -> int:
    existing = next(p for p in (folder.resolve(), *folder.resolve().parents) if p.exists())
    return shutil.disk_usage(existing).free


COMMANDS = (
    Command(
        "estimate",
        "the plan before it starts: runs, forward passes, hours and disk on this machine",
        run,
        (*SELECTION, "jobs", "dry_run", "quiet"),
        Own,
        writes=False,
    ),
)
