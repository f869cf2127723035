"""`estimate`: what a plan costs on this machine before it starts: runs, hours, memory, disk."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.cli.exhibits import every_one, needs_of, selection_for, under_its_profile, with_defaults
from benchmark.cli.options import SELECTION, Command, Request, positive
from benchmark.cli.training import announce, large_runs, place_of, say_weights
from benchmark.errors import COMPLETE, UsageError
from benchmark.exhibits.base import Material, Need, all_exhibits
from benchmark.flags import flag

if TYPE_CHECKING:
    from benchmark.plan.selection import Selection
    from benchmark.plan.spec import RunSpec
    from benchmark.run.estimate import Estimate

BYTES_PER_EPOCH = 700  # a line of metrics.jsonl
BYTES_PER_RUN = 12_000  # run.json, log.txt, folders
MEGABYTE, GIGABYTE = 1e6, 1e9
SHOWN = 6  # pairs that a line names
HOW = {  # what the costs of a pair rest on
    "timed": ("Measured", ", a few steps each, here and now"),
    "assumed": ("Reckoned", " from the operations of a step; hooks, views and waiting are not in it"),
    "ratio": ("By ratio", ": the method was timed on other data, and another method on both"),
    "operations": ("By operations", ": from the operations of a step, against one that was timed"),
    "unknown": ("Not estimated", ""),
}
COUNTED = ("timed", "assumed")  # said as a number, the others by name


@dataclass(frozen=True)
class Own:
    what: str = flag("table2", positional=True, choices=(*(exhibit.name for exhibit in all_exhibits()), "run", "all"))
    assume_tflops: float = flag(
        0.0, "reckon with so many TFLOP/s instead of measuring, for a login node", kind=positive, metavar="N"
    )
    assume_memory: float = flag(0.0, "what the device of a run will have, in GB", kind=positive, metavar="GB")
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
        return print_estimate(request, own, selection, selection.specs())
    needs = needs_of(chosen, selection)
    return print_estimate(request, own, selection, [spec for need in needs.values() for spec in need.specs])


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


def print_estimate(request: Request, own: Own, selection: Selection, specs: Sequence[RunSpec]) -> int:
    """Print the plan, and unless --dry-run measure and project it."""
    from benchmark.run import devices
    from benchmark.run.devices import parse_jobs
    from benchmark.run.estimate import Estimate, annotators_of, features_of, forward_passes
    from benchmark.run.memory import memory_lines, memory_of_a_run
    from benchmark.run.missing import missing_data
    from benchmark.run.standing import standing

    now = standing(specs, request.results)
    slots = parse_jobs(request.jobs, devices.resolve(request.device))
    missing = missing_data(now.todo, request.data)
    passes = sum(forward_passes(spec, selection) for spec in now.specs)
    print(f"Runs             {len(now.specs)}, of which {now.count('done')} are done and {len(now.todo)} are to do")
    print(f"Forward passes   {passes:.3g} in all, {sum(forward_passes(s, selection) for s in now.todo):.3g} to do")
    for name, reason in missing.items():
        print(f"Missing data     {name}: {reason}")
    if not now.todo:
        return COMPLETE
    say_weights(request, now.todo)
    place = place_of(request)
    annotators = annotators_of(now.todo, place)
    estimate = Estimate(now.todo, place, missing, own.assume_tflops)
    if not request.dry_run:
        if not own.assume_tflops:
            estimate.measure()
            for name, work in features_of(now.todo, place, missing).items():
                size, needed = f"{work.pictures:,} maps, {work.bytes / GIGABYTE:.1f} GB", _hours(work.seconds())
                print(f"Frozen features  {name}: {size}, {needed} of computing before the runs, not in the time below")
        print_costs(estimate, now.todo, annotators, slots)
        print_disk(estimate, now.todo, len(slots), request.results)
        print_grounds(estimate, now.todo)
    counted = large_runs(now.todo) if request.dry_run and not own.assume_memory else now.todo
    for line in memory_lines(estimate, counted, own.assume_memory * GIGABYTE or memory_of_a_run(slots)):
        print(line)
    return COMPLETE


def print_costs(
    estimate: Estimate, specs: Sequence[RunSpec], annotators: Sequence[RunSpec], slots: Sequence[str]
) -> None:
    """How long it takes, or why nobody knows."""
    for (label, dataset), reason in estimate.problems.items():
        print(f"Not measured     {label} on {dataset}: {reason}")
    costs, of_labels = ([estimate.cost(spec) for spec in part] for part in (specs, annotators))
    if all(cost.how == "unknown" for cost in costs):
        absent = all(estimate.is_missing(spec) for spec in specs)
        advice = "" if estimate.tflops else "; --assume-tflops N reckons with a speed instead"
        print(f"Time             cannot be measured{': none of the data sets is here' if absent else ''}{advice}")
        return
    if of_labels:
        spent = sum(cost.seconds for cost in of_labels)
        print(f"Annotators       {len(of_labels)} to train before the runs on their data sets: {_hours(spent)}")
    single = [cost.seconds for cost in (*costs, *of_labels)]
    total, elapsed = sum(single), max(sum(single) / len(slots), max(single))
    device = f"{estimate.tflops:g} TFLOP/s" if estimate.tflops else slots[0]
    print(f"Time             {_hours(elapsed)} on {len(slots)} × {device} ({_hours(total)} of computing)")


def print_disk(estimate: Estimate, specs: Sequence[RunSpec], slots: int, results: Path) -> None:
    records = sum(s.train.epochs * BYTES_PER_EPOCH + BYTES_PER_RUN for s in specs)
    heaviest = sorted((estimate.cost(spec).checkpoint_bytes for spec in specs), reverse=True)[:slots]
    free = _free(results)
    print(
        f"Disk             {records / MEGABYTE:.0f} MB of records; up to {2 * sum(heaviest) / MEGABYTE:.0f} MB of "
        f"checkpoints with {slots} at a time; {free / GIGABYTE:.0f} GB are free"
    )
    if records + 2 * sum(heaviest) > free:
        print(f"Too large        for the disk of {results}; choose another folder with --results.")


def print_grounds(estimate: Estimate, specs: Sequence[RunSpec]) -> None:
    """What the numbers rest on."""
    from benchmark.run.estimate import pair_of

    pairs = {pair_of(spec): estimate.cost(spec).how for spec in specs}
    for how, (title, words) in HOW.items():
        found = sorted(f"{label} on {dataset}" for (label, dataset), kind in pairs.items() if kind == how)
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        if found and how in COUNTED:
            print(f"{title:<16} {len(found)} of {len(pairs)} pairs of method and data set{words}")
        elif found:
            print(f"{title:<16} {', '.join(found[:SHOWN])}{more}{words}")


def _hours(seconds: float) -> str:
    from benchmark.run.progress import duration

    return f"about {seconds / 3600:.1f} h" if seconds >= 36_000 else f"about {duration(seconds)}"


def _free(folder: Path) -> int:
    existing = next(p for p in (folder.resolve(), *folder.resolve().parents) if p.exists())
    return shutil.disk_usage(existing).free


COMMANDS = (
    Command(
        "estimate",
        "the plan before it starts: runs, hours, memory and disk on this machine",
        run,
        (*SELECTION, "jobs", "dry_run", "quiet"),
        Own,
        writes=False,
    ),
)
