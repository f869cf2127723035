"""Choose learning rate, weight decay and a method's own settings from a grid by scores on held-out candidate labels.

Every setting is scored after the last epoch on training rows that were held out with their candidate sets, by the rules of
benchmark/analysis/selection.py. Test accuracy is not read here, so it cannot reach the choice.
"""

from __future__ import annotations

import itertools
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.analysis.selection import APPROXIMATED, COVERING, CRITERIA, HELD_OUT, HOLDOUT, ONE_SE, Score, pick, score
from benchmark.analysis.table import NONE, aligned
from benchmark.errors import CandidError, UsageError, did_you_mean
from benchmark.store import TUNING, Store, StoredRun, is_number
from datasets.base import DataError, plural

if TYPE_CHECKING:
    from benchmark.config.selection import Selection
    from benchmark.config.spec import RunSpec
    from benchmark.runner.options import Outcome

EXTENSIONS = 3  # of the learning rates of a dataset, at most
LR, WEIGHT_DECAY = "train.lr", "train.weight_decay"
TUNED_KEYS = {"method", "dataset", "source", "lr", "weight_decay"}
PRESETS = {  # "full" is the CEL paper's
    "full": (f"{LR}=0.5,0.1,0.05,0.01,0.005,0.001", f"{WEIGHT_DECAY}=1e-3,5e-4,1e-4"),
    "small": (f"{LR}=0.2,0.1,0.05,0.02,0.01", f"{WEIGHT_DECAY}=5e-4"),
}
FIT_GRID = ("small", f"{WEIGHT_DECAY}=5e-4,1e-4")  # of `fit --tune` and the estimator
Grid = Mapping[str, Mapping[str, Any]]  # by setting, as "train.lr" or "cel.alpha": its values by their text


@dataclass(frozen=True)
class Point:
    """One point of the grid for one method on one dataset: its runs, one per seed, and their score once they end."""

    values: Mapping[str, Any]  # by setting, learning rate and weight decay first
    specs: tuple[RunSpec, ...]
    score: Score | None = None
    state: str = "missing"  # done, or the state of the first run that is not
    reason: str = "it was not run"

    def __str__(self) -> str:
        return ", ".join(f"{name.removeprefix('train.')} {in_words(value)}" for name, value in self.values.items())


@dataclass(frozen=True)
class Cell:
    """The grid of one method on one dataset; its points ascend in learning rate, then in weight decay."""

    dataset: str
    method: str
    holdout: float
    points: tuple[Point, ...]
    axes: Grid = field(default_factory=dict)
    path: str = ""  # of the dataset as the selection has it, a name or a file

    @property
    def scored(self) -> list[Point]:
        return [point for point in self.points if point.score is not None]

    def best(self, rule: str) -> Point | None:
        """Return the point that a rule takes; of equal ones the smaller learning rate, then weight decay."""
        scores = [point.score for point in self.points if point.score is not None]
        return self.scored[pick(rule, scores)] if scores else None


# The grid -------------------------------------------------------------------------------------------------------------


def grid_of(words: Sequence[str], selection: Selection) -> dict[str, dict[str, Any]]:
    """Return the grid that the command line names: a preset, and comma lists of values by setting."""
    presets = [word for word in words if "=" not in word]
    for word in presets:
        if word not in PRESETS:
            hint = did_you_mean(word, PRESETS)
            raise UsageError(f"--grid {word}: write {' or '.join(PRESETS)}, or values as cel.alpha=0.1,0.5,1.{hint}")
    if len(presets) > 1:
        raise UsageError(f"--grid {' and --grid '.join(presets)}: leave one out.")
    settings = [_values(word, selection) for word in words if "=" in word]
    names = [name for name, _ in settings]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{name} is given twice in the grid; leave one out.")
    preset = (_values(word, selection) for word in PRESETS[presets[0] if presets else "full"])
    return {**dict(preset), **dict(settings)}


