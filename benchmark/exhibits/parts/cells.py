"""Cells of accuracy tables: texts and records, best and second best, published numbers beside ours, captions and notes.

Every table says what it lacks: a cell with 2 of 3 seeds says 2/3, a comparison without seeds is not a tie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmark.accuracy import Accuracy
from benchmark.analysis import statistics as st
from benchmark.analysis.comparisons import Measured, measure
from benchmark.analysis.contents import TEST_NAMES, Contents, DatasetInfo
from benchmark.analysis.table import NONE, Cell

OUTSIDE_MARK, LEADING_MARK = "‡", "°"


def _spread(mean: float, std: float) -> str:
    return f"{mean:.2f}±{NONE if math.isnan(std) else f'{std:.2f}'}"


def signed(value: float) -> str:
    # Adding zero turns a rounded −0.0 into 0.0.
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")


def range_text(low: float, high: float) -> str:
    return NONE if math.isnan(low) or math.isnan(high) else f"{signed(low)} … {signed(high)}"


def p_text(p: float) -> str:
    return NONE if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def found_text(value: float) -> str:
    """A smallest detectable difference; no two accuracies are more than 100 points apart."""
    return NONE if math.isnan(value) else ">100" if value > 100 else f"{value:.1f}"


def share_text(value: float, low: float, high: float) -> str:
    return NONE if math.isnan(value) else f"{value:.2f} ({low:.2f}–{high:.2f})"


def cell_text(cell: Measured) -> str:
    if not cell.n:
        return NONE
    return _spread(cell.mean, cell.std) + ("" if cell.complete else f" ({cell.n}/{cell.expected})")


def seeds_text(contents: Contents) -> str:
    many = len(contents.seeds)
    return f"{many} seed{'s' if many != 1 else ''} ({', '.join(map(str, contents.seeds))})"


def test_limits(test: str, n: int, alpha: float) -> str:
    """What the test cannot do at this number of seeds."""
    if n < 2:
        return f"{TEST_NAMES[test]} needs two seeds"
    if test == "wilcoxon":
        least = 2 / 2**n
        never = ", so nothing can be significant" if least >= alpha else ""
        return f"with {n} seeds the least possible p is {least:.3g}{never}"
    if test == "paired":
        return f"with {n} seeds |t| > {st.critical_t(n, alpha):.2f} is needed"
    bound = f"|t| > {st.critical_t(2 * n - 1, alpha):.2f}"
    return f"with {n} seeds each {bound} is needed" + (" at least" if test == "welch" else "")


def detectable_text(records: Sequence[Mapping[str, Any]]) -> str:
    """What the comparisons could have found, as a sentence; nothing where no spread was seen."""
    known = [(r["detectable"], r["detectable_holm"]) for r in records if not math.isnan(r["detectable"])]
    if not known:
        return ""
    single, adjusted = np.median(known, axis=0)
    return (
        f"Smallest difference that would be found with probability {st.POWER:g}: {found_text(single)} points in the median "
        f"comparison, {found_text(adjusted)} after Holm. "
    )


def ranks_of(means: Mapping[str, float]) -> dict[str, int]:
    """1 for the best and 2 for the second best by mean; equal means share a place; nothing to rank among fewer than two."""
    if len(means) < 2:
        return {}
    levels = sorted({round(v, 9) for v in means.values()}, reverse=True)[:2]
    return {k: levels.index(round(v, 9)) + 1 for k, v in means.items() if round(v, 9) in levels}


def record_of(contents: Contents, dataset: str, label: str, cell: Measured, accuracy: Accuracy) -> dict[str, Any]:
    low, high = cell.interval
    return {
        "profile": contents.profile,
        "label": label,
        "dataset": dataset,
        "accuracy": accuracy.key,
        "n": cell.n,
        "expected": cell.expected,
        "mean": cell.mean,
        "std": cell.std,
        "ci_low": low,
        "ci_high": high,
        "values": dict(cell.values),
        "problems": list(cell.problems),
    }


def beside(cell: Measured, mean: float, std: float) -> tuple[str, dict[str, Any]]:
    """The published number with our difference, flagged where it lies outside our 95 % t interval."""
    fields: dict[str, Any] = {"published_mean": mean, "published_std": std}
    text = _spread(mean, std) if not math.isnan(std) else f"{mean:.2f}"
    if not cell.n:
        return text, {**fields, "difference": math.nan, "published_outside": None}
    low, high = cell.interval
    outside = None if math.isnan(low) else not low <= mean <= high
    mark = OUTSIDE_MARK if outside else ""
    difference = cell.mean - mean
    return f"{text} ({signed(difference)}{mark})", {**fields, "difference": difference, "published_outside": outside}


def accuracy_caption(contents: Contents, accuracy: Accuracy) -> str:
    """What the numbers are; an accuracy that is no result says so first."""
    return (
        f"{warned(accuracy)}Test accuracy (%) {accuracy.caption}, mean ± sample standard deviation (divisor n−1) over "
        f"{seeds_text(contents)}. Profile {contents.profile}, device {contents.device}."
    )


def warned(accuracy: Accuracy) -> str:
    return f"{accuracy.warning} " if accuracy.warning else ""


def counts_text(counts: Any, missing: int = 0) -> str:
    """Win/tie/loss."""
    if not int(np.sum(counts)):
        return NONE if missing else "0/0/0"
    return "/".join(str(int(c)) for c in counts) + (f" ?{int(missing)}" if missing else "")


@dataclass(frozen=True)
class Line:
    """One line of an accuracy table: its cells, the published numbers below them (empty texts: none), its records."""

    cells: list[str | Cell]
    below: list[str]
    records: list[dict[str, Any]]


@dataclass(frozen=True)
class Grid:
    """The measured cells of a table, label × data set, and the places of the best two of each data set."""

    contents: Contents
    accuracy: Accuracy
    cells: Mapping[tuple[str, str], Measured]
    places: Mapping[tuple[str, str], int]
    leading: frozenset[tuple[str, str]] = frozenset()  # not significantly worse than the best of the data set

    @property
    def complete(self) -> bool:
        return all(cell.complete for cell in self.cells.values())

    def problems(self, titles: Mapping[str, str]) -> tuple[str, ...]:
        """Runs without a result, one line per cell."""
        return tuple(
            f"{titles.get(label, label)} on {titles.get(dataset, dataset)}: {'; '.join(cell.problems)}."
            for (label, dataset), cell in self.cells.items()
            if cell.problems
        )

    def line(
        self,
        label: str,
        fields: Mapping[str, Any],
        published: Callable[[DatasetInfo], Sequence[float] | None],
    ) -> Line:
        """The line of one label; `fields` start its records, `published` gives mean and deviation in print."""
        line = Line([], [], [])
        for d in self.contents.datasets:
            cell, place = self.cells[label, d.name], self.places.get((label, d.name))
            leads = (label, d.name) in self.leading
            line.cells.append(marked(cell_text(cell) + LEADING_MARK * leads, place))
            number = published(d)
            text, difference = beside(cell, *number[:2]) if number else ("", {})
            line.below.append(text)
            own = record_of(self.contents, d.name, label, cell, self.accuracy)
            line.records.append({**fields, **own, "place": place, "leading": leads, **difference})
        return line


def marked(text: str, place: int | None) -> Cell:
    return Cell(text, bold=place == 1, underline=place == 2)


def grid_of(
    runs: pd.DataFrame, contents: Contents, labels: Sequence[str], ranked: Sequence[str], accuracy: Accuracy
) -> Grid:
    """Measure every label on every data set; only the complete cells of `ranked` labels compete for the best two."""
    cells = {
        (label, d.name): measure(runs, contents, d.name, label, accuracy) for label in labels for d in contents.datasets
    }
    places = {}
    for d in contents.datasets:
        means = {label: cells[label, d.name].mean for label in ranked if cells[label, d.name].complete}
        places.update({(label, d.name): place for label, place in ranks_of(means).items()})
    return Grid(contents, accuracy, cells, places)


def leading(grid: Grid, labels: Sequence[str], test: str, alpha: float) -> frozenset[tuple[str, str]]:
    """The cells that a test does not tell from the best of their data set; with fewer than two seeds nothing is known."""
    found = set()
    for d in grid.contents.datasets:
        cells = {label: grid.cells[label, d.name] for label in labels if grid.cells[label, d.name].complete}
        best = max(cells, key=lambda label: cells[label].mean, default="")
        for label, cell in cells.items() if len(cells) > 1 else ():
            outcome = st.compare(cells[best].values, cell.values, test, alpha).outcome
            if label == best or outcome in (st.TIE, st.LOSS):
                found.add((label, d.name))
    return frozenset(found) if len(grid.contents.seeds) > 1 else frozenset()


def test_set_note(contents: Contents, means: Mapping[str, Sequence[float]]) -> list[str]:
    """The error that the number of test rows alone gives, which seeds on the same rows cannot show."""
    known = [
        f"{d.title} {st.binomial_se(float(np.median(means[d.name])), d.test_rows):.2f} ({d.test_rows:,} rows)"
        for d in contents.datasets
        if d.test_rows and len(means.get(d.name, ())) and not d.split_by_seed
    ]
    if not known:
        return []
    return [
        f"± is the spread over seeds. Another test set would add its own standard error, at the median accuracy: "
        f"{', '.join(known)}."
    ]


def split_note(contents: Contents) -> list[str]:
    """What seeds stand for where each draws its own rows."""
    sets = ", ".join(d.title for d in contents.datasets if d.split_by_seed)
    if not sets:
        return []
    return [
        f"{sets}: every seed has its own split, so ± holds the error of the test rows too. Splits share training rows, so "
        f"tests over seeds find somewhat too much."
    ]


def named_cells(records: Sequence[Mapping[str, Any]], titles: Mapping[str, str], limit: int = 5) -> str:
    """Method and data set of comparisons, the first few."""
    names = [f"{titles[r['method']]} on {titles[r['dataset']]}" for r in records]
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def reading_notes(complete: bool, beside_ours: bool) -> list[str]:
    """How to read an accuracy table that lacks runs or shows published numbers."""
    notes = []
    if not complete:
        notes.append(f"Incomplete: k/n is the number of seeds done, {NONE} means none; such cells are not ranked.")
    if beside_ours:
        notes.append(
            "published: the paper's mean±std (form of its deviation unknown) and, in parentheses, our mean minus its mean; "
            f"{OUTSIDE_MARK} the published mean lies outside the 95 % t interval of our mean."
        )
    return notes


def summary_of(contents: Contents, accuracy: Accuracy, table: str) -> dict[str, Any]:
    return {
        "table": table,
        "profile": contents.profile,
        "device": contents.device,
        "accuracy": accuracy.key,
        "std": "sample (ddof=1)",
        "seeds": list(contents.seeds),
    }
