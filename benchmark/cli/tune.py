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

from benchmark.accuracy import SELECTING
from benchmark.analysis.table import aligned
from benchmark.cli.options import TRAINING, Command, Request
from benchmark.cli.training import announce, selection_of, train
from benchmark.errors import COMPLETE, INCOMPLETE, CandidError, UsageError, warn
from benchmark.files import atomic_write, check_out
from benchmark.flags import flag
from benchmark.store import TUNING, Store, StoredRun, is_number

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
    """One point of the grid for one method on one data set, and its runs, one per seed."""

    lr: float
    weight_decay: float
    specs: tuple[RunSpec, ...]


@dataclass(frozen=True)
class Cell:
    """One method on one data set: its grid."""

    dataset: str
    method: str
    holdout: float
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Score:
    """What a point's runs say: the mean over its seeds, or why there is none."""

    point: Point
    value: float | None
    state: str  # done, or the state of the first run that is not
    reason: str = ""


@dataclass(frozen=True)
class Own:
    grid: str = flag("full", choices=tuple(GRIDS))
    rates: str = flag("", "learning rates instead of the grid's", metavar="A,B")
    decays: str = flag("", "weight decays instead of the grid's", metavar="A,B")
    select: str = flag("approximated", choices=tuple(SELECTING))
    out: Path | None = flag(
        None, "TOML for --profile (default: results/tuned-<profile>.toml)", kind=Path, metavar="FILE"
    )


def run(request: Request, own: Own) -> int:
    """Train the grid, choose, write the choice as a profile."""
    selection = selection_of(request)
    check_overrides(selection)
    rates = numbers("--rates", own.rates) or GRIDS[own.grid][0]
    decays = numbers("--decays", own.decays) or GRIDS[own.grid][1]
    selection = replace(selection, seeds=tuning_seeds(selection) if request.seeds is None else selection.seeds)
    warn_of_reported(selection)
    name, metric = selection.profile.name, SELECTING[own.select]
    out = own.out or request.results / f"tuned-{name}.toml"
    base = str(Path(request.profile).resolve()) if request.profile and request.profile.endswith(".toml") else name
    earlier = entries_of(out, base)
    announce(request, f"Tuning by {metric.replace('_', ' ')}", selection)
    cells = grid(selection, rates, decays)
    if not request.dry_run:
        check_out(out)
    progress = train(request, selection, [spec for cell in cells for point in cell.points for spec in point.specs])
    if request.dry_run:
        return COMPLETE
    failures = {spec.digest: outcome for spec, outcome in progress.outcomes if outcome.status != "done"}
    scored = [(cell, scores(cell, request.results, metric, failures)) for cell in cells]
    chosen = [(cell, found, best(found)) for cell, found in scored]
    print(table(chosen, metric))
    report_unused(scored)
    if not any(choice for _, _, choice in chosen):
        raise CandidError("Nothing could be selected: no point of the grid has a score on held-out candidate labels.")
    how = f"{points_text(own, rates, decays)}, {described(selection)}{datetime.now(UTC).date().isoformat()}"
    entries = [entry_of(cell, found, choice, metric, how) for cell, found, choice in chosen if choice]
    try:
        atomic_write(out, to_toml(base, merged(earlier, entries)))
    except OSError as error:
        raise CandidError(
            f"{out} cannot be written ({error.strerror}); the runs are kept, name another --out."
        ) from None
    print(f"Written: {out}; use it as --profile {out}")
    unfinished = any(score.state not in ("done", "diverged") for _, found in scored for score in found)
    return INCOMPLETE if unfinished or selection.unusable or not all(c for _, _, c in chosen) else COMPLETE


# The grid -------------------------------------------------------------------------------------------------------------


def check_overrides(selection: Selection) -> None:
    """What the grid varies cannot be fixed, and without rows held out there is nothing to choose by."""
    for override in selection.overrides:
        if override.scope == "train" and override.key in ("lr", "weight_decay"):
            raise UsageError(f"tune chooses train.{override.key} itself; leave out --set train.{override.key}.")
        if override.scope == "train" and override.key == "holdout" and float(override.text) == 0:
            raise UsageError("tune chooses on held-out rows; train.holdout must be more than 0.")


def tuning_seeds(selection: Selection) -> tuple[int, ...]:
    """One that no table reports: a value chosen on a reported seed would be a third of its own evidence."""
    return (max(FIRST_SEED, max(selection.profile.seeds) + 1),)


def warn_of_reported(selection: Selection) -> None:
    reported = sorted(set(selection.seeds) & set(selection.profile.seeds))
    if reported:
        warn(
            f"tune chooses on seed {', '.join(map(str, reported))}, which the tables of profile {selection.profile.name} "
            f"report; seeds from {FIRST_SEED} on are not, for example --seeds {FIRST_SEED}."
        )


def numbers(option: str, text: str) -> tuple[float, ...]:
    """A comma list of numbers of a grid; whether a value is in its range is checked when its run is resolved."""
    try:
        values = tuple(float(word) for word in text.split(",")) if text else ()
    except ValueError:
        raise UsageError(f"{option} {text}: write a comma list of numbers, for example {option} 0.1,0.01.") from None
    if len(set(values)) < len(values):
        raise UsageError(f"{option} {text}: a value is named twice.")
    return values