def _values(word: str, selection: Selection) -> tuple[str, dict[str, Any]]:
    """Return a setting and its values from `scope.key=a,b,c`."""
    from benchmark.config.sections import Train, check_key, fields_of, fit

    name, _, listed = word.partition("=")
    scope, _, key = name.partition(".")
    if scope == "train":
        settings = fields_of(Train)
    elif scope in selection.methods:
        settings = dict(selection.entry(scope).config)
    else:
        hint = did_you_mean(scope, ("train", *selection.methods))
        raise UsageError(
            f"--grid {word}: '{scope}' is neither train nor one of the methods ({', '.join(selection.methods)}).{hint}"
        )
    check_key(f"--grid {word}: {scope}", key, settings)
    if name in ("train.holdout", "train.few"):
        raise UsageError(f"--grid {word}: settings can be compared on the same held-out rows only.")
    texts = [text.strip() for text in listed.split(",")]
    values = {text: fit(f"--grid {name}", settings[key].parse, text) for text in texts}
    if len(set(map(repr, values.values()))) < len(texts):
        raise UsageError(f"--grid {word}: a value is named twice.")
    return name, values


def check_overrides(selection: Selection, grid: Grid) -> None:
    """Refuse overrides of what the grid varies, and a selection without rows held out to choose by."""
    for override in selection.overrides:
        of_methods = [f"{method}.{override.key}" for method in selection.methods if override.scope == "method"]
        if grid.keys() & {override.name, *of_methods}:
            raise UsageError(f"tune chooses {override.name} itself; leave it out.")
        if override.name == "train.holdout" and float(override.text) == 0:
            raise UsageError("tune chooses on held-out rows; train.holdout must be more than 0.")


def search(
    selection: Selection,
    axes: Grid,
    rule: str,
    scored: Callable[[list[Cell]], list[Cell]],
    say: Callable[[str], None] = print,
) -> list[Cell]:
    """Return the cells of a grid with the scores that `scored` gives them; rates are extended where the best is at the edge."""
    cells = {(cell.path, cell.method): cell for cell in scored(cells_of(selection, axes))}
    for _ in range(EXTENSIONS):
        wider = []
        for path in selection.datasets:
            group = [cell for cell in cells.values() if cell.path == path]
            rates = rates_beyond(group, rule)
            if rates:
                say(f"A best learning rate on {group[0].dataset} is at the edge: adding {', '.join(rates)}.")
                descending = sorted({**group[0].axes[LR], **rates}.items(), key=lambda item: -item[1])
                wider += cells_of(selection, {**axes, LR: dict(descending)}, [path])
        if not wider:
            break
        cells |= {(cell.path, cell.method): cell for cell in scored(wider)}
    return list(cells.values())


def check_held_out(cells: Sequence[Cell], data: Path) -> None:
    """Refuse datasets of which the held-out part has no row; only small ones and the user's own are loaded for that."""
    from datasets import registry

    for cell in {cell.dataset: cell for cell in cells}.values():
        spec = cell.points[0].specs[0]
        size = registry.get(spec.paths.get("dataset") or spec.dataset).train_size
        if size is not None and size * cell.holdout > 100:
            continue
        from benchmark.trainer.loading import dataset_of

        try:
            rows = len(dataset_of(spec, data).train)
        except DataError:
            continue  # reported by the command that trains
        check_rows(cell, rows)


def check_rows(cell: Cell, rows: int) -> None:
    """Refuse a number of training rows of which none would be held out, or fewer than two left to train on."""
    held_out = round(rows * cell.holdout)
    if not held_out or rows - held_out < 2:
        raise UsageError(
            f"tune chooses on held-out rows, and a share of {cell.holdout:g} of the {plural(rows, 'training row')} of "
            f"{cell.dataset} is {held_out}; {'lower' if held_out else 'raise'} train.holdout."
        )


