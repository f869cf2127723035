"""The critical-difference diagram: average ranks of the methods over the datasets, and which differ significantly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmark.analysis.contents import LEAST_DATASETS
from benchmark.errors import MissingRuns, UsageError
from benchmark.exhibits.base import Exhibit, Inputs, RequiredRuns, rank_all_flag, reference_flag, with_options
from benchmark.exhibits.parts.style import canvas, style_of, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmark.analysis.comparisons import RankAnalysis
    from benchmark.config.selection import Selection


class Ranks(Exhibit):
    name, title, kind = "ranks", "Average ranks", "plot"

    @dataclass(frozen=True)
    class Options:
        rank_all: bool = rank_all_flag()
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

        return critical_difference(rank_analysis(inputs.runs, with_options(inputs.contents, options)))


@styled
def critical_difference(ranks: RankAnalysis) -> Figure:
    """Draw average ranks on an axis, best at the left; a bar joins methods that Nemenyi's test cannot distinguish.

    Raises MissingRuns with fewer datasets than such a test needs.
    """
    import numpy as np

    if len(ranks.datasets) < LEAST_DATASETS:
        missing = f"; incomplete: {', '.join(ranks.incomplete)}" if ranks.incomplete else ""
        raise MissingRuns(
            f"Ranks need at least {LEAST_DATASETS} datasets on which all methods have all seeds, and there are "
            f"{len(ranks.datasets)}{missing}."
        )
    average, k = ranks.friedman.average_ranks, len(ranks.names)
    order = np.argsort(average, kind="stable")
    half = math.ceil(k / 2)
    depth = 0.45 + 0.3 * len(ranks.groups)
    bottom = depth + 0.42 * half + 0.5
    figure, grid = canvas(1, 1, 8.0, 1.4 + 0.42 * (bottom + 0.6))
    axes = grid[0, 0]
    axes.set_axis_off()
    margin = 0.23 * k
    axes.set_xlim(1 - margin, k + margin)
    axes.set_ylim(bottom, -1.5)
    axes.plot([1, k], [0, 0], color="black", linewidth=1)
    for tick in range(1, k + 1):
        axes.plot([tick, tick], [0, -0.12], color="black", linewidth=0.8)
        axes.text(tick, -0.2, str(tick), ha="center", va="bottom", fontsize=8)
    cd = ranks.friedman.critical_difference
    shown = min(cd, k - 1)
    axes.plot([1, 1 + shown], [-0.95, -0.95], color="black", linewidth=1.6, marker="|", markersize=7)
    text = f"critical difference {cd:.2f}" + (" (longer than the axis)" if cd > k - 1 else "")
    axes.text(1 + shown / 2, -1.08, text, ha="center", va="bottom", fontsize=8)
    for b, bar in enumerate(ranks.groups):
        own, y = average[bar.astype(bool)], 0.35 + 0.3 * b
        ends = [own.min() - 0.06, own.max() + 0.06]
        axes.plot(ends, [y, y], color="#444444", linewidth=3, solid_capstyle="round")
    for place, i in enumerate(order):
        left = place < half
        y = depth + 0.42 * (place if left else k - 1 - place) + 0.3
        edge = 1 - 0.03 * k if left else k + 0.03 * k
        style = style_of(ranks.names[i])
        axes.plot([average[i], average[i], edge], [0, y, y], color=style.colour, linewidth=1)
        mark: dict[str, Any] = {"marker": style.marker, "markersize": 4.5, "markerfacecolor": "white"}
        axes.plot([average[i]], [0], color=style.colour, **mark)
        label = f"{ranks.titles[i]}  {average[i]:.2f}" if left else f"{average[i]:.2f}  {ranks.titles[i]}"
        weight = "bold" if ranks.names[i] == ranks.reference else "normal"
        font: dict[str, Any] = {"color": style.colour, "fontsize": 8.5, "fontweight": weight, "va": "center"}
        axes.text(edge + (-0.1 if left else 0.1), y, label, ha="right" if left else "left", **font)
    note = f"Average rank over {len(ranks.datasets)} data sets (1 = best); Nemenyi at {ranks.alpha:g}; "
    note += f"Friedman p = {ranks.friedman.p_tie_corrected:.2g}"
    if ranks.incomplete:
        note += f"; left out as incomplete: {', '.join(ranks.incomplete)}"
    note += "\nRanks depend on who is in the diagram: another method added or left out can change who is told apart"
    axes.set_title(note, fontsize=8.5, loc="left")
    return figure
