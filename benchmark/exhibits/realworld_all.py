"""`realworld --all-methods`: all methods under one protocol, with an MLP and a linear model, without published numbers.

Sizes, folds and the tuning are in the profiles realworld, realworld-all and realworld-all-linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmark.accuracy import LAST
from benchmark.analysis.contents import TEST_NAMES, Contents, DatasetInfo, MethodInfo, contents_of
from benchmark.analysis.table import NONE, Table
from benchmark.config.profile import load_profile
from benchmark.errors import MissingRuns
from benchmark.exhibits.base import Inputs

if TYPE_CHECKING:
    import pandas as pd

    from benchmark.config.selection import Selection

MODELS = {"realworld-all": "MLP", "realworld-all-linear": "linear"}  # profile -> title of its columns


def selections(selection: Selection) -> list[Selection]:
    """Return one selection per model, with the extensions unless methods are named; another profile has one model."""
    profile, methods, apart = selection.profile, selection.methods, selection.apart
    if methods == profile.all_methods:
        methods, apart = profile.with_extensions, profile.extensions
    profiles = [load_profile(name) for name in MODELS] if profile.name in MODELS else [profile]
    return [replace(selection, profile=profile, methods=methods, apart=apart) for profile in profiles]


def runs_of_models(inputs: Inputs) -> tuple[pd.DataFrame, Contents]:
    """Return the runs of all models in one frame, and contents in which every model and dataset is a column."""
    import pandas as pd

    name = inputs.selection.profile.name
    frames, columns = [], []
    for selection in selections(inputs.selection):
        contents = contents_of(selection, inputs.contents.device)
        model = MODELS.get(selection.profile.name, selection.profile.title)
        frame = inputs.runs_of(selection.specs())
        frames.append(frame.assign(dataset=frame["dataset"] + f", {model}", profile=name))
        columns += [DatasetInfo(f"{d.name}, {model}", f"{d.title}, {model}", model) for d in contents.datasets]
    return pd.concat(frames, ignore_index=True), replace(contents, profile=name, datasets=tuple(columns))


def all_methods_table(inputs: Inputs) -> Table:
    """Build the table: accuracies by model and dataset, the average rank, and win/tie/loss against the reference."""
    from benchmark.analysis.comparisons import ALPHA, compare_runs
    from benchmark.exhibits.parts import cells

    runs, contents = runs_of_models(inputs)
    titles = contents.titles
    main = [m.name for m in contents.main_methods]
    grid = cells.grid_of(runs, contents, [m.name for m in contents.methods], main, LAST)
    records = compare_runs(runs, contents)
    ranks, note = average_ranks(runs, contents)

    def summary_cells(method: MethodInfo) -> Sequence[str]:
        against = [record for record in records if record["method"] == method.name]
        return ranks.get(method.name, NONE), outcomes(against, "outcome"), outcomes(against, "outcome_holm")

    rows, data = cells.method_rows(grid, cells.sections_of(contents), more=summary_cells)
    caption = (
        f"{cells.accuracy_caption(contents, LAST)} One protocol and one tuning budget for all methods. Best PLL or IDPLL "
        f"method in bold, second best underlined."
    )
    star = titles.get(contents.reference, contents.reference)
    tests = sum(record["n"] > 1 for record in records)
    notes = [
        "Settings were chosen without true labels.",
        f"★ against it: win/tie/loss of {star} over the columns ({TEST_NAMES['paired']}, α = {ALPHA:g}), uncorrected and with "
        f"Holm's correction for {tests} tests. Folds share training rows, so these tests reject somewhat too often.",
        *note,
        *cells.incomplete_note(grid.complete),
    ]
    if contents.extensions:
        notes.append("Below the references: extensions, not part of the CEL paper and not ranked.")
    compared = {"test": "paired", "reference": contents.reference, "comparisons": records}
    summary = cells.summary_of(contents, LAST, "realworld-all") | compared
    columns = ("Type", "Method", *(d.title for d in contents.datasets), "Rank", "★ against it", "Holm")
    content = (columns, rows, notes, grid.problems(titles), data, summary, grid.complete)
    title = "All methods on real-world datasets"
    return Table(title, caption, *content, text_columns=2, origin=cells.origin(contents))


def outcomes(records: list[dict[str, Any]], key: str) -> str:
    """Return win/tie/loss over the columns; what could not be compared is counted apart."""
    from benchmark.analysis.statistics import LOSS, MISSING, TIE, WIN
    from benchmark.exhibits.parts.cells import counts_text

    codes = [record[key] for record in records]
    return counts_text([codes.count(code) for code in (WIN, TIE, LOSS)], codes.count(MISSING)) if codes else NONE


def average_ranks(runs: pd.DataFrame, contents: Contents) -> tuple[dict[str, str], list[str]]:
    """Return the average rank of every ranked method over the complete columns, and a note on Friedman's test."""
    from benchmark.analysis.comparisons import rank_analysis

    try:
        analysis = rank_analysis(runs, contents)
    except MissingRuns:
        return {}, []
    if len(analysis.datasets) < 2:
        return {}, []
    test = analysis.friedman
    ranks = {name: f"{rank:.2f}" for name, rank in zip(analysis.names, test["average_ranks"], strict=True)}
    return ranks, [
        f"Rank: average over {len(analysis.datasets)} columns; Friedman p = {test['p_iman_davenport']:.2g}; critical difference "
        f"{test['critical_difference']:.2f} (Nemenyi, α = 0.05). Columns of one dataset under two models are not independent."
    ]
