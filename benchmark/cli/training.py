"""`run`, `estimate`, `candidates` and `fetch`; `tune` has a module of its own."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmark.analysis.table import Table, row, to_text
from benchmark.cli import options as shared
from benchmark.cli import tables
from benchmark.cli.execution import (
    announce,
    checked_devices,
    make_sets,
    plan_line,
    report_failures,
    say_missing,
    say_weights,
    train,
)  # fmt: skip
from benchmark.cli.options import OneOf, run_options, selection_of
from benchmark.errors import COMPLETE, INCOMPLETE
from benchmark.exhibits.base import all_exhibits

if TYPE_CHECKING:
    from benchmark.runner.estimate import Cost


@click.command
@shared.selection
@shared.epochs
@shared.place
@shared.jobs
@shared.dry_run
@shared.quiet
@click.option("--sweep", metavar="KEY=A,B,C", help="Train every value of a setting, then write a table and a plot.")
@click.option("--keep-model", is_flag=True, help="Store the trained models; see `predict` and `labels`.")
@click.option("--retry-diverged", is_flag=True, help="Train diverged runs again (the same seed diverges again).")
@click.option("--no-wait", is_flag=True, help="Do not wait for runs that other processes are training.")
@click.option("--shutdown-timeout", type=click.IntRange(1), metavar="SECONDS",
              help="Seconds allowed for checkpoints after Ctrl-C or SIGTERM (default: 7, on GPUs 30).")  # fmt: skip
@click.option("--backend", type=OneOf(("local", "dask")), default="local", show_default=True,
              help="Where to train: on this machine or on a dask cluster.")  # fmt: skip
@click.option("--scheduler", metavar="ADDRESS", help="Address of the dask cluster, for example tcp://host:8786.")
@click.option(
    "--track", type=OneOf(("tensorboard", "wandb")), help="Also log the curves to this tracker (extra `track`)."
)
@shared.checkpoint_seconds
def run(sweep: str | None, **options: Any) -> int:
    """Train a grid of methods, datasets and seeds."""
    selection = selection_of(options)
    if sweep:
        return tables.sweep(options, selection, sweep)
    announce(options, "Training", selection)
    return report_failures(train(options, selection, selection.specs()), options["quiet"])


@click.command
@click.argument(
    "what",
    default="table2",
    metavar="[WHAT]",
    type=OneOf((*(exhibit.name for exhibit in all_exhibits()), "run", "all")),
)
@shared.selection
@click.option("--by-method", is_flag=True, help="Print a line per dataset and method.")
@shared.results_to_read
@shared.data
@shared.device
@shared.jobs
@shared.dry_run
@shared.hidden_quiet
def estimate(what: str, by_method: bool, **options: Any) -> int:
    """Measure time and memory of a table, a figure or `run` on this machine.

    WHAT is the name of a table, figure or plot, `run` or `all` (default: table2).
    """
    from benchmark.store import Store

    requested: tables.Requested = {exhibit: exhibit.Options() for exhibit in all_exhibits() if exhibit.name == what}
    requested = tables.every_one() if what == "all" else requested
    selection, _ = tables.selection_for(options, requested)
    announce(options, f"Estimate for {what}", selection)
    needs = tables.needs_of(requested, selection).values()
    specs = [spec for need in needs for spec in need.specs] if requested else selection.specs()
    sets = [spec for need in needs for spec in need.sets]
    place = run_options(options)
    plan, slots = Store(place.results).status(specs), checked_devices(options)
    print(f"{plan_line(plan, f'{len(slots)} × {slots[0]}')}.", flush=True)
    missing = say_missing(options, (*plan.todo, *sets))
    if options["dry_run"]:
        return COMPLETE
    from benchmark.runner.estimate import measure_all, tasks_of  # needs torch

    say_weights(options, plan.todo)
    costs, problems = measure_all(tasks_of(plan.todo, sets), place, missing, options["quiet"])
    notes = (*estimate_notes(costs, slots, missing), *problems)
    print(to_text(estimate_table(costs, by_method, notes)), end="")
    return INCOMPLETE if problems else COMPLETE


def estimate_table(costs: Sequence[Cost], by_method: bool, notes: tuple[str, ...]) -> Table:
    """Return a line per dataset, or per dataset and method, and the total."""
    from benchmark.runner.progress import duration

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


def estimate_notes(costs: Sequence[Cost], slots: Sequence[str], missing: Collection[str]) -> Iterator[str]:
    """Say how long the plan takes with several jobs, and what the numbers rest on."""
    from benchmark.runner.progress import duration

    jobs = min(len(slots), max(1, sum(cost.runs for cost in costs)))
    yield f"About {duration(sum(cost.seconds for cost in costs) / jobs)} with {jobs} at a time on {slots[0]}."
    if missing:
        yield f"Random images of the declared size stood in for {', '.join(missing)}."
    if any(cost.reduced for cost in costs):
        yield "These numbers are of this CPU, slow steps scaled from a few images. Run `estimate` on the GPU to use."


@click.command
@shared.selection
@shared.place
@shared.jobs
@shared.out_option("Folder for the cards (default: results/cards).", metavar="FOLDER")
@shared.hidden_quiet
@shared.checkpoint_seconds
def candidates(out: Path | None, **options: Any) -> int:
    """Build candidate sets and write a data card for each.

    Without --seeds, only those of the profile's first seed.
    """
    from benchmark.exhibits.parts import card
    from benchmark.runner.candidate_sets import selected_sets, set_specs

    folder, code = out or options["results"] / "cards", COMPLETE
    selection, named = selection_of(options), options["seeds"] is not None
    specs = set_specs(selection, named)
    say_weights(options, specs)
    make_sets(options, specs)
    for spec, content in selected_sets(selection, run_options(options), every_seed=named):
        name = spec.dataset + (f"-seed{spec.seed}" if named and len(selection.seeds) > 1 else "")
        if isinstance(content, str):
            print(f"{name} has no card: {content}", file=sys.stderr)
            code = INCOMPLETE
            continue
        print(card.text(*content))
        for path in card.write(*content, folder / name):
            print(f"Written: {path}")
    return code


@click.command
@click.argument("dataset")
@shared.data
def fetch(dataset: str, data: Path) -> int:
    """Download, verify and unpack a dataset."""
    from datasets.storage.fetch import fetch

    message = fetch(dataset, data)
    if message:
        print(message)
    return COMPLETE
