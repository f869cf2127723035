"""`tune`: learning rate and weight decay from a grid, chosen by what held-out candidate labels say of them.

The score of a run is its last epoch's covering rate or approximated accuracy on training rows that were kept out with
their candidate sets. Nothing else of a run is read here, so that true labels cannot reach the choice.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from benchmark.store import RunFolder, is_number, state_of

if TYPE_CHECKING:
    from benchmark.config.selection import Selection
    from benchmark.config.spec import RunSpec
    from benchmark.runner.options import Outcome

GRIDS = {  # learning rates, weight decays; "full" is the CEL paper's
    "full": ((0.5, 0.1, 0.05, 0.01, 0.005, 0.001), (1e-3, 5e-4, 1e-4)),
    "small": ((0.2, 0.1, 0.05, 0.02, 0.01), (5e-4,)),
}
FIRST_SEED = 100  # of tuning
HOLDOUT = 0.1  # of the training set, where the profile keeps nothing out
TUNED_KEYS = {"method", "dataset", "source", "lr", "weight_decay"}


@dataclass(frozen=True)
class Point:
    """One point of the grid for one method on one dataset: its runs, one per seed, and their mean score once they end."""

    lr: float
    weight_decay: float
    specs: tuple[RunSpec, ...]
    score: float | None = None
    state: str = "missing"  # done, or the state of the first run that is not
    reason: str = "it was not run"


@dataclass(frozen=True)
class Cell:
    """The grid of one method on one dataset."""

    dataset: str
    method: str
    holdout: float
    points: tuple[Point, ...]

    @property
    def scored(self) -> list[Point]:
        return [point for point in self.points if point.score is not None]

    @property
    def best(self) -> Point | None:
        """Return the point with the highest score; of equal ones the smaller learning rate, then weight decay."""
        return min(self.scored, key=lambda p: (-(p.score or 0.0), p.lr, p.weight_decay), default=None)


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
    try:
        atomic_write(path, to_toml(base, merged(earlier, entries)))
    except OSError as error:
        raise CandidError(
            f"{path} cannot be written ({error.strerror}); the runs are kept, name another --out."
        ) from None
    print(f"Written: {path}; use it as --profile {path}")
    unfinished = any(point.state not in ("done", "diverged") for cell in cells for point in cell.points)
    return INCOMPLETE if unfinished or selection.unusable or len(entries) < len(cells) else COMPLETE


# The grid -------------------------------------------------------------------------------------------------------------


def check_overrides(selection: Selection) -> None:
    """Refuse overrides of what the grid varies, and a selection without rows held out to choose by."""
    for override in selection.overrides:
        if override.scope == "train" and override.key in ("lr", "weight_decay"):
            raise UsageError(f"tune chooses train.{override.key} itself; leave out --set train.{override.key}.")
        if override.scope == "train" and override.key == "holdout" and float(override.text) == 0:
            raise UsageError("tune chooses on held-out rows; train.holdout must be more than 0.")


def tuning_seeds(selection: Selection) -> tuple[int, ...]:
    """Return a seed that no table reports: a value chosen on a reported seed would be a third of its own evidence."""
    return (max(FIRST_SEED, max(selection.profile.seeds) + 1),)


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


def cells_of(selection: Selection, rates: Sequence[float], decays: Sequence[float]) -> list[Cell]:
    """Return the grid of every method and dataset. The runs are kept apart from those of the profile itself."""
    from benchmark.config.profile import TUNING
    from benchmark.config.resolution import Override

    cells = []
    for dataset in selection.datasets:
        for method in selection.methods:
            usual = selection.specs([method], [dataset])[0]
            share = usual.train.holdout
            extra = [] if share else [Override("train", "holdout", repr(HOLDOUT))]
            points = []
            for lr in rates:
                for decay in decays:
                    here = [Override("train", "lr", repr(lr)), Override("train", "weight_decay", repr(decay))]
                    specs = selection.specs([method], [dataset], extra=[*extra, *here])
                    runs = tuple(replace(spec, profile=spec.profile + TUNING) for spec in specs)
                    points.append(Point(lr, decay, runs))
            cells.append(Cell(usual.dataset, method, share or HOLDOUT, tuple(points)))
    return cells


# The choice -----------------------------------------------------------------------------------------------------------


def with_scores(cell: Cell, results: Path, metric: str, failures: Mapping[str, Outcome]) -> Cell:
    """Return the cell with the mean score of every point; a point counts when all its seeds are done.

    `failures` of this command, by digest, tell of runs that left nothing on disk, as when the data cannot be read.
    """
    from benchmark.runner.status import found

    stored = found([spec for point in cell.points for spec in point.specs], results)
    return replace(cell, points=tuple(with_score(point, stored, metric, failures) for point in cell.points))


def with_score(
    point: Point,
    stored: Mapping[str, tuple[RunFolder, dict[str, Any]]],
    metric: str,
    failures: Mapping[str, Outcome],
) -> Point:
    values = []
    for spec in point.specs:
        if spec.digest not in stored:
            outcome = failures.get(spec.digest)
            return replace(point, state=outcome.status, reason=outcome.reason) if outcome else point
        folder, document = stored[spec.digest]
        state = state_of(folder, document)
        if state != "done":
            return replace(point, state=state, reason=document.get("reason", ""))
        value = folder.epochs()[-1]["result"].get(metric)
        if not is_number(value):
            return replace(point, state="unscored", reason="no training row was held out, the dataset is too small")
        values.append(value)
    return replace(point, score=sum(values) / len(values), state="done", reason="")


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


# The file -------------------------------------------------------------------------------------------------------------


def described(selection: Selection) -> str:
    """Return the conditions of the choice, for its source line."""
    seeds = f"seed{'s' if len(selection.seeds) > 1 else ''} {', '.join(map(str, selection.seeds))}, "
    changes = ", ".join(f"{o.scope}.{o.key}={o.text}" for o in selection.overrides)
    return seeds + (f"with {changes}, " if changes else "")


def entry_of(cell: Cell, choice: Point, metric: str, how: str) -> dict[str, Any]:
    usable, points = len(cell.scored), len(cell.points)
    part = "" if usable == points else f"{usable} of {points} points, "
    words = metric.replace("_", " ")
    return {
        "method": cell.method,
        "dataset": cell.dataset,
        "source": f"tuned: {words} on {100 * cell.holdout:g} % held-out candidate labels, {part}{how}",
        "lr": choice.lr,
        "weight_decay": choice.weight_decay,
    }


def entries_of(path: Path, base: str) -> list[dict[str, Any]]:
    """Return the choices that an earlier tuning left in this file; a file of another kind is not overwritten."""
    if path.suffix != ".toml":
        raise UsageError(f"--out {path}: the name must end in .toml, because --profile takes such a file.")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"--out {path} cannot be read ({error.strerror}).") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        content = {}
    values = content.get("values")
    ours = set(content) == {"include", "values"} and isinstance(values, list)
    if not values or not ours or not all(isinstance(v, dict) and set(v) == TUNED_KEYS for v in values):
        raise UsageError(f"{path} was not written by tune and is left alone; name another file with --out.")
    if content["include"] != [base]:
        raise UsageError(f"{path} holds choices for {content['include']}, not for {base}; name another --out.")
    return values


def merged(earlier: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the new choices and the earlier ones of every other method and dataset."""
    chosen = {(entry["dataset"], entry["method"]): entry for entry in (*earlier, *new)}
    return list(chosen.values())


def to_toml(base: str, entries: Sequence[Mapping[str, Any]]) -> str:
    lines = ["# Written by `tune`; a profile: pass this file to --profile.", f"include = [{_value(base)}]"]
    for entry in entries:
        lines += ["", "[[values]]", *(f"{key} = {_value(value)}" for key, value in entry.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
