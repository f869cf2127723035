"""Accuracy against the values of a parameter, mean and range over seeds. matplotlib is imported on first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmark.exhibits.parts.style import RC, canvas, nothing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#882255")  # by data set


def sensitivity(
    points: pd.DataFrame, parameters: Mapping[str, str], datasets: Mapping[str, str], defaults: Mapping[str, float]
) -> Figure:
    """Small multiples: a row per data set, a column per parameter, mean and range over seeds; the default is filled.

    `parameters` and `datasets` map names to titles. Values are evenly spaced: they were chosen as a grid.
    """
    points = points[points["parameter"].isin(list(parameters)) & points["dataset"].isin(list(datasets))]
    if points.empty:
        raise nothing("sensitivity")
    from matplotlib import rc_context

    figure, grid = canvas(
        len(datasets), len(parameters), 2.1 * len(parameters) + 1.0, 2.1 * len(datasets) + 0.4, sharey="row"
    )
    with rc_context(RC):
        for r, (dataset, dataset_title) in enumerate(datasets.items()):
            for c, (parameter, parameter_title) in enumerate(parameters.items()):
                axes = grid[r, c]
                own = points[(points["dataset"] == dataset) & (points["parameter"] == parameter)]
                _draw_sensitivity(axes, own, COLOURS[r % len(COLOURS)], defaults.get(parameter))
                axes.grid(axis="x", visible=False)
                if r == len(datasets) - 1:
                    axes.set_xlabel(parameter_title)
            grid[r, 0].set_ylabel(f"{dataset_title}\naccuracy (%)")
    return figure


def _draw_sensitivity(axes: Axes, own: pd.DataFrame, colour: str, default: float | None) -> None:
    if own.empty:
        axes.text(0.5, 0.5, "no runs", transform=axes.transAxes, ha="center", color="#777777")
        axes.set_xticks([])
        return
    numbers = all(isinstance(value, int | float) for value in own["value"])
    stats = own.groupby("value", sort=numbers)["accuracy"].agg(["mean", "min", "max"])  # words as they were named
    x = np.arange(len(stats))
    below, above = stats["mean"] - stats["min"], stats["max"] - stats["mean"]
    axes.errorbar(
        x, stats["mean"], yerr=[below, above], color=colour, linewidth=1.4, capsize=2.5, elinewidth=0.9, zorder=3
    )
    fill = [colour if v == default else "white" for v in stats.index]
    axes.scatter(x, stats["mean"], s=26, c=fill, edgecolors=colour, linewidths=1.2, zorder=4)
    axes.set_xticks(x, [f"{v:g}" if isinstance(v, int | float) else str(v) for v in stats.index])
    axes.set_xlim(-0.4, len(stats) - 0.6)


def one_parameter(
    points: pd.DataFrame, parameter: str, title: str, datasets: Mapping[str, str], default: float
) -> Figure:
    """One parameter, a panel per data set; the default is filled."""
    points = points[(points["parameter"] == parameter) & points["dataset"].isin(list(datasets))]
    if points.empty:
        raise nothing(title)
    from matplotlib import rc_context

    figure, grid = canvas(1, len(datasets), 3.3 * len(datasets) + 0.3, 2.7)
    with rc_context(RC):
        for k, (dataset, dataset_title) in enumerate(datasets.items()):
            axes = grid[0, k]
            _draw_sensitivity(axes, points[points["dataset"] == dataset], COLOURS[k % len(COLOURS)], default)
            axes.grid(axis="x", visible=False)
            axes.set_title(dataset_title, fontsize=10, loc="left")
            axes.set_xlabel(title)
        grid[0, 0].set_ylabel("Test accuracy (%)")
    return figure
