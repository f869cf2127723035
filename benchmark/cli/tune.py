"""`tune`: learning rate and weight decay from a grid, chosen without true labels; benchmark/tuning.py has the rule."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmark.accuracy import SELECTING
from benchmark.analysis.table import aligned
from benchmark.cli import options as shared
from benchmark.cli.execution import announce, train
from benchmark.cli.options import OneOf, selection_of
from benchmark.errors import COMPLETE, INCOMPLETE, CandidError, UsageError, warn
from benchmark.files import atomic_write, check_out
from benchmark.tuning import (
    FIRST_SEED,
    Cell,
    cells_of,
    check_overrides,
    entries_of,
    entry_of,
    merged,
    to_toml,
    tuning_seeds,
    with_scores,
)  # fmt: skip

if TYPE_CHECKING:
    from benchmark.config.selection import Selection

GRIDS = {  # learning rates, weight decays; "full" is the CEL paper's
    "full": ((0.5, 0.1, 0.05, 0.01, 0.005, 0.001), (1e-3, 5e-4, 1e-4)),
    "small": ((0.2, 0.1, 0.05, 0.02, 0.01), (5e-4,)),
}


@click.command
@shared.selection
@click.option("--grid", type=OneOf(tuple(GRIDS)), default="full", show_default=True,
              help="full: the CEL paper's 18 points; small: 5 learning rates.")  # fmt: skip
@click.option("--lr", default="", metavar="A,B", help="Learning rates instead of the grid's.")
@click.option("--weight-decay", default="", metavar="A,B", help="Weight decays instead of the grid's.")
@click.option("--select", type=OneOf(tuple(SELECTING)), default="approximated", show_default=True,
              help="Score on held-out candidate labels that the choice maximises.")  # fmt: skip
@shared.out_option("TOML file for --profile (default: results/tuned-<profile>.toml).")
@shared.place
@shared.jobs
@shared.dry_run
@shared.hidden_quiet
@shared.checkpoint_seconds
def tune(grid: str, lr: str, weight_decay: str, select: str, out: Path | None, **options: Any) -> int:
    """Choose learning rate and weight decay without true labels.

    Train a grid, choose by a score on held-out candidate labels, and write the choice as a profile.
    """
    selection = selection_of(options)
    check_overrides(selection)
    rates = numbers("--lr", lr) or GRIDS[grid][0]
    decays = numbers("--weight-decay", weight_decay) or GRIDS[grid][1]
    selection = replace(selection, seeds=tuning_seeds(selection) if options["seeds"] is None else selection.seeds)
    warn_of_reported(selection)
    name, metric, profile = selection.profile.name, SELECTING[select], options["profile"] or ""
    path = out or options["results"] / f"tuned-{name}.toml"
    base = str(Path(profile).resolve()) if profile.endswith(".toml") else name
    earlier = entries_of(path, base)
    announce(options, f"Tuning by {metric.replace('_', ' ')}", selection)
    cells = cells_of(selection, rates, decays)
    if not options["dry_run"]:
        check_out(path)
    progress = train(options, selection, [spec for cell in cells for point in cell.points for spec in point.specs])
    if options["dry_run"]:
        return COMPLETE
    failures = {spec.digest: outcome for spec, outcome in progress.outcomes if outcome.status != "done"}
    cells = [with_scores(cell, options["results"], metric, failures) for cell in cells]
    print(table(cells, metric))
    report_unused(cells)
    if not any(cell.best for cell in cells):
        raise CandidError("Nothing could be selected: no point of the grid has a score on held-out candidate labels.")
    warn_of_edges(cells, "lr", rates)
    warn_of_edges(cells, "weight_decay", decays)
    how = f"grid {grid}" if not lr and not weight_decay else f"lr {listed(rates)}; weight decay {listed(decays)}"
    how = f"{how}, {described(selection)}{datetime.now(UTC).date().isoformat()}"
    entries = [entry_of(cell, cell.best, metric, how) for cell in cells if cell.best]
    with shared.writing(path):
        atomic_write(path, to_toml(base, merged(earlier, entries)))
    print(f"Written: {path}; use it as --profile {path}")
    unfinished = any(point.state not in ("done", "diverged") for cell in cells for point in cell.points)
    return INCOMPLETE if unfinished or selection.unusable or len(entries) < len(cells) else COMPLETE


def warn_of_reported(selection: Selection) -> None:
    reported = sorted(set(selection.seeds) & set(selection.profile.seeds))
    if reported:
        warn(
            f"tune chooses on seed {', '.join(map(str, reported))}, which the tables of profile {selection.profile.name} "
            f"report; seeds from {FIRST_SEED} on are not, for example --seeds {FIRST_SEED}."
        )


def numbers(option: str, text: str) -> tuple[float, ...]:
    """Return the numbers of a comma list; whether a value is in its range is checked when its run is resolved."""
    try:
        values = tuple(float(word) for word in text.split(",")) if text else ()
    except ValueError:
        raise UsageError(f"{option} {text}: write a comma list of numbers, for example {option} 0.1,0.01.") from None
    if len(set(values)) < len(values):
        raise UsageError(f"{option} {text}: a value is named twice.")
    return values


def table(cells: Sequence[Cell], metric: str) -> str:
    """Return the choices as text."""
    rows = [["dataset", "method", "lr", "weight decay", metric.replace("_", " "), "points"]]
    for cell in cells:
        best = cell.best
        choice = [f"{best.lr:g}", f"{best.weight_decay:g}", f"{best.score:.2f} %"] if best else ["–", "–", "–"]
        rows.append([cell.dataset, cell.method, *choice, f"{len(cell.scored)}/{len(cell.points)}"])
    return "\n".join(aligned(rows))


def report_unused(cells: Sequence[Cell]) -> None:
    """Print which points were left out and why; the points of a cell that share a reason share a line."""
    for cell in cells:
        reasons: dict[str, list[str]] = {}
        for point in cell.points:
            if point.score is None:
                why = point.state + (f": {point.reason}" if point.reason else "")
                reasons.setdefault(why, []).append(f"{point.lr:g}/{point.weight_decay:g}")
        for why, points in reasons.items():
            which = "all points" if len(points) == len(cell.points) else f"lr/weight decay {', '.join(points)}"
            print(f"Left out: {cell.dataset} {cell.method}, {which}: {why}", file=sys.stderr)


def warn_of_edges(cells: Sequence[Cell], key: str, values: Sequence[float]) -> None:
    """Warn where the best value is the smallest or largest of the grid: a better one may lie beyond it."""
    edges = {min(values): "smallest", max(values): "largest"} if len(values) > 1 else {}
    for edge, which in edges.items():
        names = [f"{cell.method} on {cell.dataset}" for cell in cells if cell.best and getattr(cell.best, key) == edge]
        if names:
            option = f"--{key.replace('_', '-')}"
            warn(f"{edge:g} is the {which} {option} of the grid, a better one may lie beyond it: {', '.join(names)}")


def listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def described(selection: Selection) -> str:
    """Return the conditions of the choice, for its source line."""
    seeds = f"seed{'s' if len(selection.seeds) > 1 else ''} {', '.join(map(str, selection.seeds))}, "
    changes = ", ".join(f"{o.scope}.{o.key}={o.text}" for o in selection.overrides)
    return seeds + (f"with {changes}, " if changes else "")
