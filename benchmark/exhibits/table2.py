"""Table 2: accuracy of every method on every data set, beside the published number for profile `paper`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmark.accuracy import LAST, Accuracy, by_word
from benchmark.analysis.contents import MAIN_KINDS, TEST_NAMES, Contents, DatasetInfo, MethodInfo
from benchmark.analysis.table import Row, Table, row
from benchmark.exhibits.base import (
    Exhibit,
    Material,
    Need,
    accuracy_flag,
    reference_flag,
)
from datasets.base import plural

if TYPE_CHECKING:
    import pandas as pd

    from benchmark.config.selection import Selection
    from benchmark.exhibits.parts.cells import Grid

REFERENCE_MARK, GONE_MARK = "★", "†"
PUBLISHED_ROW = "  published"  # title of the line below a method's own


class Table2(Exhibit):
    name, title, kind = "table2", "Table 2", "table"

    @dataclass(frozen=True)
    class Options:
        accuracy: str = accuracy_flag()
        reference: str = reference_flag("the method that is compared with the others")

    def runs(self, selection: Selection, options: Options) -> Need:
        need = Need()
        need.add(selection.specs())
        return need

    def make(self, material: Material, options: Options) -> Table:
        contents = replace(material.contents, reference=options.reference)
        return material.annotated(table2(material.runs, contents, accuracy=by_word(options.accuracy)))


def table2(
    runs: pd.DataFrame,
    contents: Contents,
    test: str = "paired",
    accuracy: Accuracy = LAST,
) -> Table:
    """Accuracy of every method on every data set; methods that no file defines any more stand last."""
    from benchmark.analysis import published
    from benchmark.analysis.comparisons import ALPHA, mixture_notes, relevant, unregistered
    from benchmark.exhibits.parts import cells

    runs = relevant(runs, contents)
    gone = unregistered(runs, contents)
    sections = [[m for m in contents.main_methods if m.kind == kind] for kind in MAIN_KINDS]
    sections += [list(contents.other_methods), list(contents.extensions), list(gone)]
    labels = [m.name for section in sections for m in section]
    main = [m.name for m in contents.main_methods]
    grid = cells.grid_of(runs, contents, labels, main, accuracy)
    grid = replace(grid, leading=cells.leading(grid, main, test, ALPHA))
    beside = contents.shows_published
    paper = published.beside(contents.profile) if beside else {}

    def printed(method: MethodInfo, dataset: DatasetInfo) -> tuple[float, float, int] | None:
        known = dataset.published_name or ""
        return paper.get((method.title.lower(), known)) or paper.get((method.name, known))

    rows: list[Row] = []
    data: list[dict[str, Any]] = []
    for section in sections:
        for i, m in enumerate(section):
            fields = {"kind": m.kind, "method": m.name}
            line = grid.line(m.name, fields, lambda d, m=m: printed(m, d))  # type: ignore[misc]
            first = i == 0 or section[i - 1].kind != m.kind
            rows.append(row(m.kind if first else "", _title(m, contents), *line.cells, rule=i == 0 and bool(rows)))
            if any(line.below):
                rows.append(row("", PUBLISHED_ROW, *line.below))
            data += line.records

    wanted = [grid.cells[m.name, d.name] for m in contents.methods for d in contents.datasets]
    complete = all(c.complete for c in wanted)
    means = {d.name: [grid.cells[m, d.name].mean for m in main if grid.cells[m, d.name].n] for d in contents.datasets}
    notes = _notes(contents, complete, gone, beside and bool(paper)) + cells.test_set_note(contents, means)
    notes += cells.split_note(contents)
    notes += mixture_notes(runs[runs["label"] == runs["method"]])
    if beside and contents.beside:
        notes += [contents.beside, *_rank_notes(contents, grid, paper)]
    caption = (
        f"{cells.accuracy_caption(contents, accuracy)} Best in bold, second best underlined, among PLL and IDPLL methods "
        f"with all seeds; {cells.LEADING_MARK} all that the test of Table 3 does not find worse than the best, without "
        f"correction. Differences are tested in Table 3 ({TEST_NAMES[test]}, {ALPHA:g}): "
        f"{cells.test_limits(test, len(contents.seeds), ALPHA)}."
    )
    summary = cells.summary_of(contents, accuracy, "table2") | {
        "test": test,
        "alpha": ALPHA,
        "reference": contents.reference,
        "cells_done": sum(c.complete for c in wanted),
        "cells": len(wanted),
    }
    columns = ("Type", "Method", *(d.title for d in contents.datasets))
    problems = grid.problems(contents.titles)
    return Table(
        "Table 2", caption, columns, tuple(rows), tuple(notes), problems, tuple(data), summary, complete, text_columns=2
    )


def _rank_notes(contents: Contents, grid: Grid, paper: Mapping[tuple[str, str], tuple[float, ...]]) -> list[str]:
    """How far the order of the methods is the paper's, per data set."""
    from benchmark.analysis.statistics import rank_correlation
    from benchmark.exhibits.parts.cells import signed

    notes = []
    for d in contents.datasets:
        ours = {m.title.lower(): grid.cells[m.name, d.name] for m in contents.main_methods}
        both = {
            title: paper[title, d.published_name or ""] for title in ours if (title, d.published_name or "") in paper
        }
        shared = [title for title in both if ours[title].complete]
        if len(shared) < 4:
            continue
        rho, low, high = rank_correlation([ours[t].mean for t in shared], [both[t][0] for t in shared])
        notes.append(
            f"{d.title}: rank correlation (Spearman) of the {len(shared)} methods with the paper's order "
            f"{signed(rho)}, 95 % interval {signed(low)} to {signed(high)}."
        )
    return notes


def _title(method: MethodInfo, contents: Contents) -> str:
    mark = f"{REFERENCE_MARK} " if method.name == contents.reference else ""
    return f"{mark}{method.title}{GONE_MARK if method.kind == 'unregistered' else ''}"


def _notes(contents: Contents, complete: bool, gone: Sequence[MethodInfo], beside: bool) -> list[str]:
    from benchmark.exhibits.parts.cells import reading_notes

    notes = []
    if contents.reference in contents.titles:
        notes.append(f"{REFERENCE_MARK} the method under study, {contents.titles[contents.reference]}.")
    notes += reading_notes(complete, False)
    if contents.extensions:
        many = plural(len(contents.extensions), "extension")
        notes.append(f"Below the references: {many}, not part of the paper and not ranked.")
    if gone:
        names = ", ".join(m.name for m in gone)
        notes.append(
            f"{GONE_MARK} not registered here ({names}): shown from stored runs, not ranked; --plugin names the file."
        )
    return notes + reading_notes(True, beside)
