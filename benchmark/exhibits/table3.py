"""Table 3: win/tie/loss of one method against every other, by group of datasets; or derived from the published Table 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmark.accuracy import LAST, Accuracy, by_word
from benchmark.analysis.contents import MARGIN, REFERENCE, TEST_NAMES, Contents
from benchmark.analysis.table import NONE, Cell, Row, Table, row
from benchmark.errors import UsageError
from benchmark.exhibits.base import (
    Exhibit,
    Inputs,
    Output,
    RequiredRuns,
    accuracy_flag,
    changed_options,
    competing_methods,
    reference_flag,
)
from benchmark.flags import flag

if TYPE_CHECKING:
    import pandas as pd

    from benchmark.config.selection import Selection


class Table3(Exhibit):
    name, title, kind = "table3", "Table 3", "table"

    @dataclass(frozen=True)
    class Options:
        accuracy: str = accuracy_flag()
        reference: str | None = reference_flag("the method that is compared with the others")
        test: str = flag("paired", "significance test over seeds", choices=tuple(TEST_NAMES))
        from_paper: bool = flag(False, "derive it from the published Table 2, without runs", hidden=True)

    def required_runs(self, selection: Selection, options: Options) -> RequiredRuns:
        """Raise UsageError unless the reference has something to be compared with."""
        reference = options.reference or REFERENCE
        if reference not in selection.methods:
            raise UsageError(
                f"--reference {reference} is not among the methods of this table; take one of "
                f"{', '.join(selection.methods)}, or add it to --methods."
            )
        if not set(competing_methods(selection)) - {reference}:
            raise UsageError(
                f"There is nothing to compare {reference} with; name a second method in --methods (controls, "
                f"references and extensions are not ranked)."
            )
        return super().required_runs(selection, options)

    def make(self, inputs: Inputs, options: Options) -> Table:
        contents = inputs.compared_with(options.reference)
        return inputs.with_notes(table3(inputs.runs, contents, options.test, by_word(options.accuracy)))

    def without_runs(self, options: Options) -> Output | None:
        if not options.from_paper:
            return None
        others = [name for name in changed_options(options) if name != "from_paper"]
        if others:
            raise UsageError(f"--{others[0]} does not go with --from-paper: the published numbers are all there is.")
        return Output(table3_from_paper(), "published", "table3-from-paper")


def table3(runs: pd.DataFrame, contents: Contents, test: str = "paired", accuracy: Accuracy = LAST) -> Table:
    """Count wins, ties and losses of the contents' reference against every other main method."""
    from benchmark.analysis import statistics as st
    from benchmark.analysis.comparisons import ALPHA, compare_runs, mixture_notes, relevant, unscored_datasets
    from benchmark.exhibits.parts import cells

    reference, titles = contents.reference, contents.titles
    others = [m for m in contents.main_methods if m.name != reference]
    records = compare_runs(runs, contents, test, accuracy)
    groups, raw, holm, missing = count_outcomes(records, {d.name: d.group for d in contents.datasets})
    several = len(groups) > 2  # the line of a single group would only repeat the total
    rows = [
        row(name, *map(cells.counts_text, raw[g], missing[g]), rule=several and name == "Total")
        for g, name in enumerate(groups)
        if several or name == "Total"
    ]
    split = [ties([r for r in records if r["method"] == m.name]) for m in others]
    rows.append(row("ties: equal/undecided", *split, ties(records)))
    rows.append(row("Total, Holm", *map(cells.counts_text, holm[-1], missing[-1])))
    words = {st.WIN: "win", st.TIE: "tie", st.LOSS: "loss"}
    for d in contents.datasets:
        here = {r["method"]: r for r in records if r["dataset"] == d.name}
        texts = [
            f"{words[o]} {here[m.name]['p']:.2g}" if (o := here[m.name]["outcome"]) in words else NONE for m in others
        ]
        rows.append(row(f"{d.title}, p", *texts, "", rule=d is contents.datasets[0]))
    family = sum(r["outcome"] != st.MISSING for r in records)
    caption = (
        f"{accuracy.warning}Win/tie/loss of {titles[reference]} against each method on test accuracy {accuracy.caption} "
        f"({TEST_NAMES[test]}, n = {len(contents.seeds)}, α = {ALPHA:g})."
    )
    limits = cells.test_limits(test, len(contents.seeds), ALPHA)
    notes = [
        f"{limits[0].upper()}{limits[1:]}.{detectable_text(records)}",
        f"Equal ties: a difference beyond ±{MARGIN:g} points is ruled out (two one-sided tests); other ties are undecided.",
        f"Holm: corrected for the {family} tests of this table; p-values in the lower part are uncorrected.",
    ]
    notes += notes_of(records, titles, test, len(contents.seeds)) + cells.split_note(contents)
    of_table = relevant(runs, contents)
    notes += mixture_notes(of_table[of_table["label"] == of_table["method"]])
    unscored = ", ".join(d.title for d in contents.datasets if d.name in unscored_datasets(of_table))
    if unscored:
        notes.append(
            f"{unscored}: no test row has a true label, so nothing is compared; see `table2` for covering rates."
        )
    summary = cells.summary_of(contents, accuracy, "table3") | {
        "test": test,
        "alpha": ALPHA,
        "margin": MARGIN,
        "reference": reference,
        "family": family,
        "missing": int(missing[-1, -1]),
        "total": raw[-1, -1].tolist(),
        "total_holm": holm[-1, -1].tolist(),
    }
    complete = all(r["n"] == r["expected"] for r in records)
    columns = ("", *(m.title for m in others), "Total")
    return Table(
        "Table 3", caption, columns, rows, notes, (), records, summary, complete, origin=cells.origin(contents)
    )


