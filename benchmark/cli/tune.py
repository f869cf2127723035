"""`tune`: settings from a grid, chosen without true labels; benchmark/tuning.py has the grid, analysis/selection.py the rule."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmark.analysis.selection import ONE_SE, TITLES, TUNING_SEEDS, unreported_seeds
from benchmark.analysis.table import NONE, aligned
from benchmark.cli import options as shared
from benchmark.cli.execution import announce, train
from benchmark.cli.options import OneOf, selection_of
from benchmark.errors import COMPLETE, INCOMPLETE, warn
from benchmark.files import check_out
from benchmark.tuning import (
    LR,
    WEIGHT_DECAY,
    Cell,
    Grid,
    cells_of,
    check_held_out,
    check_overrides,
    entries_of,
    entry_of,
    grid_of,
    in_words,
    merge_entries,
    score_texts,
    search,
    to_toml,
    with_scores,
)  # fmt: skip

if TYPE_CHECKING:
    from benchmark.config.selection import Selection
    from benchmark.runner.options import Outcome


@click.command
@shared.selection
@shared.epochs
@click.option("--grid", multiple=True, metavar="KEY=A,B",
              help="Values of a setting: cel.alpha=0.1,0.5,1 (repeatable; all combinations). `full` (default): the CEL "
                   "paper's 18 points; `small`: 5 learning rates.")  # fmt: skip
@click.option("--lr", metavar="A,B", help="Short for --grid train.lr=A,B.")
@click.option("--weight-decay", metavar="A,B", help="Short for --grid train.weight_decay=A,B.")
@click.option("--select", type=OneOf(tuple(TITLES)), default=ONE_SE, show_default=True,
              help="Rule on held-out rows (AA: approximated accuracy, CR: covering rate): "
                   + "; ".join(f"{name}: {title}" for name, title in TITLES.items()) + ".")  # fmt: skip
@shared.out_option("TOML file for --profile (default: results/tuned-<profile>.toml).")
@shared.place
@shared.jobs
@shared.dry_run
@shared.hidden_quiet
@shared.checkpoint_seconds
def tune(
    grid: tuple[str, ...], lr: str | None, weight_decay: str | None, select: str, out: Path | None, **options: Any
) -> int:
    """Choose learning rate, weight decay and more without true labels.

    Train a grid, choose by scores on held-out candidate labels, and write the choice as a profile. Learning rates are
    extended where the best one is at the edge of the grid.
    """
    selection = selection_of(options)
    short = [f"{name}={text}" for name, text in ((LR, lr), (WEIGHT_DECAY, weight_decay)) if text is not None]
    axes = grid_of([*grid, *short], selection)
    check_overrides(selection, axes)
    if options["seeds"] is None:
        selection = replace(selection, seeds=unreported_seeds(selection.profile.seeds))
    reported = sorted(set(selection.seeds) & set(selection.profile.seeds))
    if reported:
        warn(
            f"tune chooses on seed {', '.join(map(str, reported))}, which the tables of profile {selection.profile.name} "
            f"report; seeds from {TUNING_SEEDS[0]} on are not, for example --seeds {TUNING_SEEDS[0]}."
        )
    name, profile = selection.profile.name, options["profile"] or ""
    path = out or options["results"] / f"tuned-{name}.toml"
    base = str(Path(profile).resolve()) if profile.endswith(".toml") else name
    earlier = entries_of(path, base)
    announce(options, f"Tuning by {TITLES[select]}", selection)
    if options["dry_run"]:
        train_points(options, selection, cells_of(selection, axes), select, {})
        return COMPLETE
    cells = search_grid(options, selection, axes, select, path)
    print(table(cells, select))
    report_unused(cells)
    winners = [cell for cell in cells if cell.scored] or cells[:1]  # `entry_of` refuses a cell without a score
    warn_of_edges(cells, select)
    when = f"{conditions(selection)}, {datetime.now(UTC).date().isoformat()}"
    entries = merge_entries(earlier, [entry_of(cell, select, when) for cell in winners])
    shared.write_text(path, to_toml(base, entries), f"; use it as --profile {path}")
    unfinished = any(point.state not in ("done", "diverged") for cell in cells for point in cell.points)
    return INCOMPLETE if unfinished or len(winners) < len(cells) else COMPLETE


def search_grid(options: Any, selection: Selection, axes: Grid, rule: str, out: Path | None = None) -> list[Cell]:
    """Train a grid and return its cells with scores; learning rates are extended at the edges.

    Before anything is trained, data without held-out rows are refused, and then an `out` that cannot be written.
    """
    check_held_out(cells_of(selection, axes), options["data"])
    if out is not None:
        check_out(out)
    failures: dict[str, Outcome] = {}
    return search(selection, axes, rule, lambda cells: train_points(options, selection, cells, rule, failures))


def train_points(
    options: Any, selection: Selection, cells: list[Cell], rule: str, failures: dict[str, Outcome]
) -> list[Cell]:
    """Train what is missing of these grids and return them with scores; failures are collected by digest."""
    specs = [spec for cell in cells for point in cell.points for spec in point.specs]
    progress = train(options, selection, [spec for spec in specs if spec.digest not in failures])
    failures |= {spec.digest: outcome for spec, outcome in progress.outcomes if outcome.status != "done"}
    return [with_scores(cell, options["results"], rule, failures) for cell in cells]


def table(cells: Sequence[Cell], rule: str) -> str:
    """Return the choices as text."""
    rows = [["dataset", "method", "lr", "weight decay", "others", "CR ± SE (%)", "AA (%)", "points"]]
    for cell in cells:
        best = cell.best(rule)
        texts = [NONE] * 5
        if best is not None and best.score is not None:
            others = [
                f"{name} {in_words(value)}" for name, value in best.values.items() if name not in (LR, WEIGHT_DECAY)
            ]
            texts = [
                in_words(best.values[LR]),
                in_words(best.values[WEIGHT_DECAY]),
                ", ".join(others) or NONE,
                *score_texts(best.score),
            ]
        rows.append([cell.dataset, cell.method, *texts, f"{len(cell.scored)}/{len(cell.points)}"])
    if all(row[4] == NONE for row in rows[1:]):
        rows = [row[:4] + row[5:] for row in rows]
    return "\n".join(aligned(rows))


def report_unused(cells: Sequence[Cell]) -> None:
    """Print which points were left out and why; the points of a cell that share a reason share a line."""
    for cell in cells:
        reasons: dict[str, list[str]] = {}
        for point in cell.points:
            if point.score is None:
                why = point.state + (f": {point.reason}" if point.reason else "")
                reasons.setdefault(why, []).append(str(point))
        for why, points in reasons.items():
            which = "all points" if len(points) == len(cell.points) else "; ".join(points)
            print(f"Left out: {cell.dataset} {cell.method}, {which}: {why}", file=sys.stderr)


def warn_of_edges(cells: Sequence[Cell], rule: str) -> None:
    """Warn of choices that are the smallest or largest value of their grid: a better one may lie beyond it."""
    edges: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        best = cell.best(rule)
        for name, value in best.values.items() if best else ():
            values = {point.values[name] for point in cell.points}
            # Of two values both are at an edge.
            if len(values) > 2 and isinstance(value, int | float) and value in (min(values), max(values)):
                which = "smallest" if value == min(values) else "largest"
                edges.setdefault((in_words(value), f"the {which} {name}"), []).append(
                    f"{cell.method} on {cell.dataset}"
                )
    for (value, which), names in edges.items():
        warn(f"{value} is {which} of the grid, a better one may lie beyond it: {', '.join(names)}")


def conditions(selection: Selection) -> str:
    """Return seeds and overrides of the search, for the source of its choices."""
    seeds = f"seed{'s' if len(selection.seeds) > 1 else ''} {', '.join(map(str, selection.seeds))}"
    changes = ", ".join(f"{override.name}={override.text}" for override in selection.overrides)
    return seeds + (f", with {changes}" if changes else "")