def cells_of(selection: Selection, grid: Grid, datasets: Sequence[str] | None = None) -> list[Cell]:
    """Return the grid of every method on these datasets, by default on all. The runs are marked as no results."""
    from benchmark.config.resolution import Override  # imports NumPy

    cells = []
    for dataset, method in itertools.product(datasets or selection.datasets, selection.methods):
        usual = selection.specs([method], [dataset])[0]
        share = usual.train.holdout
        extra = [] if share else [Override("train", "holdout", repr(HOLDOUT))]
        own = {name: values for name, values in grid.items() if name.partition(".")[0] in ("train", method)}
        points = []
        for texts in itertools.product(*own.values()):
            overrides = [Override.of(name, text) for name, text in zip(own, texts, strict=True)]
            specs = selection.specs([method], [dataset], extra=[*extra, *overrides])
            values = {name: own[name][text] for name, text in zip(own, texts, strict=True)}
            points.append(Point(values, tuple(replace(spec, purpose=TUNING) for spec in specs)))
        points.sort(key=lambda point: (point.values[LR], point.values[WEIGHT_DECAY]))
        cells.append(Cell(usual.dataset, method, share or HOLDOUT, tuple(points), own, dataset))
    return cells


def rates_beyond(cells: Sequence[Cell], rule: str) -> dict[str, float]:
    """Return the learning rates beyond the edges at which winners of a dataset lie, by their text.

    Each is as far from its edge as the edge from the next rate, as a factor.
    """
    rates = sorted({point.values[LR] for cell in cells for point in cell.points})
    winners = {best.values[LR] for cell in cells if (best := cell.best(rule))}
    edges = [(rates[0], rates[1]), (rates[-1], rates[-2])] if len(rates) > 1 else []
    beyond = [float(f"{edge * edge / inner:.4g}") for edge, inner in edges if edge in winners]
    return {repr(rate): rate for rate in beyond}


# Scores ---------------------------------------------------------------------------------------------------------------


def with_scores(cell: Cell, results: Path, rule: str, failures: Mapping[str, Outcome]) -> Cell:
    """Return the cell with the score of every point; a point counts when all its seeds are done.

    `failures` of this command, by digest, tell of runs that left nothing on disk, as when the data cannot be read.
    """
    stored = Store(results).of_plan([spec for point in cell.points for spec in point.specs])
    return replace(cell, points=tuple(with_score(point, stored, rule, failures) for point in cell.points))


def with_score(point: Point, stored: Mapping[str, StoredRun], rule: str, failures: Mapping[str, Outcome]) -> Point:
    results = []
    for spec in point.specs:
        if spec.digest not in stored:
            outcome = failures.get(spec.digest)
            return replace(point, state=outcome.status, reason=outcome.reason) if outcome else point
        run = stored[spec.digest]
        if run.status != "done":
            return replace(point, state=run.status, reason=run.document.get("reason", ""))
        results.append(run.epochs()[-1]["result"])
    return with_results(results, point, rule)


def with_results(results: Sequence[Mapping[str, Any]], point: Point, rule: str) -> Point:
    """Return the point with its score from the last-epoch results of its runs."""
    if not all(is_number(result.get(key)) for result in results for key in (HELD_OUT, COVERING, APPROXIMATED)):
        return replace(point, state="unscored", reason="it has no score on held-out rows")
    scored = score(results)
    if rule in CRITERIA and not is_number(getattr(scored, CRITERIA[rule])):  # NaN is not between any bounds
        return replace(point, state="unscored", reason=f"it has no value of {rule}")
    return replace(point, score=scored, state="done", reason="")


def choice_of(cell: Cell, rule: str) -> tuple[Point, Score]:
    """Return the point that a rule takes, with its score; CandidError if no point has one."""
    best = cell.best(rule)
    if best is None or best.score is None:
        why = "; ".join(sorted({point.reason.rstrip(".") or point.state for point in cell.points}))
        raise CandidError(f"Nothing could be selected: no point of the grid has a score on held-out rows ({why}).")
    return best, best.score