def count_outcomes(
    records: Sequence[Mapping[str, Any]], group_of: Mapping[str, str]
) -> tuple[list[str], Any, Any, Any]:
    """Count win/tie/loss by group and method, (G+1, M+1, 3), totals last: raw, after Holm, and missing (G+1, M+1).

    Records come method by method, in the order of the datasets of `group_of`.
    """
    import numpy as np

    from benchmark.analysis import statistics as st

    groups = list(dict.fromkeys(group_of.values()))
    ids = [groups.index(group) for group in group_of.values()]
    outcomes = [np.reshape([r[key] for r in records], (-1, len(ids))) for key in ("outcome", "outcome_holm")]
    (raw, missing), (holm, _) = (st.win_tie_loss(codes, ids) for codes in outcomes)
    return [*groups, "Total"], raw, holm, missing


def ties(records: Sequence[Mapping[str, Any]]) -> str:
    """Return how many ties are equal and how many undecided."""
    verdicts = [r["verdict"] for r in records]
    return f"{verdicts.count('equal')}/{verdicts.count('undecided')}"


def detectable_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Give the minimum detectable difference; nothing where the seeds have no spread."""
    import numpy as np

    from benchmark.analysis.statistics import POWER

    differences = [(r["detectable"], r["detectable_holm"]) for r in records if r["detectable"] == r["detectable"]]
    if not differences:
        return ""
    # No two accuracies are more than 100 points apart.
    single, adjusted = (">100" if value > 100 else f"{value:.1f}" for value in np.median(differences, axis=0))
    return (
        f" Minimum detectable difference at {100 * POWER:.0f} % power: {single} points in the median comparison, {adjusted} "
        f"after Holm's correction."
    )


def notes_of(records: Sequence[Mapping[str, Any]], titles: Mapping[str, str], test: str, seeds: int) -> list[str]:
    """Say which comparisons are missing, rest on fewer seeds, or look like copies."""
    from benchmark.analysis.comparisons import first_few
    from benchmark.analysis.statistics import MISSING

    def cells(chosen: Sequence[Mapping[str, Any]]) -> str:
        return first_few([f"{titles[r['method']]} on {titles[r['dataset']]}" for r in chosen])

    notes = []
    absent = [r for r in records if r["outcome"] == MISSING]
    if absent:
        notes.append(f"?k and {NONE}: comparisons without enough seeds; they are not ties ({cells(absent)}).")
    short = [r for r in records if r["outcome"] != MISSING and r["n"] < seeds]
    if short:
        notes.append(f"Warning: fewer than {seeds} seeds on both sides: {cells(short)}.")
    flat = [r for r in records if "zero_variance" in r["flags"]]
    if flat:
        notes.append(
            f"Warning: all seeds have the same difference in {cells(flat)}; are these runs copies of each other?"
        )
    if test in ("student", "welch"):
        notes.append("The two samples are treated as independent although the runs share seeds.")
    return notes


# From the published Table 2 -------------------------------------------------------------------------------------------
def table3_from_paper() -> Table:
    """Derive Table 3 from the published Table 2, beside the printed one, with the cells that differ."""
    from benchmark.analysis import published
    from benchmark.analysis.comparisons import ALPHA
    from benchmark.exhibits.parts.cells import counts_text

    records = published_records()
    methods = list(dict.fromkeys(r["method"] for r in records))
    groups, raw, holm, _ = count_outcomes(records, {r["dataset"]: r["group"] for r in records})
    published_rows = published.load("table3").to_dict("records")
    printed = {(r["group"], r["method"]): (r["win"], r["tie"], r["loss"]) for r in published_rows}
    rows: list[Row] = []
    notes: list[str] = []
    for g, group in enumerate(groups):
        derived = dict(zip([*methods, "Total"], raw[g].tolist(), strict=True))
        differs = {m: tuple(derived[m]) != printed[group, m] for m in derived}
        rows.append(row(f"{group}, printed", *(counts_text(printed[group, m]) for m in derived), rule=g > 0))
        rows.append(row(f"{group}, derived", *(Cell(counts_text(derived[m]), bold=differs[m]) for m in derived)))
        for m in methods if group != "Total" else ():
            if differs[m]:
                tests = ", ".join(
                    f"{r['dataset']} t={r['t']:.2f} p={r['p']:.3f}"
                    for r in records
                    if (r["method"], r["group"]) == (m, group)
                )
                counts = f"printed {counts_text(printed[group, m])}, derived {counts_text(derived[m])}"
                notes.append(f"{m}, {group}: {counts} ({tests}).")
    rows.append(row("Total, Holm", *map(counts_text, holm[-1]), rule=True))
    notes.append(f"Standard deviations are read in their sample form. Holm: corrected for {len(records)} tests.")
    total = counts_text(raw[-1, -1])
    notes.append(f"In all: printed {counts_text(printed['Total', 'Total'])}, derived {total}.")
    notes.append(
        "It is unknown which test the paper used: no reading of its Table 2 gives its Table 3. A two-sided paired test is "
        "excluded, because it allows 65 wins at most."
    )
    caption = (
        f"Win/tie/loss of CEL from published means and standard deviations ({TEST_NAMES['student']}, n = 3, α = {ALPHA:g}), "
        f"beside the printed counts; differing counts in bold."
    )
    summary = {
        "table": "table3",
        "source": "published Table 2",
        "test": "student",
        "alpha": ALPHA,
        "std_ddof": 1,
        "printed": list(printed["Total", "Total"]),
        "derived": raw[-1, -1].tolist(),
        "derived_holm": holm[-1, -1].tolist(),
    }
    title = "Table 3 derived from the published Table 2"
    return Table(title, caption, ("", *methods, "Total"), rows, notes, (), records, summary)


def published_records() -> list[dict[str, Any]]:
    """Compare CEL with every other published cell, method by method, with Holm's adjustment over all of them."""
    from benchmark.analysis import published
    from benchmark.analysis import statistics as st
    from benchmark.analysis.comparisons import add_holm

    table, groups = published.load("table2"), published.load("table1").set_index("dataset")["group"]
    others = table[table["method"] != "CEL"].reset_index(drop=True)
    ours = table[table["method"] == "CEL"].set_index("dataset").loc[others["dataset"]].reset_index()
    tested = st.unpaired_t(*(side[column] for side in (ours, others) for column in ("mean", "std", "n")))
    compared = others[["method", "dataset"]].assign(
        reference="CEL", group=others["dataset"].map(groups), mean_difference=ours["mean"] - others["mean"], **tested
    )
    records = [{str(key): value for key, value in record.items()} for record in compared.to_dict("records")]
    add_holm(records)
    return records
