"""All methods under one protocol on the real-world sets, with an MLP and with a linear model: nobody has published it.

Sizes, folds and the tuning are in the profiles realworld, realworld-all and realworld-all-linear.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmark.accuracy import by_word
from benchmark.analysis.contents import MAIN_KINDS, TEST_NAMES, Contents, DatasetInfo
from benchmark.analysis.table import NONE, Row, Table, row
from benchmark.config.profile import load_profile
from benchmark.errors import UsageError
from benchmark.exhibits.base import (
    Exhibit,
    Material,
    Need,
    accuracy_flag,
    rank_all_flag,
    reference_flag,
    test_flag,
)
from benchmark.exhibits.realworld import USUAL_SETS

if TYPE_CHECKING:
    import pandas as pd

    from benchmark.config.selection import Selection
    from benchmark.runner.options import RunOptions

MODELS = {"realworld-all": "MLP", "realworld-all-linear": "linear"}  # profile -> how its columns are called


class RealworldAll(Exhibit):
    name, title, kind = "realworld-all", "the table of all methods on real-world sets", "table"
    profile = "realworld-all"

    @dataclass(frozen=True)
    class Options:
        accuracy: str = accuracy_flag()
        rank_all: bool = rank_all_flag()
        reference: str = reference_flag("the method that is compared with the others")
        test: str = test_flag()

    def usual(self, selection: Selection, place: RunOptions) -> Selection:
        """The three sets that were tuned, and any other whose file is there."""
        found = {name for name in selection.datasets if selection.source(name).find(place.data).status == "found"}
        names = [name for name in selection.datasets if name in USUAL_SETS or name in found]
        return replace(selection, datasets=tuple(names))

    def runs(self, selection: Selection, options: Options) -> Need:
        need = Need()
        for part in parts(selection):
            need.add(part.specs())
        if options.reference not in {spec.method for spec in need.specs}:
            raise UsageError(f"--reference {options.reference} is not among the methods of this table.")
        return need

    def make(self, material: Material, options: Options) -> Table:
        runs, contents = gathered(material)
        contents = contents.ranking_all() if options.rank_all else contents
        return material.annotated(table(runs, replace(contents, reference=options.reference), options))


def parts(selection: Selection) -> list[Selection]:
    """One selection per model; the extensions take part unless methods are named. Another profile stands alone."""
    own = selection.profile
    methods, apart = selection.methods, selection.apart
    if methods == own.all_methods:
        methods, apart = own.with_extensions, own.extensions
    profiles = [load_profile(name) for name in MODELS] if own.name in MODELS else [own]
    return [replace(selection, profile=profile, methods=methods, apart=apart) for profile in profiles]


def gathered(material: Material) -> tuple[pd.DataFrame, Contents]:
    """The runs of all models in one frame, and contents in which every model and data set is a column."""
    import pandas as pd

    from benchmark.analysis.contents import contents_of
    from benchmark.store import check_schema, run_frame

    frames, columns = [], []
    for part in parts(material.selection):
        contents = contents_of(part, material.contents.device)
        model = MODELS.get(part.profile.name, part.profile.title)
        frame = run_frame(material.store.planned(part.specs(), material.need.labels))
        check_schema(frame)
        frames.append(frame.assign(dataset=frame["dataset"] + f", {model}", profile=material.selection.profile.name))
        columns += [DatasetInfo(f"{d.name}, {model}", f"{d.title}, {model}", model) for d in contents.datasets]
    whole = replace(contents, profile=material.selection.profile.name, datasets=tuple(columns))
    return pd.concat(frames, ignore_index=True), whole


def table(runs: pd.DataFrame, contents: Contents, options: RealworldAll.Options) -> Table:
    """Accuracies by model and data set, the average rank, and win/tie/loss against the reference."""
    from benchmark.analysis.comparisons import ALPHA, compare_runs
    from benchmark.exhibits.parts import cells

    accuracy, titles = by_word(options.accuracy), contents.titles
    sections = [[m for m in contents.main_methods if m.kind == kind] for kind in MAIN_KINDS]
    sections += [list(contents.other_methods), list(contents.extensions)]
    ranked = [m.name for m in contents.main_methods]
    grid = cells.grid_of(runs, contents, [m.name for m in contents.methods], ranked, accuracy)
    records = compare_runs(runs, contents, options.test, accuracy)
    ranks, note = average_ranks(runs, contents, options)
    rows: list[Row] = []
    data: list[dict[str, Any]] = []
    for section in sections:
        for i, method in enumerate(section):
            line = grid.line(method.name, {"kind": method.kind, "method": method.name}, lambda d: None)
            against = [record for record in records if record["method"] == method.name]
            rows.append(
                row(
                    method.kind if i == 0 or section[i - 1].kind != method.kind else "",
                    ("★ " if method.name == contents.reference else "") + method.title,
                    *line.cells,
                    ranks.get(method.name, NONE),
                    outcomes(against, "outcome"),
                    outcomes(against, "outcome_holm"),
                    rule=i == 0 and bool(rows),
                )
            )
            data += line.records
    made = sum(record["n"] > 1 for record in records)
    star = titles.get(contents.reference, contents.reference)
    caption = (
        f"{cells.accuracy_caption(contents, accuracy)} One protocol and one tuning budget for all, chosen without true "
        f"labels. Best in bold, second best underlined, among PLL and IDPLL methods with all folds."
    )
    notes = [
        f"★ against the row: win/tie/loss of {star} over the columns, {TEST_NAMES[options.test]} at {ALPHA:g}, raw and "
        f"after Holm's adjustment for {made} tests. Folds share training rows, so these tests reject somewhat too often.",
        note,
        *cells.reading_notes(grid.complete, False),
    ]
    if contents.extensions:
        notes.append("Below the references: extensions, not part of the CEL paper and not ranked.")
    summary = cells.summary_of(contents, accuracy, "realworld-all") | {
        "test": options.test,
        "reference": contents.reference,
        "comparisons": records,
    }
    columns = ("Type", "Method", *(d.title for d in contents.datasets), "Rank", "★ against it", "Holm")
    return Table(
        "All methods on real-world sets",
        caption,
        columns,
        tuple(rows),
        tuple(filter(None, notes)),
        grid.problems(titles),
        tuple(data),
        summary,
        grid.complete,
        text_columns=2,
    )


def outcomes(records: list[dict[str, Any]], key: str) -> str:
    """Win/tie/loss over the columns; what could not be compared is counted apart."""
    import numpy as np

    from benchmark.analysis import statistics as st
    from benchmark.exhibits.parts.cells import counts_text

    if not records:
        return NONE
    counted, missing = st.win_tie_loss(np.array([[record[key] for record in records]]), [0] * len(records))
    return counts_text(counted[-1, -1], int(missing[-1, -1]))


def average_ranks(runs: pd.DataFrame, contents: Contents, options: RealworldAll.Options) -> tuple[dict[str, str], str]:
    """The average rank of every ranked method over the complete columns, and Friedman's test in a sentence."""
    from benchmark.analysis.comparisons import rank_analysis
    from benchmark.errors import MissingRuns

    try:
        found = rank_analysis(runs, contents, accuracy=by_word(options.accuracy))
    except MissingRuns:
        return {}, ""
    if len(found.datasets) < 2:
        return {}, ""
    test = found.friedman
    ranks = {name: f"{rank:.2f}" for name, rank in zip(found.names, test.average_ranks, strict=True)}
    return ranks, (
        f"Rank: average over {len(found.datasets)} columns; Friedman p = {test.p_iman_davenport:.2g}; two methods differ at 0.05 when "
        f"their ranks are {test.critical_difference:.2f} apart (Nemenyi). Columns of one set under two models are not "
        f"independent."
    )
