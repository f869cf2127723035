"""`estimate`: what a plan costs on this machine, measured with a few steps of every run: time, peak memory, disk."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmark.analysis.table import Table, row, to_text
from benchmark.cli.exhibits import every_one, needs_of, selection_for, under_its_profile, with_defaults
from benchmark.cli.options import SELECTION, Command, Request
from benchmark.cli.training import announce, place_of, plan_line, say_missing, say_weights
from benchmark.errors import COMPLETE, INCOMPLETE
from benchmark.exhibits.base import all_exhibits
from benchmark.flags import flag
from benchmark.runner import devices
from benchmark.runner.progress import duration
from datasets.storage.archives import ARCHIVES

if TYPE_CHECKING:
    from benchmark.runner.estimate import Cost

HELP = "measure what a plan costs on this machine: time, memory and disk"


@dataclass(frozen=True)
class Own:
    what: str = flag("table2", positional=True, choices=(*(exhibit.name for exhibit in all_exhibits()), "run", "all"))
    by_method: bool = flag(False, "one line per dataset and method")


def run(request: Request, own: Own) -> int:
    from benchmark.store import Store

    exhibits = every_one() if own.what == "all" else with_defaults()
    chosen = {exhibit: options for exhibit, options in exhibits.items() if own.what in (exhibit.name, "all")}
    if len(chosen) == 1:
        request = under_its_profile(request, *next(iter(chosen.items())))
    selection = selection_for(request, chosen)
    announce(request, f"Estimate for {own.what}", selection)
    needs = needs_of(chosen, selection).values()
    specs = [spec for need in needs for spec in need.specs] if chosen else selection.specs()
    sets = [spec for need in needs for spec in need.sets]
    plan, slots = (
        Store(request.results).status(specs),
        devices.parse_jobs(request.jobs, devices.resolve(request.device)),
    )
    print(f"{plan_line(plan, f'{len(slots)} × {slots[0]}')}.", flush=True)
    missing = say_missing(request, (*plan.todo, *sets))
    if request.dry_run:
        return COMPLETE
    from benchmark.runner.estimate import measure_all, tasks_of  # needs torch

    say_weights(request, plan.todo)
    place = place_of(request)
    costs, problems = measure_all(tasks_of(plan.todo, sets, place.results), place, missing, request.quiet)
    notes = (*notes_of(request, costs, slots, missing), *problems)
    print(to_text(table_of(costs, own.by_method, notes)), end="")
    return INCOMPLETE if problems else COMPLETE


def table_of(costs: Sequence[Cost], by_method: bool, notes: tuple[str, ...]) -> Table:
    """Return a line per dataset, or per dataset and method, and the total."""
    names = ("Dataset", "Method")[: 1 + by_method]
    groups: dict[tuple[str, ...], list[Cost]] = {}
    for cost in costs:
        groups.setdefault((cost.dataset, cost.label)[: len(names)], []).append(cost)
    groups[("Total", "")[: len(names)]] = list(costs)
    rows = []
    for key, group in groups.items():
        at_least = "≥ " if any(cost.reduced for cost in group) else ""
        memory = f"{at_least}{max((cost.peak_memory_mb for cost in group), default=0.0) / 1024:.1f} GB"
        runs, seconds = sum(cost.runs for cost in group), sum(cost.seconds for cost in group)
        rows.append(row(*key, str(runs), duration(seconds), memory, rule=key[0] == "Total"))
    caption = "Measured with a few training steps and an evaluation per method and dataset; annotators are included."
    return Table("", caption, (*names, "Runs", "Time", "Peak memory"), tuple(rows), notes, text_columns=len(names))


def notes_of(request: Request, costs: Sequence[Cost], slots: Sequence[str], missing: Collection[str]) -> Iterator[str]:
    """Say how long the plan takes with several jobs, what the disk must hold, and what the numbers rest on."""
    from datasets import registry

    jobs = min(len(slots), max(1, sum(cost.runs for cost in costs)))
    yield f"About {duration(sum(cost.seconds for cost in costs) / jobs)} with {jobs} at a time on {slots[0]}."
    folder = next(place for place in (request.results.resolve(), *request.results.resolve().parents) if place.exists())
    photos = [source for source in map(registry.get, missing) if source.group == "Fine-Grained"]
    sizes = {
        "predictions": sum(cost.runs * cost.prediction_bytes for cost in costs),
        "checkpoints": 2 * sum(sorted(cost.checkpoint_bytes for cost in costs)[-len(slots) :]),
        "downloads": sum(archive.size or 0 for name in missing for archive in ARCHIVES.get(name, ())),
        "decoded images": 3 * 256 * 341 * sum((s.train_size or 0) + (s.test_size or 0) for s in photos),  # on average
    }
    parts = ", ".join(f"{size / 1e6:,.0f} MB of {name}" for name, size in sizes.items() if size)
    yield f"Disk: {parts}; {shutil.disk_usage(folder).free / 1e9:.0f} GB are free."
    if missing:
        yield f"Random images of the declared size stood in for {', '.join(missing)}."
    if any(cost.reduced for cost in costs):
        yield "These numbers are of this CPU, slow steps scaled from a few images. Run `estimate` on the GPU to use."


COMMANDS = (Command("estimate", HELP, run, (*SELECTION, "jobs", "dry_run", "quiet"), Own, writes=False),)
