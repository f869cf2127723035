"""Every comparison of the reference in full: the difference, what it shows, what could have been found, and the test rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmark.accuracy import by_word
from benchmark.analysis.contents import TEST_NAMES, Contents
from benchmark.analysis.table import NONE, Row, Table, row
from benchmark.exhibits.base import Exhibit, Material, Need, OfEvidence

if TYPE_CHECKING:
    from benchmark.analysis.rows import Kept
    from benchmark.plan.selection import Selection

VERDICTS = {"better": "better", "worse": "worse", "equal": "equal", "undecided": "undecided", "missing": NONE}


class Comparisons(Exhibit):
    name, title, kind = "comparisons", "the table of all comparisons", "table"
    of_paper = False
    Options = OfEvidence

    def runs(self, selection: Selection, options: OfEvidence) -> Need:
        options.check(selection)
        need = Need()
        need.add(selection.specs())
        return need

    def make(self, material: Material, options: OfEvidence) -> Table:
        from benchmark.analysis.comparisons import compare_runs
        from benchmark.analysis.rows import add_rows, kept

        contents = replace(material.ranked(options), reference=options.reference)
        records = compare_runs(material.runs, contents, options.test, by_word(options.accuracy), margin=options.margin)
        found = kept(material.need.specs, material.runs, material.place.data)
        add_rows(records, found)
        return material.annotated(table(records, contents, options, found))


def table(records: Sequence[Mapping[str, Any]], contents: Contents, options: OfEvidence, found: Kept) -> Table:
    """One line per method and data set, the methods parted by rules."""
    from benchmark.analysis.comparisons import ALPHA
    from benchmark.exhibits.parts import cells

    accuracy, titles = by_word(options.accuracy), contents.titles
    lines: list[Row] = []
    for k, r in enumerate(records):
        new = k == 0 or r["method"] != records[k - 1]["method"]
        lines.append(
            row(
                titles[r["method"]] if new else "",
                titles[r["dataset"]],
                cells.points_text(r["mean_difference"]),
                cells.range_text(r["ci_low"], r["ci_high"]),
                cells.p_text(r["p"]),
                cells.p_text(r["p_holm"]),
                VERDICTS[r["verdict"]],
                cells.found_text(r["detectable"]),
                cells.found_text(r["detectable_holm"]),
                cells.share_text(r["p_better"], r["p_better_low"], r["p_better_high"]),
                cells.range_text(r["rows_low"], r["rows_high"]),
                NONE if not r["mcnemar_p"] else f"{r['mcnemar_significant']}/{len(r['mcnemar_p'])}",
                rule=new and k > 0 and len(contents.datasets) > 1,
            )
        )
    reference = titles[contents.reference]
    caption = (
        f"{cells.warned(accuracy)}{reference} against each method, difference in points of test accuracy "
        f"{accuracy.caption}, {cells.seeds_text(contents)}: {TEST_NAMES[options.test]} at {ALPHA:g}; "
        f"{cells.test_limits(options.test, len(contents.seeds), ALPHA)}. "
        f"Profile {contents.profile}, device {contents.device}."
    )
    notes = [
        f"better, worse: a difference was found; equal: one beyond ±{options.margin:g} points is ruled out; undecided: "
        f"neither. The paper counts equal and undecided as ties.",
        "Would find: the smallest true difference that this test finds with probability 0.8 if the spread seen is the "
        "true one, alone and after Holm."
        + (" Not known for Wilcoxon's test, whose interval is the paired t-test's." * (options.test == "wilcoxon")),
        f"P(win): probability that {reference} is ahead on a new seed, with its 95 % bootstrap interval; where all seeds "
        "agree, Clopper and Pearson's.",
        *found.notes(titles),
        *cells.split_note(contents),
        *missing_notes(records, titles),
    ]
    columns = (
        *("Against", "Data set", "Difference", "95 % over seeds", "p", "p Holm", "Verdict", "Would find", "after Holm"),
        *("P(win)", "95 % over test rows", "McNemar"),
    )
    summary = cells.summary_of(contents, accuracy, "comparisons") | {
        "test": options.test,
        "alpha": ALPHA,
        "margin": options.margin,
        "reference": contents.reference,
        "family": sum(not math.isnan(r["p"]) for r in records),
    }
    complete = all(r["n"] == r["expected"] for r in records)
    return Table("Comparisons", caption, columns, tuple(lines), tuple(notes), (), tuple(records), summary, complete, 2)


def missing_notes(records: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> list[str]:
    """Why a line is empty or odd, one sentence each."""
    from benchmark.analysis.statistics import MISSING
    from benchmark.exhibits.parts.cells import named_cells

    notes = []
    absent = [r for r in records if r["outcome"] == MISSING]
    if absent:
        notes.append(f"{NONE}: fewer than two common seeds, so no test: {named_cells(absent, titles)}.")
    unequal = [r for r in records if r["outcome"] != MISSING and r["n"] < r["expected"]]
    if unequal:
        notes.append(f"Warning: not all seeds are there on both sides: {named_cells(unequal, titles)}.")
    flat = [r for r in records if "zero_variance" in r["flags"]]
    if flat:
        notes.append(
            f"Warning: seeds make no difference in {named_cells(flat, titles)}, so no spread; are these runs copies?"
        )
    return notes
