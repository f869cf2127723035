"""Accuracy under other rules for choosing the epoch, beside the last one; the oracle is among them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from benchmark.accuracy import ACCURACIES
from benchmark.exhibits.base import Exhibit, Inputs, NoFlags
from benchmark.exhibits.parts.style import canvas, nothing, styled

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from benchmark.analysis.contents import Contents


class Rules(Exhibit):
    name, title, kind = "selection", "the comparison of rules for choosing the epoch", "figure"
    of_paper = False

    def make(self, inputs: Inputs, options: NoFlags) -> Figure:
        return rules(inputs.runs, inputs.contents)


@styled
def rules(runs: pd.DataFrame, contents: Contents) -> Figure:
    """Draw by how much each rule differs from the last epoch's accuracy, mean over seeds.

    A panel per dataset; methods are ordered by the last epoch's accuracy, which stands beside the name.
    """
    import numpy as np

    from benchmark.analysis.comparisons import relevant

    own = relevant(runs, contents)
    titles = {m.name: m.title for m in contents.methods}
    own = own[(own["status"] == "done") & (own["label"] == own["method"]) & own["method"].isin(list(titles))]
    if own.empty:
        raise nothing("the selection rules")
    datasets = [d for d in contents.datasets if (own["dataset"] == d.name).any()]
    columns = min(3, len(datasets))
    rows = math.ceil(len(datasets) / columns)
    most = own.groupby("dataset")["method"].nunique().max()
    figure, grid = canvas(rows, columns, 3.5 * columns + 0.6, (0.22 * most + 1.1) * rows + 0.3)
    for axes, d in zip(grid.flat, datasets, strict=False):
        here = own[own["dataset"] == d.name]
        shown = [rule for rule in ACCURACIES if here["epochs"].max() >= rule.fewest]
        means = here.groupby("method")[[rule.key for rule in shown]].mean().sort_values("accuracy")
        gain = means.sub(means["accuracy"], axis=0)
        y = np.arange(len(means))
        axes.axvline(0, color="#777777", linewidth=0.9, zorder=1)
        axes.hlines(y, gain.min(axis=1), gain.max(axis=1), color="#BBBBBB", linewidth=1, zorder=2)
        for rule in shown:
            hollow = rule.mark in "^s"
            face = {"facecolors": "none", "edgecolors": rule.colour} if hollow else {"color": rule.colour}
            look = {"marker": rule.mark, "s": 60 if rule.mark == "|" else 22, "linewidths": 1.3, **face}
            axes.scatter(gain[rule.key], y, label=rule.legend, zorder=3, **look)
        axes.set_yticks(y, [f"{titles[str(m)]}  {v:.1f}" for m, v in means["accuracy"].items()], fontsize=8)
        axes.grid(axis="y", visible=False)
        axes.set_title(d.title, fontsize=10, loc="left")
        axes.set_xlabel("Points above the last epoch")
    for axes in list(grid.flat)[len(datasets) :]:
        axes.set_visible(False)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(5, 2 * columns - 1), fontsize=8)
    return figure
