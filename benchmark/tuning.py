"""Choose learning rate and weight decay from a grid by what held-out candidate labels say of them.

The score of a run is its last epoch's covering rate or approximated accuracy on training rows that were kept out with
their candidate sets. Nothing else of a run is read here, so that true labels cannot reach the choice.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.errors import UsageError
from benchmark.store import TUNING, Store, StoredRun, is_number

if TYPE_CHECKING:
    from benchmark.config.selection import Selection
    from benchmark.config.spec import RunSpec
    from benchmark.runner.options import Outcome

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


def cells_of(selection: Selection, rates: Sequence[float], decays: Sequence[float]) -> list[Cell]:
    """Return the grid of every method and dataset. The runs are marked as no results."""
    from benchmark.config.resolution import Override  # imports NumPy

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
                    runs = tuple(replace(spec, purpose=TUNING) for spec in specs)
                    points.append(Point(lr, decay, runs))
            cells.append(Cell(usual.dataset, method, share or HOLDOUT, tuple(points)))
    return cells


def with_scores(cell: Cell, results: Path, metric: str, failures: Mapping[str, Outcome]) -> Cell:
    """Return the cell with the mean score of every point; a point counts when all its seeds are done.

    `failures` of this command, by digest, tell of runs that left nothing on disk, as when the data cannot be read.
    """
    stored = Store(results).of_plan([spec for point in cell.points for spec in point.specs])
    return replace(cell, points=tuple(with_score(point, stored, metric, failures) for point in cell.points))


def with_score(
    point: Point,
    stored: Mapping[str, StoredRun],
    metric: str,
    failures: Mapping[str, Outcome],
) -> Point:
    values = []
    for spec in point.specs:
        if spec.digest not in stored:
            outcome = failures.get(spec.digest)
            return replace(point, state=outcome.status, reason=outcome.reason) if outcome else point
        run = stored[spec.digest]
        if run.status != "done":
            return replace(point, state=run.status, reason=run.document.get("reason", ""))
        value = run.epochs()[-1]["result"].get(metric)
        if not is_number(value):
            return replace(point, state="unscored", reason="no training row was held out, the dataset is too small")
        values.append(value)
    return replace(point, score=sum(values) / len(values), state="done", reason="")


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
