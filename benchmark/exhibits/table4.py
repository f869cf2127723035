"""Table 4: ablation of CEL's losses, with the average over datasets where all are complete."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmark.accuracy import LAST, Accuracy, by_word
from benchmark.analysis.contents import Contents, DatasetInfo
from benchmark.analysis.table import NONE, Row, Table, row
from benchmark.exhibits.base import Exhibit, Inputs, RequiredRuns, accuracy_flag

if TYPE_CHECKING:
    import pandas as pd

    from benchmark.config.selection import Selection

ABLATION: dict[str, dict[str, Any]] = {  # row as printed: what its runs change
    "L_cls": {"alpha": 0.0, "beta": 0.0},
    "L_cls + L_cal": {"beta": 0.0},
    "L_cls + L_cal + L_pdl": {},
}


def label_of(change: dict[str, Any]) -> str:
    return "cel" + (f"[{','.join(f'{k}={v:g}' for k, v in change.items())}]" if change else "")


ROWS = tuple((title, label_of(change)) for title, change in ABLATION.items())


class Table4(Exhibit):
    name, title, kind = "table4", "Table 4", "table"

    @dataclass(frozen=True)
    class Options:
        accuracy: str = accuracy_flag()

    def required_runs(self, selection: Selection, options: Options) -> RequiredRuns:
        required = RequiredRuns()
        for change in ABLATION.values():
            required.add(selection.specs(["cel"], variant=change), label_of(change))
        return required

    def make(self, inputs: Inputs, options: Options) -> Table:
        return inputs.with_notes(table4(inputs.runs, inputs.contents, accuracy=by_word(options.accuracy)))


def table4(
    runs: pd.DataFrame, contents: Contents, rows: Sequence[tuple[str, str]] = ROWS, accuracy: Accuracy = LAST
) -> Table:
    """Build one line per (title, label of the runs)."""
    from benchmark.analysis import published
    from benchmark.analysis.comparisons import mixture_notes, relevant
    from benchmark.analysis.statistics import mean
    from benchmark.exhibits.parts import cells

    runs = relevant(runs, contents)
    labels = [label for _, label in rows]
    grid = cells.grid_of(runs, contents, labels, labels, accuracy)
    by_label = {label: [grid.cells[label, d.name] for d in contents.datasets] for label in labels}
    averages = {k: mean([c.mean for c in line]) for k, line in by_label.items() if all(c.complete for c in line)}
    published_rows = published.load("table4").to_dict("records") if contents.profile == "paper" else []
    paper = {(r["row"], r["dataset"]): (r["mean"], r["std"]) for r in published_rows}
    places = cells.ranks_of(averages)

    def printed(title: str, dataset: DatasetInfo) -> tuple[float, float] | None:
        return paper.get((title, dataset.title))

    lines: list[Row] = []
    data: list[dict[str, Any]] = []
    for title, label in rows:
        line = grid.line(label, {"row": title}, functools.partial(printed, title))
        average, place = averages.get(label, math.nan), places.get(label)
        lines.append(
            row(title, *line.cells, cells.ranked_cell(NONE if math.isnan(average) else f"{average:.2f}", place))
        )
        if any(line.below):
            number = paper.get((title, "AVERAGE"))
            below = "" if number is None else f"{number[0]:.2f}"
            if number is not None and not math.isnan(average):
                below += f" ({cells.signed(average - number[0])})"
            lines.append(row(cells.PUBLISHED_ROW, *line.below, below))
        data += line.records
        key = {"row": title, "profile": contents.profile, "label": label}
        data.append({**key, "dataset": "AVERAGE", "mean": average, "place": place})
    notes = cells.incomplete_note(grid.complete) + cells.published_note(bool(paper))
    notes += mixture_notes(runs[runs["label"].isin(labels)])
    caption = f"Ablation of CEL. {cells.accuracy_caption(contents, accuracy)} Best in bold, second best underlined."
    summary = cells.summary_of(contents, accuracy, "table4") | {"rows": [list(r) for r in rows]}
    columns = ("Losses", *(d.title for d in contents.datasets), "Average")
    problems = grid.problems(contents.titles | {label: title for title, label in rows})
    content = (columns, lines, notes, problems, data, summary, grid.complete)
    return Table("Table 4", caption, *content, origin=cells.origin(contents))
