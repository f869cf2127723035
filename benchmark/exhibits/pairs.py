"""Every method against every other over all data sets at once, by Wilcoxon's signed-rank test with Holm over all pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmark.accuracy import by_word
from benchmark.analysis.contents import Contents
from benchmark.analysis.table import Cell, Table, row
from benchmark.errors import UsageError
from benchmark.exhibits.base import Exhibit, Material, Need, OfPairs

if TYPE_CHECKING:
    from benchmark.analysis.overall import Pairs
    from benchmark.plan.selection import Selection


class AllPairs(Exhibit):
    name, title, kind = "pairs", "the table of all pairs of methods", "table"
    of_paper = False
    Options = OfPairs

    def runs(self, selection: Selection, options: OfPairs) -> Need:
        if len(options.competing(selection)) < 2:
            raise UsageError(
                "A pair needs two methods; name a second one in --methods (controls, references and extensions are not "
                "ranked)."
            )
        need = Need()
        need.add(selection.specs())
        return need

    def make(self, material: Material, options: OfPairs) -> Table:
        from benchmark.analysis.overall import all_pairs

        contents = material.ranked(options)
        return material.annotated(
            table(all_pairs(material.runs, contents, by_word(options.accuracy)), contents, options)
        )


def table(found: Pairs, contents: Contents, options: OfPairs) -> Table:
    """A square, the best average first: differences above the diagonal, p below it."""
    from benchmark.analysis.comparisons import ALPHA
    from benchmark.analysis.overall import left_out, signed_rank_limit
    from benchmark.exhibits.parts import cells

    accuracy, titles = by_word(options.accuracy), contents.titles
    by_pair = {(r["method"], r["other"]): r for r in found.records}

    def cell(line: str, column: str) -> Cell:
        if line == column:
            return Cell("·")
        above = (line, column) in by_pair
        own = by_pair[(line, column) if above else (column, line)]
        shown = f"{own['mean_difference']:.1f}" if above else cells.p_text(own["p"])
        return Cell(shown, bold=own["p_holm"] <= ALPHA)

    lines = [row(titles[name], *(cell(name, other) for other in found.names)) for name in found.names]
    caption = (
        f"{cells.warned(accuracy)}Test accuracy (%) {accuracy.caption}, {cells.seeds_text(contents)}: every pair of methods "
        f"over {', '.join(titles[d] for d in found.datasets)}. "
        f"Profile {contents.profile}, device {contents.device}."
    )
    copies = [f"{titles[r['method']]} and {titles[r['other']]}" for r in found.records if r["equal"] == r["n"]]
    notes = [
        "Above the diagonal: average of the line minus that of the column (points). Below: p of Wilcoxon's signed-rank test "
        "over data sets, of these two methods alone. Bold: significant after Holm over all pairs. "
        + signed_rank_limit(len(found.datasets), len(found.records), ALPHA),
        "The CSV has a line per pair: data sets won, equal and lost, and p after Holm.",
        *left_out(found.dropped, titles),
        *(f"Warning: {pair} have the same mean on every data set, p is 1; are these runs copies?" for pair in copies),
    ]
    summary = cells.summary_of(contents, accuracy, "pairs") | {
        "alpha": ALPHA,
        "datasets": list(found.datasets),
        "least_p": found.least,
        "least_p_holm": found.least_holm,
    }
    columns = ("Method", *(titles[name] for name in found.names))
    return Table(
        "All pairs", caption, columns, tuple(lines), tuple(notes), (), found.records, summary, not found.dropped
    )
