"""Panels of accuracy curves with names at the ends of the lines, and of accuracy against a parameter.

Accuracies are in percent. matplotlib is imported on first use; no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from benchmark.analysis.comparisons import relevant
from benchmark.analysis.contents import REFERENCE, Contents
from benchmark.errors import UsageError
from benchmark.exhibits.parts.style import Style, canvas, mean_and_band, nothing, styled, styles_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Curve:
    """One line of a panel: runs with this data set and label, seeds averaged. `style` defaults to the method's."""

    title: str
    dataset: str
    label: str
    style: Style | None = None


@dataclass(frozen=True)
class Panel:
    """One set of axes."""

    title: str
    curves: tuple[Curve, ...]


def series(epochs: pd.DataFrame, curve: Curve, metric: str) -> pd.DataFrame:
    """Return mean, minimum and maximum over seeds of every epoch with a value; an unfinished seed ends where it ends."""
    if metric not in epochs.columns:
        numeric = [c for c in epochs.columns if pd.api.types.is_numeric_dtype(epochs[c]) and c not in ("seed", "epoch")]
        raise UsageError(f"Unknown metric '{metric}'; recorded are {', '.join(sorted(numeric))}.")
    own = epochs[(epochs["dataset"] == curve.dataset) & (epochs["label"] == curve.label)]
    own = own[np.isfinite(own[metric].astype(float))]
    return own.groupby("epoch")[metric].agg(["mean", "min", "max", "count"]).sort_index()


def metric_title(metric: str) -> str:
    """Return the axis label of a recorded metric."""
    labels = {"test_accuracy": "Test accuracy (%)", "train_accuracy": "Training accuracy (%)", "loss": "Training loss"}
    return labels.get(metric, metric.replace("_", " ").capitalize())


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move label positions apart so that neighbours are `gap` away, staying in [low, high] where they fit, in order."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    # Blocks of labels that touch each other: [sum of desired starts, count]; merging them keeps each near its place.
    blocks: list[list[float]] = []
    for rank, i in enumerate(order):
        blocks.append([positions[i] - rank * gap, 1.0])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += count
    highest = high - gap * (len(order) - 1)
    starts = [max(low, min(t / c, highest)) for t, c in blocks for _ in range(int(c))]
    placed = [0.0] * len(order)
    for rank, i in enumerate(order):
        placed[i] = starts[rank] + rank * gap
    return placed


