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
from benchmark.errors import COMPLETE, INCOMPLETE, CandidError, UsageError, warn
from benchmark.files import atomic_write, check_out
from benchmark.tuning import (
    LR,
    WEIGHT_DECAY,
    Cell,
    Cells,
    Grid,
    cells_by_dataset,
    check_held_out,
    check_overrides,
    check_recorded,
    entries_of,
    entry_of,
    grid_of,
    in_words,
    merged,
    score_texts,
    search,
    to_toml,
    with_scores,
)  # fmt: skip

if TYPE_CHECKING:
    from benchmark.config.selection import Selection
    from benchmark.runner.options import Outcome


class Criterion(OneOf):
    """A rule for choosing settings; one that would read test labels is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value.startswith("test") or value in ("accuracy", "oracle", "last"):
            raise UsageError(
                f"--select {value}: test accuracy is never used to choose settings; take one of {', '.join(self.choices)}."
            )
        return super().convert(value, param, ctx)


@click.command
@shared.selection
@click.option("--grid", multiple=True, metavar="KEY=A,B",
              help="Values of a setting: cel.alpha=0.1,0.5,1 (repeatable; all combinations). `full` (default): the CEL "
                   "paper's 18 points; `small`: 5 learning rates.")  # fmt: skip
@click.option("--lr", metavar="A,B", help="Short for --grid train.lr=A,B.")
@click.option("--weight-decay", metavar="A,B", help="Short for --grid train.weight_decay=A,B.")
@click.option("--select", type=Criterion(tuple(TITLES)), default=ONE_SE, show_default=True,
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
    warn_of_reported(selection)
    name, profile = selection.profile.name, options["profile"] or ""
    path = out or options["results"] / f"tuned-{name}.toml"
    base = str(Path(profile).resolve()) if profile.endswith(".toml") else name
    earlier = entries_of(path, base)
    announce(options, f"Tuning by {TITLES[select]}", selection)
    if options["dry_run"]:
        train_points(options, selection, cells_by_dataset(selection, axes), select, {})
        return COMPLETE
    cells, grids = searched(options, selection, axes, select, path)
    return write(options, selection, cells, grids, select, (path, base, earlier))


def searched(
    options: Any, selection: Selection, axes: Grid, rule: str, out: Path | None = None
) -> tuple[Cells, dict[str, Grid]]:
    """Train a grid and return its scored cells and the grid, by dataset; learning rates are extended at the edges.

    Before anything is trained, data without held-out rows are refused, and then an `out` that cannot be written.
    """
    cells = cells_by_dataset(selection, axes)
    check_held_out([cell for group in cells.values() for cell in group], options["data"])
    if out is not None:
        check_out(out)
    failures: dict[str, Outcome] = {}
    return search(selection, axes, cells, rule, lambda cells: train_points(options, selection, cells, rule, failures))


def train_points(options: Any, selection: Selection, cells: Cells, rule: str, failures: dict[str, Outcome]) -> Cells:
    """Train what is missing of these grids and return them with scores; failures are collected by digest."""
    specs = [spec for group in cells.values() for cell in group for point in cell.points for spec in point.specs]
    check_recorded(options["results"], specs)
    progress = train(options, selection, [spec for spec in specs if spec.digest not in failures])
    failures |= {spec.digest: outcome for spec, outcome in progress.outcomes if outcome.status != "done"}
    return {
        dataset: [with_scores(cell, options["results"], rule, failures) for cell in group]
        for dataset, group in cells.items()
    }


def write(
    options: Any,
    selection: Selection,
    groups: Cells,
    grids: dict[str, Grid],
    rule: str,
    target: tuple[Path, str, list[dict[str, Any]]],
) -> int:
    """Print the choices, write them as a profile, and return the exit code."""
    path, base, earlier = target
    cells = [cell for group in groups.values() for cell in group]
    print(table(cells, rule))
    report_unused(cells)
    if not any(cell.best(rule) for cell in cells):
        raise CandidError("Nothing could be selected: no point of the grid has a score on held-out candidate labels.")
    warn_of_edges(cells, rule)
    when = f"{described(selection)}{datetime.now(UTC).date().isoformat()}"
    entries = []
    for dataset, group in groups.items():
        for cell in group:
            own = {name: values for name, values in grids[dataset].items() if name in cell.points[0].values}
            how = "; ".join(f"{key.removeprefix('train.')} {', '.join(values)}" for key, values in own.items())
            best = cell.best(rule)
            entries += [entry_of(cell, best, rule, f"grid {how}, {when}")] if best else []
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
            f"report; seeds from {TUNING_SEEDS[0]} on are not, for example --seeds {TUNING_SEEDS[0]}."
        )


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
    """Name the choices that are the smallest or largest number of their grid: a better one may lie beyond it."""
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


def described(selection: Selection) -> str:
    """Return the conditions of the choice, for its source line."""
    seeds = f"seed{'s' if len(selection.seeds) > 1 else ''} {', '.join(map(str, selection.seeds))}, "
    changes = ", ".join(f"{o.scope}.{o.key}={o.text}" for o in selection.overrides)
    return seeds + (f"with {changes}, " if changes else "")
