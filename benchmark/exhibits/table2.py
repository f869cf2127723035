"""Table 2: accuracy of every method on every dataset, beside the published number where a profile has one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmark.accuracy import COVERING_RATE, LAST, Accuracy, by_word
from benchmark.analysis.contents import TEST_NAMES, Contents, DatasetInfo, MethodInfo
from benchmark.analysis.table import Table
from benchmark.exhibits.base import Exhibit, Inputs, accuracy_flag, reference_flag
from benchmark.exhibits.selection import SUPERVISED
from datasets.base import plural

if TYPE_CHECKING:
    import pandas as pd

    from benchmark.exhibits.parts.cells import Grid

LEADING_MARK = "°"
COVERING_NOTE = (
    "These columns are not ranked: in the study of choosing settings the method with the highest covering rate lacked 1.0 points "
    "of accuracy to the best on average over six datasets, at most 5.2; see docs/evidence.md."
)


class Table2(Exhibit):
    name, title, kind = "table2", "Table 2", "table"

    @dataclass(frozen=True)
    class Options:
        accuracy: str = accuracy_flag()
        reference: str | None = reference_flag("the method that is compared with the others")

    def make(self, inputs: Inputs, options: Options) -> Table:
        contents = inputs.compared_with(options.reference)
        return inputs.with_notes(table2(inputs.runs, contents, by_word(options.accuracy)))


def table2(runs: pd.DataFrame, contents: Contents, accuracy: Accuracy = LAST) -> Table:
    """Build the table; methods that no file defines any more stand last."""
    from benchmark.analysis import published
    from benchmark.analysis.comparisons import (
        ALPHA,
        measure_covering,
        mixture_notes,
        relevant,
        unregistered,
        unscored_datasets,
    )
    from benchmark.exhibits.parts import cells

    runs = relevant(runs, contents)
    unregistered_methods = unregistered(runs, contents)
    sections = cells.sections_of(contents, unregistered_methods)
    main = [m.name for m in contents.main_methods]
    grid = cells.grid_of(runs, contents, [m.name for section in sections for m in section], main, accuracy)
    same_network = contents.profile == "paper" or bool(published.of_profile(contents.profile))
    grid = replace(grid, leading=leading(grid, main), differences=same_network)
    shows_published = contents.profile == "paper" or contents.beside
    paper = published.comparison_numbers(contents.profile) if shows_published else {}

    def printed(method: MethodInfo, dataset: DatasetInfo) -> tuple[float, float, int] | None:
        return paper.get((method.title.lower(), dataset.title)) or paper.get((method.name, dataset.title))

    sampling_error, unscored = test_set_note(grid, main), unscored_datasets(runs)
    covering = {key: measure_covering(runs, contents, key[1], key[0]) for key in grid.cells if key[1] in unscored}
    grid = replace(grid, cells={**grid.cells, **covering})
    rows, data = cells.method_rows(grid, sections, printed)
    impossible = {key for key in covering if key[0] == SUPERVISED and grid.cells[key].problems}  # it needs true labels
    keys = [(m.name, d.name) for m in contents.methods for d in contents.datasets]
    planned = [grid.cells[key] for key in keys if key not in impossible]
    complete = all(c.complete for c in planned)
    notes = []
    if contents.reference in contents.titles:
        notes.append(f"{cells.REFERENCE_MARK} method under study: {contents.titles[contents.reference]}.")
    notes += cells.incomplete_note(complete)
    if contents.extensions:
        many = plural(len(contents.extensions), "extension")
        notes.append(f"Below the references: {many}, not part of the paper and not ranked.")
    if unregistered_methods:
        names = ", ".join(m.name for m in unregistered_methods)
        notes.append(
            f"{cells.GONE_MARK} not registered here ({names}): shown from stored runs, not ranked; name the file with --plugin."
        )
    notes += cells.published_note(bool(paper), same_network) + sampling_error + cells.split_note(contents)
    notes += mixture_notes(runs[runs["label"] == runs["method"]])
    if contents.beside:
        notes += [contents.beside, *rank_notes(grid, paper)]
    caption = (
        f"{cells.accuracy_caption(contents, accuracy)} Best PLL or IDPLL method in bold, second best underlined; "
        f"{LEADING_MARK} not significantly worse than the best ({TEST_NAMES['paired']}, α = {ALPHA:g}, uncorrected)."
    )
    none_scored = bool(covering) and len(unscored) == len(contents.datasets)
    if not none_scored:
        limits = cells.test_limits("paired", len(contents.seeds), ALPHA)
        notes.append(f"± is the sample standard deviation (n − 1); {limits}.")
    if covering:
        explanation = (
            f"CR: covering rate (%), {COVERING_RATE}, on held-out training rows after the last epoch, ± binomial standard "
            f"error over the rows of all seeds."
        )
        if none_scored:
            caption = explanation
        else:
            notes.append(explanation)
        notes.append(COVERING_NOTE)
    summary = cells.summary_of(contents, accuracy, "table2") | {
        "test": "paired",
        "alpha": ALPHA,
        "reference": contents.reference,
        "cells_done": sum(c.complete for c in planned),
        "cells": len(planned),
    }
    columns = ("Type", "Method", *(d.title + " (CR)" * (d.name in unscored) for d in contents.datasets))
    problems = grid.problems(contents.titles)
    content = (columns, rows, notes, problems, data, summary, complete)
    return Table("Table 2", caption, *content, text_columns=2, origin=cells.origin(contents))


def leading(grid: Grid, labels: Sequence[str]) -> dict[tuple[str, str], str]:
    """Mark the cells that are not significantly worse than the best of their dataset; none with fewer than two seeds."""
    from benchmark.analysis import statistics as st

    marks = {}
    for d in grid.contents.datasets if len(grid.contents.seeds) > 1 else ():
        cells = {label: grid.cells[label, d.name] for label in labels if grid.cells[label, d.name].complete}
        best = max(cells, key=lambda label: cells[label].mean, default="")
        for label, cell in cells.items() if len(cells) > 1 else ():
            outcome = st.compare(cells[best].values, cell.values).outcome
            if label == best or outcome in (st.TIE, st.LOSS):
                marks[label, d.name] = LEADING_MARK
    return marks


def test_set_note(grid: Grid, labels: Sequence[str]) -> list[str]:
    """Give the error that comes from the number of test rows, which seeds on the same rows cannot show."""
    import numpy as np

    from benchmark.analysis.statistics import binomial_se

    errors = []
    for d in grid.contents.datasets:
        means = [grid.cells[label, d.name].mean for label in labels if grid.cells[label, d.name].n]
        if d.test_rows and means and not d.split_by_seed:
            errors.append(f"{d.title} {binomial_se(float(np.median(means)), d.test_rows):.2f} ({d.test_rows:,} rows)")
    if not errors:
        return []
    return [
        f"± covers seeds only. Standard error from the size of the test set, at the median accuracy: {', '.join(errors)}."
    ]


def rank_notes(grid: Grid, paper: Mapping[tuple[str, str], tuple[float, ...]]) -> list[str]:
    """Give the rank correlation of our order of the methods with the paper's, per dataset."""
    from benchmark.analysis.statistics import rank_correlation
    from benchmark.exhibits.parts.cells import signed

    notes = []
    for d in grid.contents.datasets:
        ours = {m.title.lower(): grid.cells[m.name, d.name] for m in grid.contents.main_methods}
        shared = [title for title, cell in ours.items() if (title, d.title) in paper and cell.complete]
        if len(shared) < 4:
            continue
        rho, low, high = rank_correlation([ours[t].mean for t in shared], [paper[t, d.title][0] for t in shared])
        notes.append(
            f"{d.title}: Spearman rank correlation with the paper over {len(shared)} methods "
            f"{signed(rho)}, 95 % interval {signed(low)} to {signed(high)}."
        )
    return notes
