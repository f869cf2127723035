"""The critical-difference diagram: average ranks of the methods over the datasets, and which differ significantly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmark.analysis.contents import LEAST_DATASETS
from benchmark.errors import MissingRuns, UsageError
from benchmark.exhibits.base import Exhibit, Inputs, RequiredRuns, reference_flag
from benchmark.exhibits.parts.style import canvas, footnote, styled, styles_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmark.analysis.comparisons import RankAnalysis
    from benchmark.config.selection import Selection


class Ranks(Exhibit):
    name, title, kind = "ranks", "Average ranks", "plot"

    @dataclass(frozen=True)
    class Options:
        reference: str | None = reference_flag("the method that is printed bold")

    def required_runs(self, selection: Selection, options: Options) -> RequiredRuns:
        many = len(selection.datasets)
        if many < LEAST_DATASETS:
            raise UsageError(
                f"Ranks need at least {LEAST_DATASETS} datasets, and {many} are selected; see `comparisons`."
            )
        return super().required_runs(selection, options)

    def make(self, inputs: Inputs, options: Options) -> Figure:
        from benchmark.analysis.comparisons import rank_analysis

        return critical_difference(rank_analysis(inputs.runs, inputs.compared_with(options.reference)))


@styled()
def critical_difference(ranks: RankAnalysis) -> Figure:
    """Draw average ranks, best on top, with bars as long as Nemenyi's critical difference.

    Raises MissingRuns with fewer datasets than such a test needs.
    """
    from benchmark.analysis.comparisons import ALPHA

    if len(ranks.datasets) < LEAST_DATASETS:
        missing = f"; incomplete: {', '.join(ranks.incomplete)}" if ranks.incomplete else ""
        raise MissingRuns(
            f"Ranks need at least {LEAST_DATASETS} datasets on which all methods have all seeds; "
            f"this is so on {len(ranks.datasets)}{missing}."
        )
    average, difference = ranks.friedman["average_ranks"], ranks.friedman["critical_difference"]
    order = average.argsort(kind="stable")
    figure, grid = canvas(1, 1, 8.0, 1.4 + 0.24 * len(order))
    axes = grid[0, 0]
    styles = styles_of(ranks.names)
    for place, i in enumerate(order):
        style = styles[ranks.names[i]]
        axes.errorbar(average[i], place, xerr=difference / 2, marker=style.marker, color=style.colour, markersize=5)
    axes.set_yticks(range(len(order)), [f"{ranks.titles[i]}  {average[i]:.2f}" for i in order])
    for tick, i in zip(axes.get_yticklabels(), order, strict=True):
        tick.set_fontweight("bold" if ranks.names[i] == ranks.reference else "normal")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.invert_yaxis()
    axes.set_xlabel("Average rank (1 = best)")
    note = (
        f"Over {len(ranks.datasets)} datasets. Bars as long as Nemenyi's critical difference, {difference:.2f} at α = "
        f"{ALPHA:g}: methods whose bars overlap do not differ significantly. Friedman p = "
        f"{ranks.friedman['p_tie_corrected']:.2g}. Adding or removing methods can change which differences are significant."
    )
    if ranks.incomplete:
        note += f" Left out as incomplete: {', '.join(ranks.incomplete)}."
    footnote(figure, note)
    return figure
