"""Accuracy tables: measured cells as texts and records, best and second best, published numbers, captions and notes.

Incomplete results are marked: a cell with 2 of 3 seeds says 2/3, and a comparison without seeds is not a tie.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmark.accuracy import Accuracy
from benchmark.analysis import statistics as st
from benchmark.analysis.comparisons import Measured, measure
from benchmark.analysis.contents import MAIN_KINDS, TEST_NAMES, Contents, DatasetInfo, MethodInfo
from benchmark.analysis.table import NONE, Cell, Row, row
from datasets.base import plural

OUTSIDE_MARK, REFERENCE_MARK, GONE_MARK = "‡", "★", "†"
PUBLISHED_ROW = "  published"  # title of the line below a method's own


# Numbers as texts -----------------------------------------------------------------------------------------------------
def spread(mean: float, std: float) -> str:
    if math.isnan(mean):
        return NONE
    return f"{mean:.2f}±{NONE if math.isnan(std) else f'{std:.2f}'}"


def signed(value: float) -> str:
    # Adding zero turns a rounded −0.0 into 0.0.
    return NONE if math.isnan(value) else f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")


def range_text(low: float, high: float) -> str:
    return NONE if math.isnan(low) or math.isnan(high) else f"{signed(low)} … {signed(high)}"


def cell_text(cell: Measured) -> str:
    if not cell.n:
        return NONE
    error = cell.standard_error if cell.covering else cell.std
    return spread(cell.mean, error) + ("" if cell.complete else f" ({cell.n}/{cell.expected})")


def counts_text(counts: Any, missing: int = 0) -> str:
    """Return win/tie/loss as text."""
    if not int(np.sum(counts)):
        return NONE if missing else "0/0/0"
    return "/".join(str(int(c)) for c in counts) + (f" ?{int(missing)}" if missing else "")


def ranked_cell(text: str, place: int | None) -> Cell:
    """Return a cell whose text is bold in the first place and underlined in the second."""
    return Cell(text, bold=place == 1, underline=place == 2)


# Measured cells -------------------------------------------------------------------------------------------------------
def ranks_of(means: Mapping[str, float]) -> dict[str, int]:
    """Return 1 for the best and 2 for the second best; equal means share a place; fewer than two are not ranked."""
    if len(means) < 2:
        return {}
    levels = sorted({round(v, 9) for v in means.values()}, reverse=True)[:2]
    return {k: levels.index(round(v, 9)) + 1 for k, v in means.items() if round(v, 9) in levels}


def published_text(cell: Measured, mean: float, std: float) -> tuple[str, dict[str, Any]]:
    """Return the published number with our difference, marked where it is outside our 95 % t interval."""
    low, high = cell.interval
    outside = None if math.isnan(low) else not low <= mean <= high
    difference = cell.mean - mean
    text = f"{mean:.2f}" if math.isnan(std) else spread(mean, std)
    if cell.n:
        text += f" ({signed(difference)}{OUTSIDE_MARK if outside else ''})"
    fields = {"published_mean": mean, "published_std": std, "difference": difference, "published_outside": outside}
    return text, fields


@dataclass(frozen=True)
class Line:
    """Line of an accuracy table: its cells, the published numbers below them (empty texts: none), its records."""

    cells: list[str | Cell]
    below: list[str]
    records: list[dict[str, Any]]


@dataclass(frozen=True)
class Grid:
    """Measured cells of a table, label × dataset, and the places of the best two of each dataset."""

    contents: Contents
    accuracy: Accuracy
    cells: Mapping[tuple[str, str], Measured]
    places: Mapping[tuple[str, str], int]
    leading: Mapping[tuple[str, str], str]  # the mark of cells that are not significantly worse than the best
    differences: bool = True  # whether published numbers are shown with our difference

    @property
    def complete(self) -> bool:
        return all(cell.complete for cell in self.cells.values())

    def problems(self, titles: Mapping[str, str]) -> tuple[str, ...]:
        """Return a line per cell whose runs have no result."""
        return tuple(
            f"{titles.get(label, label)} on {titles.get(dataset, dataset)}: {'; '.join(cell.problems)}."
            for (label, dataset), cell in self.cells.items()
            if cell.problems
        )

    def line(
        self,
        label: str,
        fields: Mapping[str, Any],
        published: Callable[[DatasetInfo], Sequence[float] | None] = lambda dataset: None,
    ) -> Line:
        """Return the line of one label; `fields` start its records, `published` gives mean and deviation in print."""
        line = Line([], [], [])
        for d in self.contents.datasets:
            cell, place = self.cells[label, d.name], self.places.get((label, d.name))
            mark = self.leading.get((label, d.name), "")
            line.cells.append(ranked_cell(cell_text(cell) + mark, place))
            number = published(d)
            text, difference = published_text(cell, *number[:2]) if number else ("", {})
            if number and not self.differences:
                text = text.partition(" ")[0]
            line.below.append(text)
            rates = {"values": {}, "covering_rates": dict(cell.values), "standard_error": cell.standard_error}
            low, high = cell.interval
            line.records.append(
                {
                    **fields,
                    "profile": self.contents.profile,
                    "label": label,
                    "dataset": d.name,
                    "accuracy": self.accuracy.key,
                    "n": cell.n,
                    "expected": cell.expected,
                    "mean": cell.mean,
                    "std": cell.std,
                    "ci_low": low,
                    "ci_high": high,
                    "values": dict(cell.values),
                    "problems": list(cell.problems),
                    "place": place,
                    "leading": bool(mark),
                    **difference,
                    **(rates if cell.covering else {}),
                }
            )
        return line


def grid_of(
    runs: pd.DataFrame, contents: Contents, labels: Sequence[str], ranked: Sequence[str], accuracy: Accuracy
) -> Grid:
    """Measure every label on every dataset; only the complete cells of `ranked` labels compete for the best two."""
    cells = {
        (label, d.name): measure(runs, contents, d.name, label, accuracy.key)
        for label in labels
        for d in contents.datasets
    }
    places = {}
    for d in contents.datasets:
        means = {label: cells[label, d.name].mean for label in ranked if cells[label, d.name].complete}
        places.update({(label, d.name): place for label, place in ranks_of(means).items()})
    return Grid(contents, accuracy, cells, places, {})


def sections_of(contents: Contents, unregistered: Sequence[MethodInfo] = ()) -> list[list[MethodInfo]]:
    """Return the methods in the order of a table: by kind, then controls and references, extensions, unregistered."""
    by_kind = [[m for m in contents.main_methods if m.kind == kind] for kind in MAIN_KINDS]
    return [*by_kind, list(contents.other_methods), list(contents.extensions), list(unregistered)]


def method_rows(
    grid: Grid,
    sections: Sequence[Sequence[MethodInfo]],
    published: Callable[[MethodInfo, DatasetInfo], Sequence[float] | None] = lambda method, dataset: None,
    more: Callable[[MethodInfo], Sequence[str]] = lambda method: (),
) -> tuple[list[Row], list[dict[str, Any]]]:
    """Build the rows and records of an accuracy table, sections parted by rules; `more` gives further cells of a row."""
    rows: list[Row] = []
    records: list[dict[str, Any]] = []
    for section in sections:
        for i, method in enumerate(section):
            fields = {"kind": method.kind, "method": method.name}
            line = grid.line(method.name, fields, functools.partial(published, method))
            kind = method.kind if i == 0 or section[i - 1].kind != method.kind else ""
            star = f"{REFERENCE_MARK} " if method.name == grid.contents.reference else ""
            title = f"{star}{method.title}{GONE_MARK if method.kind == 'unregistered' else ''}"
            rows.append(row(kind, title, *line.cells, *more(method), rule=i == 0 and bool(rows)))
            if any(line.below):
                rows.append(row("", PUBLISHED_ROW, *line.below))
            records += line.records
    return rows, records


# Captions and notes ---------------------------------------------------------------------------------------------------
def accuracy_caption(contents: Contents, accuracy: Accuracy) -> str:
    """Describe the numbers of a table; a warning about the accuracy comes first."""
    seeds = plural(len(contents.seeds), "seed")
    return f"{accuracy.warning}Test accuracy (%) {accuracy.caption}, mean ± standard deviation over {seeds}."


def origin(contents: Contents) -> str:
    """Name the profile, the seeds and the device of a table."""
    seeds = ", ".join(map(str, contents.seeds))
    return f"Profile {contents.profile}, seeds {seeds}, device {contents.device}."


def test_limits(test: str, n: int, alpha: float) -> str:
    """Say what the test cannot do at this number of seeds."""
    if n < 2:
        return f"{TEST_NAMES[test]} needs two seeds"
    if test == "wilcoxon":
        least = 2 / 2**n
        never = ", so nothing can be significant" if least >= alpha else ""
        return f"with {n} seeds the smallest possible p is {least:.3g}{never}"
    if test == "paired":
        return f"with {n} seeds significance needs |t| > {st.critical_t(n, alpha):.2f}"
    bound = f"|t| > {st.critical_t(2 * n - 1, alpha):.2f}"
    return f"with {n} seeds each significance needs {bound}" + (" at least" if test == "welch" else "")


def split_note(contents: Contents) -> list[str]:
    """Explain ± and tests where each seed draws its own rows."""
    sets = ", ".join(d.title for d in contents.datasets if d.split_by_seed)
    if not sets:
        return []
    return [
        f"{sets}: every seed has its own split, so ± includes the sampling error of the test set. Splits share training "
        f"rows, so tests over seeds reject somewhat too often."
    ]


def incomplete_note(complete: bool) -> list[str]:
    """Explain the cells of an accuracy table that lacks runs."""
    if complete:
        return []
    return [f"Incomplete: k/n seeds are done, {NONE} means none; such cells are not ranked."]


def published_note(has_numbers: bool, differences: bool = True) -> list[str]:
    """Explain the published numbers of an accuracy table that has them."""
    if not has_numbers:
        return []
    if not differences:
        return ["published: the paper's mean±std (sample or population form is not stated)."]
    return [
        "published: the paper's mean±std (sample or population form is not stated) and, in parentheses, our mean minus its "
        f"mean; {OUTSIDE_MARK} the published mean lies outside the 95 % t interval of our mean."
    ]


def summary_of(contents: Contents, accuracy: Accuracy, table: str) -> dict[str, Any]:
    return {
        "table": table,
        "profile": contents.profile,
        "device": contents.device,
        "accuracy": accuracy.key,
        "std": "sample (ddof=1)",
        "seeds": list(contents.seeds),
    }