def _draw_curves(
    axes: Axes, epochs: pd.DataFrame, panel: Panel, metric: str, reference: str
) -> list[tuple[Curve, Style, float, float]]:
    """Draw lines with seed bands; return where each line ends."""
    ends = []
    styles = styles_of(curve.label for curve in panel.curves)
    tint = min(0.13, 1.3 / max(1, len(panel.curves)))  # many bands on each other would hide the lines
    for k, curve in enumerate(panel.curves):
        line = series(epochs, curve, metric)
        if line.empty:
            continue
        style = curve.style or styles[curve.label]
        bold = curve.label.split("[")[0] == reference
        x = line.index.to_numpy() + 1
        every = max(1, math.ceil(len(x) / 6))
        # Markers start at different epochs, so that they do not pile up.
        marks = {"markevery": (k * every // max(1, len(panel.curves)), every), "markeredgewidth": 0.9}
        width = {"linewidth": 2.0, "zorder": 4} if bold else {"linewidth": 1.2, "zorder": 3}
        mean_and_band(axes, x, line, style, tint, **marks, **width)
        ends.append((curve, style, float(x[-1]), float(line["mean"].iloc[-1])))
    return ends


EARLY = 0.2  # of the epochs: where a curve may leave the axis below


def robust_range(lines: Sequence[pd.DataFrame]) -> tuple[float, float] | None:
    """Return limits of the axis that the first epochs cannot stretch; None if they do not.

    An epoch or two near chance would press all that matters into a strip at the top. The limits leave room for the bands
    of the seeds, from EARLY on also below.
    """
    lines = [line for line in lines if not line.empty]
    if not lines:
        return None
    late = pd.concat([line[line.index >= EARLY * line.index.max()] for line in lines])
    low, high = float(late["min"].min()), max(float(line["max"].max()) for line in lines)
    lowest, room = min(float(line["min"].min()) for line in lines), max(high - low, 1e-9)
    return (low - 0.12 * room, high + 0.06 * room) if lowest < low - 0.3 * room else None


def _label_ends(
    axes: Axes, ends: Sequence[tuple[Curve, Style, float, float]], line_height: float, reference: str
) -> None:
    """Write names beside the ends of the lines, moved apart, each with its marker and a thin leader."""
    low, high = axes.get_ylim()
    left, right = axes.get_xlim()
    gap = line_height * (high - low)
    places = spread([y for *_, y in ends], gap, low + gap / 2, high - gap / 2)
    beside = right + 0.065 * (right - left)
    for (curve, style, x, y), place in zip(ends, places, strict=True):
        leader = ([x, right + 0.05 * (right - left)], [y, place])
        axes.plot(*leader, color=style.colour, linewidth=0.6, alpha=0.7, clip_on=False, zorder=1)
        mark: dict[str, Any] = {"marker": style.marker, "markersize": 4.5, "markerfacecolor": "white"}
        axes.plot([beside], [place], color=style.colour, clip_on=False, **mark)
        weight = "bold" if curve.label == reference else "normal"
        font: dict[str, Any] = {"color": style.colour, "fontsize": 8, "fontweight": weight, "va": "center"}
        axes.annotate(
            curve.title, (beside, place), xytext=(6, 0), textcoords="offset points", annotation_clip=False, **font
        )
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)


@styled
def curve_panels(
    epochs: pd.DataFrame, panels: Sequence[Panel], metric: str = "test_accuracy", reference: str = REFERENCE
) -> Figure:
    """Draw curves of any recorded metric in panels, names at the ends of the lines."""
    if epochs.empty or all(series(epochs, c, metric).empty for p in panels for c in p.curves):
        raise nothing(metric)
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    most = max(len(p.curves) for p in panels)
    height = max(3.0, 0.23 * most + 0.9)
    figure, grid = canvas(rows, columns, 5.2 * columns + 0.4, height * rows)
    for axes, panel in zip(grid.flat, panels, strict=False):
        ends = _draw_curves(axes, epochs, panel, metric, reference)
        axes.set_title(panel.title, fontsize=10, loc="left")
        axes.set_xlabel("Epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)  # there is no epoch 1.5
        if not ends:
            axes.text(0.5, 0.5, "no runs", transform=axes.transAxes, ha="center", color="#777777")
            continue
        lines = [series(epochs, curve, metric) for curve in panel.curves]
        limits = robust_range(lines)
        if limits is not None and "accuracy" in metric:
            axes.set_ylim(*limits)
        last = max(x for *_, x, _ in ends)
        first = min(float(line.index[0]) + 1 for line in lines if len(line))  # some are evaluated now and then
        axes.set_xlim(first if last > first else first - 0.5, max(last, first + 1))
        _label_ends(axes, ends, 0.19 / height, reference)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel(metric_title(metric))
    if epochs["seed"].nunique() > 1:
        figure.supxlabel("line: mean over seeds; band: least to largest seed", fontsize=7.5, color="#666666")
    return figure


def method_curves(epochs: pd.DataFrame, contents: Contents, metric: str = "test_accuracy") -> Figure:
    """Draw a panel per dataset with a line per main method."""
    own = relevant(epochs, contents)
    labels = set(own["label"])
    methods = [m for m in contents.main_methods if m.name in labels]
    panels = [Panel(d.title, tuple(Curve(m.title, d.name, m.name) for m in methods)) for d in contents.datasets]
    return curve_panels(own, panels, metric, contents.reference)


# Accuracy against a parameter -----------------------------------------------------------------------------------------
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#882255")  # by dataset


@styled
def sensitivity(
    points: pd.DataFrame, parameters: Mapping[str, str], datasets: Mapping[str, str], defaults: Mapping[str, float]
) -> Figure:
    """Draw mean and range over seeds, a row per dataset and a column per parameter; the default is filled.

    `parameters` and `datasets` map names to titles. Values are evenly spaced: they were chosen as a grid.
    """
    points = points[points["parameter"].isin(list(parameters)) & points["dataset"].isin(list(datasets))]
    if points.empty:
        raise nothing("sensitivity")
    size = 2.1 * len(parameters) + 1.0, 2.1 * len(datasets) + 0.4
    figure, grid = canvas(len(datasets), len(parameters), *size, sharey="row")
    for r, (dataset, title) in enumerate(datasets.items()):
        for axes, (parameter, parameter_title) in zip(grid[r], parameters.items(), strict=True):
            own = points[(points["dataset"] == dataset) & (points["parameter"] == parameter)]
            _draw_sensitivity(axes, own, COLOURS[r % len(COLOURS)], defaults.get(parameter))
            if r == len(datasets) - 1:
                axes.set_xlabel(parameter_title)
        grid[r, 0].set_ylabel(f"{title}\naccuracy (%)")
    return figure


@styled
def one_parameter(
    points: pd.DataFrame, parameter: str, title: str, datasets: Mapping[str, str], default: float
) -> Figure:
    """Draw one parameter, a panel per dataset; the default is filled."""
    points = points[(points["parameter"] == parameter) & points["dataset"].isin(list(datasets))]
    if points.empty:
        raise nothing(title)
    figure, grid = canvas(1, len(datasets), 3.3 * len(datasets) + 0.3, 2.7)
    for k, (dataset, dataset_title) in enumerate(datasets.items()):
        axes = grid[0, k]
        _draw_sensitivity(axes, points[points["dataset"] == dataset], COLOURS[k % len(COLOURS)], default)
        axes.set_title(dataset_title, fontsize=10, loc="left")
        axes.set_xlabel(title)
    grid[0, 0].set_ylabel("Test accuracy (%)")
    return figure


def _draw_sensitivity(axes: Axes, own: pd.DataFrame, colour: str, default: float | None) -> None:
    if own.empty:
        axes.text(0.5, 0.5, "no runs", transform=axes.transAxes, ha="center", color="#777777")
        axes.set_xticks([])
        return
    axes.grid(axis="x", visible=False)
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