def final_selection(selection: Selection, choice: Point) -> Selection:
    """Return the selection with the chosen values and no row held out."""
    from benchmark.config.resolution import Override

    values = {**choice.values, "train.holdout": 0.0}
    others = [override for override in selection.overrides if override.name not in values]
    own = [Override.of(name, repr(value)) for name, value in values.items()]
    return replace(selection, overrides=(*others, *own))


def points_table(cell: Cell, rule: str) -> str:
    """Return every point of a cell with its scores as text; an arrow marks the one that the rule takes."""
    best, _ = choice_of(cell, rule)
    rows = [["", "lr", "weight decay", "CR ± SE (%)", "AA (%)"]]
    for point in cell.points:
        scores = score_texts(point.score) if point.score else [point.state, NONE]
        mark = "→" if point is best else ""
        rows.append([mark, in_words(point.values[LR]), in_words(point.values[WEIGHT_DECAY]), *scores])
    return "\n".join(aligned(rows))


def score_texts(score: Score) -> list[str]:
    """Return covering rate and approximated accuracy as two cells of a table."""
    return [f"{score.covering_rate:.2f} ± {score.standard_error:.2f}", f"{score.approximated_accuracy:.2f}"]


# The written profile --------------------------------------------------------------------------------------------------


def entry_of(cell: Cell, rule: str, when: str) -> dict[str, Any]:
    """Return the entry of a profile that holds the choice of a rule; its `source` describes the search."""
    choice, scores = choice_of(cell, rule)
    grid = "; ".join(f"{key.removeprefix('train.')} {', '.join(values)}" for key, values in cell.axes.items())
    usable, points = len(cell.scored), len(cell.points)
    part = "" if usable == points else f", {usable} of {points} points"
    entry = {
        "method": cell.method,
        "dataset": cell.dataset,
        "source": f"tuned: {rule} on {100 * cell.holdout:g} % held-out rows ({scores_in_words(scores, rule)}){part}, grid {grid}, {when}",
        "lr": choice.values[LR],
        "weight_decay": choice.values[WEIGHT_DECAY],
    }
    more = {}
    for name, value in choice.values.items():
        scope, _, key = name.partition(".")
        if scope != "train":
            entry[key] = value
        elif name not in (LR, WEIGHT_DECAY):
            more[key] = value
    return entry | ({"train": more} if more else {})


def scores_in_words(score: Score, rule: str = ONE_SE) -> str:
    """Return covering rate and approximated accuracy, and the criterion of another rule."""
    text = f"CR {score.covering_rate:.2f} ± {score.standard_error:.2f} %, AA {score.approximated_accuracy:.2f} %"
    more = {
        "likelihood": f", log-likelihood {score.log_likelihood:.4f}",
        "true-labels": f", true labels {score.true_labels:.2f} %",
    }
    return text + more.get(rule, "")


def in_words(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


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
    if not values or not ours or not all(isinstance(v, dict) and set(v) >= TUNED_KEYS for v in values):
        raise UsageError(f"{path} was not written by tune and is left alone; name another file with --out.")
    if content["include"] != [base]:
        raise UsageError(f"{path} holds choices for {content['include']}, not for {base}; name another --out.")
    return values


def merge_entries(earlier: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the new choices and the earlier ones of every other method and dataset."""
    chosen = {(entry["dataset"], entry["method"]): entry for entry in (*earlier, *new)}
    return list(chosen.values())


def to_toml(base: str, entries: Sequence[Mapping[str, Any]]) -> str:
    lines = ["# Written by `tune`; a profile: pass this file to --profile.", f"include = [{_value(base)}]"]
    for entry in entries:
        lines += ["", "[[values]]", *(f"{key} = {_value(value)}" for key, value in entry.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_value(part)}' for key, part in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)  # texts, numbers, truth values and lists are written alike in TOML
