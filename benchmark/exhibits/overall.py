"""Every method over all data sets at once: the average with its intervals, and the reference against each of the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmark.accuracy import by_word
from benchmark.analysis.contents import Contents
from benchmark.analysis.table import NONE, Table, row
from benchmark.errors import UsageError
from benchmark.exhibits.base import Exhibit, Material, Need, OfMargin

if TYPE_CHECKING:
    from benchmark.plan.selection import Selection


class Overall(Exhibit):
    name, title, kind = "overall", "the table over all data sets", "table"
    of_paper = False
    Options = OfMargin

    def runs(self, selection: Selection, options: OfMargin) -> Need:
        options.check(selection)
        if options.reference not in options.competing(selection):
            raise UsageError(f"--reference {options.reference} is not ranked, so it has no average to compare.")
        need = Need()
        need.add(selection.specs())
        return need

    def make(self, material: Material, options: OfMargin) -> Table:
        from benchmark.analysis.overall import aggregate

        contents = replace(material.ranked(options), reference=options.reference)
        return material.annotated(
            table(aggregate(material.runs, contents, by_word(options.accuracy), options.margin), contents, options)
        )


def table(found: Any, contents: Contents, options: OfMargin) -> Table:
    """One line per method, the best average first."""
    from benchmark.analysis.comparisons import ALPHA
    from benchmark.analysis.overall import FURTHER, signed_rank_limit
    from benchmark.exhibits.parts import cells

    accuracy, titles, reference = by_word(options.accuracy), contents.titles, contents.titles[contents.reference]
    lines = []
    for r in found.records:
        own = r["method"] == contents.reference
        lines.append(
            row(
                f"★ {titles[r['method']]}" if own else titles[r["method"]],
                f"{r['mean']:.2f}",
                cells.between_text(r["low"], r["high"]),
                cells.between_text(r["new_low"], r["new_high"]),
                cells.points_text(r["difference"]),
                cells.share_text(r["p_better"], r["p_better_low"], r["p_better_high"]),
                cells.p_text(r["p"]),
                cells.p_text(r["p_holm"]),
                shares_text([r[key] for key in FURTHER]),
            )
        )
    caption = (
        f"{cells.warned(accuracy)}Test accuracy (%) {accuracy.caption}, average over {', '.join(titles[d] for d in found.datasets)}, "
        f"{cells.seeds_text(contents)}, and {reference} against each method. "
        f"Profile {contents.profile}, device {contents.device}."
    )
    notes = [
        "95 % these sets: seeds drawn again inside each data set (stratified bootstrap). 95 % new sets: data sets drawn "
        "again too, for a claim beyond these.",
        f"Difference: {reference} minus the method. P(win): probability that {reference} is ahead on a new seed of a data "
        f"set drawn at random, with its 95 % interval.",
        f"p: Wilcoxon's signed-rank test over data sets, of two methods at a time, so that nobody else in the table has a "
        f"say. {signed_rank_limit(len(found.datasets), len(found.records) - 1, ALPHA)} All pairs: `./reproduce.sh pairs`.",
        f"Further set: probabilities that on a further data set {reference} is better, equal within ±{options.margin:g} "
        f"points, worse (hierarchical model over data sets and seeds, see docs/statistics.md).",
        *cells.split_note(contents),
        *found.remarks(titles),
    ]
    columns = (
        *("Method", "Average", "95 % these sets", "95 % new sets", "Difference", "P(win)", "p", "p Holm"),
        "Further set",
    )
    summary = cells.summary_of(contents, accuracy, "overall") | {
        "alpha": ALPHA,
        "margin": options.margin,
        "reference": contents.reference,
        "datasets": list(found.datasets),
        "least_p": found.least,
        "least_p_holm": found.least_holm,
    }
    return Table("Overall", caption, columns, tuple(lines), tuple(notes), (), found.records, summary, found.complete)


def shares_text(shares: Sequence[float]) -> str:
    """Better/equal/worse in percent."""
    return NONE if math.isnan(shares[0]) else "/".join(f"{100 * share:.0f}" for share in shares) + " %"