def grid(selection: Selection, rates: Sequence[float], decays: Sequence[float]) -> list[Cell]:
    """Return every method and dataset with its points. The runs are marked as no results."""
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
                    points.append(Point(lr, decay, tuple(replace(spec, purpose=TUNING) for spec in specs)))
            cells.append(Cell(usual.dataset, method, share or HOLDOUT, tuple(points)))
    return cells


# The choice -----------------------------------------------------------------------------------------------------------


def scores(cell: Cell, results: Path, metric: str, failures: Mapping[str, Outcome]) -> list[Score]:
    """The points of a cell with their mean score; a point counts when all its seeds are done.

    `failures` of this command, by digest, tell of runs that left nothing on disk, as when the data cannot be read.
    """
    runs = Store(results).of_plan([spec for point in cell.points for spec in point.specs])
    return [score_of(point, runs, metric, failures) for point in cell.points]


def score_of(
    point: Point,
    runs: Mapping[str, StoredRun],
    metric: str,
    failures: Mapping[str, Outcome],
) -> Score:
    values = []
    for spec in point.specs:
        if spec.digest not in runs:
            outcome = failures.get(spec.digest)
            if outcome is None:
                return Score(point, None, "missing", "it was not run")
            return Score(point, None, outcome.status, outcome.reason)
        run = runs[spec.digest]
        if run.status != "done":
            return Score(point, None, run.status, run.document.get("reason", ""))
        value = run.epochs()[-1]["result"].get(metric)
        if not is_number(value):
            return Score(point, None, "unscored", "no training row was held out, the data set is too small")
        values.append(value)
    return Score(point, sum(values) / len(values), "done")


def best(found: Sequence[Score]) -> Score | None:
    """The highest score; of equal ones the smaller learning rate, then the smaller weight decay."""
    usable = [score for score in found if score.value is not None]
    return min(usable, key=lambda s: (-(s.value or 0.0), s.point.lr, s.point.weight_decay), default=None)


def table(chosen: Sequence[tuple[Cell, Sequence[Score], Score | None]], metric: str) -> str:
    """The choices for the screen."""
    rows = [["data set", "method", "lr", "weight decay", metric.replace("_", " "), "points"]]
    for cell, found, choice in chosen:
        usable = f"{sum(score.value is not None for score in found)}/{len(found)}"
        picked = (
            ["–", "–", "–"]
            if choice is None
            else [f"{choice.point.lr:g}", f"{choice.point.weight_decay:g}", f"{choice.value:.2f} %"]
        )
        rows.append([cell.dataset, cell.method, *picked, usable])
    return "\n".join(aligned(rows))


def report_unused(scored: Sequence[tuple[Cell, Sequence[Score]]]) -> None:
    """Which points took no part, and why; the points of a cell that share a reason share a line."""
    for cell, found in scored:
        reasons: dict[str, list[str]] = {}
        for score in found:
            if score.value is None:
                why = score.state + (f": {score.reason}" if score.reason else "")
                reasons.setdefault(why, []).append(f"{score.point.lr:g}/{score.point.weight_decay:g}")
        for why, points in reasons.items():
            which = "all points" if len(points) == len(found) else f"lr/weight decay {', '.join(points)}"
            print(f"Left out: {cell.dataset} {cell.method}, {which}: {why}", file=sys.stderr)


# The file -------------------------------------------------------------------------------------------------------------


def points_text(own: Own, rates: Sequence[float], decays: Sequence[float]) -> str:
    """The grid by its name, or what was named instead."""
    if not own.rates and not own.decays:
        return f"grid {own.grid}"
    lr, decay = (", ".join(f"{value:g}" for value in values) for values in (rates, decays))
    return f"lr {lr}; weight decay {decay}"


def described(selection: Selection) -> str:
    """Under which conditions the choice was made, for its source line."""
    seeds = f"seed{'s' if len(selection.seeds) > 1 else ''} {', '.join(map(str, selection.seeds))}, "
    changes = ", ".join(f"{o.scope}.{o.key}={o.text}" for o in selection.overrides)
    return seeds + (f"with {changes}, " if changes else "")


def entry_of(cell: Cell, found: Sequence[Score], choice: Score, metric: str, how: str) -> dict[str, Any]:
    words = metric.replace("_", " ")
    usable = sum(score.value is not None for score in found)
    part = "" if usable == len(found) else f"{usable} of {len(found)} points, "
    return {
        "method": cell.method,
        "dataset": cell.dataset,
        "source": f"tuned: {words} on {100 * cell.holdout:g} % held-out candidate labels, {part}{how}",
        "lr": choice.point.lr,
        "weight_decay": choice.point.weight_decay,
    }


def entries_of(path: Path, base: str) -> list[dict[str, Any]]:
    """The choices that an earlier tuning left in this file; a file of another kind is not overwritten."""
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
    """The new choices, and the earlier ones of every other method and data set."""
    chosen = {(entry["dataset"], entry["method"]): entry for entry in (*earlier, *new)}
    return list(chosen.values())


def to_toml(base: str, entries: Sequence[Mapping[str, Any]]) -> str:
    lines = ["# Written by `tune`; a profile: pass this file to --profile.", f"include = [{_value(base)}]"]
    for entry in entries:
        lines += ["", "[[values]]", *(f"{key} = {_value(value)}" for key, value in entry.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


COMMANDS = (Command("tune", "grid over lr and weight decay, selected without true labels", run, TRAINING, Own),)
