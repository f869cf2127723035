"""Every pair of methods over all datasets: difference with intervals, P(A > B), Wilcoxon's test with Holm's correction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmark.accuracy import by_word
from benchmark.analysis.contents import LEAST_DATASETS, Contents
from benchmark.analysis.table import NONE, Cell, Row, Table, row
from benchmark.errors import UsageError
from benchmark.exhibits.base import Exhibit, Inputs, RequiredRuns, accuracy_flag, competing_methods
from benchmark.flags import flag
from datasets.base import plural

if TYPE_CHECKING:
    import pandas as pd

    from benchmark.config.selection import Selection

COLUMNS = ("A", "B", "A − B", "95 %, t", "95 %, bootstrap", "P(A > B)", "Ahead/equal/behind", "p", "p Holm")


class Comparisons(Exhibit):
    name, title, kind = "comparisons", "the table of all pairs of methods", "table"
    of_paper = False

    @dataclass(frozen=True)
    class Options:
        accuracy: str = accuracy_flag()
        reference: str | None = flag(None, "only the pairs with this method", metavar="METHOD")

    def required_runs(self, selection: Selection, options: Options) -> RequiredRuns:
        competing = competing_methods(selection)
        if len(competing) < 2:
            raise UsageError(
                "A comparison needs two methods; name a second one in --methods (controls, references and extensions are "
                "not ranked)."
            )
        if options.reference is not None and options.reference not in competing:
            raise UsageError(f"--reference {options.reference} is not ranked here; take one of {', '.join(competing)}.")
        return super().required_runs(selection, options)

    def make(self, inputs: Inputs, options: Options) -> Table:
        return inputs.with_notes(comparison_table(inputs.runs, inputs.contents, options))


def comparison_table(runs: pd.DataFrame, contents: Contents, options: Comparisons.Options) -> Table:
    """Build one line per pair, the pairs of one method below each other."""
    from benchmark.analysis.comparisons import ALPHA, compare_pairs
    from benchmark.exhibits.parts import cells

    accuracy, titles = by_word(options.accuracy), contents.titles
    records, datasets, incomplete = compare_pairs(runs, contents, accuracy, options.reference)
    lines: list[Row] = []
    for k, r in enumerate(records):
        new = k == 0 or r["method"] != records[k - 1]["method"]
        lines.append(
            row(
                titles[r["method"]] if new else "",
                titles[r["other"]],
                cells.signed(r["mean_difference"]),
                cells.range_text(r["ci_low"], r["ci_high"]),
                cells.range_text(r["bootstrap_low"], r["bootstrap_high"]),
                f"{r['p_better']:.2f} ({r['p_better_low']:.2f}–{r['p_better_high']:.2f})",
                f"{r['ahead']}/{r['equal']}/{r['behind']}",
                p_text(r["p"]),
                Cell(p_text(r["p_holm"]), bold=r["p_holm"] <= ALPHA),
                rule=new and k > 0,
            )
        )
    caption = (
        f"{accuracy.warning}Pairs of methods: difference in test accuracy (points) {accuracy.caption}, mean over "
        f"{', '.join(titles[name] for name in datasets)} and {plural(len(contents.seeds), 'seed')}."
    )
    summary = cells.summary_of(contents, accuracy, "comparisons") | {
        "alpha": ALPHA,
        "reference": options.reference,
        "datasets": list(datasets),
        "family": sum(not math.isnan(r["p"]) for r in records),
    }
    notes = reading_notes(records, datasets, incomplete, contents)
    content = (COLUMNS, lines, notes, (), records, summary, not incomplete)
    return Table("Comparisons", caption, *content, text_columns=2, origin=cells.origin(contents))


def p_text(p: float) -> str:
    return NONE if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def reading_notes(
    records: Sequence[Mapping[str, Any]], datasets: Sequence[str], incomplete: Sequence[str], contents: Contents
) -> list[str]:
    """Explain the columns and name what is missing or suspicious."""
    from benchmark.exhibits.parts import cells

    titles, seeds = contents.titles, len(contents.seeds)
    notes = [
        "95 %, t: t interval over seeds of the difference averaged over datasets. 95 %, bootstrap: seeds resampled within "
        "each dataset; too narrow with few seeds. Both hold for these datasets, not for new ones.",
        "P(A > B): probability that A is ahead of B on a new seed of one of these datasets, with its 95 % bootstrap "
        "interval (Clopper and Pearson's where the seeds of every dataset agree).",
        "Ahead/equal/behind: datasets on which the mean of A is higher than, equal to or lower than that of B.",
        signed_rank_note(len(datasets), len(records)),
        *cells.split_note(contents),
    ]
    if seeds < 2:
        notes.append("With one seed there are no intervals over seeds.")
    if incomplete:
        listed = ", ".join(titles[name] for name in incomplete)
        notes.append(f"Incomplete: left out because not all methods have all seeds there: {listed}.")
    copies = [f"{titles[r['method']]} and {titles[r['other']]}" for r in records if r["equal"] == r["n"]]
    notes += [f"Warning: {pair} have the same mean on every dataset; are these runs copies?" for pair in copies]
    return notes


def signed_rank_note(datasets: int, tests: int) -> str:
    """State what Wilcoxon's test can show over this number of datasets."""
    from benchmark.analysis.comparisons import ALPHA

    if datasets < LEAST_DATASETS:
        return (
            f"p is not given: Wilcoxon's signed-rank test over datasets needs at least {LEAST_DATASETS} datasets, and this "
            f"table has {datasets}."
        )
    least = 2.0 ** (1 - datasets)
    adjusted = min(1.0, least * tests)
    note = (
        f"p: Wilcoxon's signed-rank test over datasets; bold: significant at {ALPHA:g} after Holm's correction for "
        f"{plural(tests, 'pair')}. With {datasets} datasets p is at least {least:.2g}, {adjusted:.2g} after correction"
    )
    if adjusted <= ALPHA:
        return f"{note}."
    needed = math.ceil(1 + math.log2(tests / ALPHA))
    return f"{note}, so nothing can be significant; {needed} datasets are needed."
