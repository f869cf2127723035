"""Panels of accuracy curves with names at the ends of the lines, and of accuracy against a parameter.

Accuracies are in percent. matplotlib is imported on first use; no torch.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from benchmark.analysis.comparisons import relevant
from benchmark.analysis.contents import REFERENCE, Contents
from benchmark.errors import UsageError
from benchmark.exhibits.parts.style import (
    FADED,
    FADED_TEXT,
    Style,
    canvas,
    footnote,
    mean_and_band,
    nothing,
    panels_per_row,
    styled,
    styles_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


TEST_ACCURACY = "test_accuracy"
BOUNDS = ("average", "supervised")  # floor and ceiling
FEW = 6  # so many curves can all be in colour
BEST = 3
LINE = 0.15  # inches from one name at the end of a line to the next
AROUND = 0.75  # inches of a panel above and below its axes


@dataclass(frozen=True)
class Curve:
    """One line of a panel: runs with this dataset and label, seeds averaged. `style` defaults to the method's."""

    title: str
    dataset: str
    label: str
    style: Style | None = None
    competes: bool = True  # may be one of the best three; controls may not


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
    labels = {TEST_ACCURACY: "Test accuracy (%)", "train_accuracy": "Training accuracy (%)", "loss": "Training loss"}
    return labels.get(metric, metric.replace("_", " ").capitalize())


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> np.ndarray:
    """Move label positions apart so that neighbours are `gap` away, staying in [low, high] where they fit, in order."""
    from scipy.optimize import isotonic_regression

    order = np.argsort(positions, kind="stable")
    steps = gap * np.arange(len(order))
    starts = isotonic_regression(np.asarray(positions)[order] - steps).x  # labels that touch keep their mean
    placed = np.empty(len(order))
    placed[order] = np.maximum(low, np.minimum(starts, high - steps[-1])) + steps
    return placed


End = tuple[Curve, Style, float, float]  # a curve with its style and where it ends


def method_of(label: str) -> str:
    """Return the method of a label such as "cel[beta=0] (quick)"."""
    return re.split(r"[\[ ]", label, maxsplit=1)[0]


def highlighted(panel: Panel, epochs: pd.DataFrame, metric: str, reference: str) -> set[str]:
    """Return the labels that are drawn in colour: the reference, floor and ceiling, and the best three of the others.

    The best have the highest last test accuracy where there is one, whatever metric the figure shows.
    """
    if len(panel.curves) <= FEW:
        return {curve.label for curve in panel.curves}
    fixed = {curve.label for curve in panel.curves if method_of(curve.label) in (reference, *BOUNDS)}
    score = TEST_ACCURACY if TEST_ACCURACY in epochs.columns else metric
    lines = {c.label: series(epochs, c, score) for c in panel.curves if c.competes and c.label not in fixed}
    last = {label: line["mean"].iloc[-1] for label, line in lines.items() if len(line)}
    return fixed | set(sorted(last, key=lambda label: -last[label])[:BEST])


def _draw_curves(
    axes: Axes, panel: Panel, lines: Sequence[pd.DataFrame], reference: str, in_colour: set[str]
) -> list[End]:
    """Draw lines with seed bands, those that are not `in_colour` in grey; return where each line ends."""
    ends = []
    styles = styles_of(curve.label for curve in panel.curves)
    tint = min(0.13, 1.3 / max(1, len(in_colour)))  # many bands on each other would hide the lines
    for k, (curve, line) in enumerate(zip(panel.curves, lines, strict=True)):
        if line.empty:
            continue
        style = curve.style or styles[curve.label]
        if curve.label not in in_colour:
            style = Style(FADED, "-", "")
        bold = method_of(curve.label) == reference
        x = line.index.to_numpy() + 1
        every = max(1, math.ceil(len(x) / 6))
        # Markers start at different epochs, so that they do not pile up.
        marks = {"markevery": (k * every // max(1, len(panel.curves)), every), "markeredgewidth": 0.9}
        width = {"linewidth": 2.0, "zorder": 4} if bold else {"linewidth": 1.2, "zorder": 3}
        if style.colour == FADED:
            axes.plot(x, line["mean"], color=FADED, linewidth=0.9, zorder=1)
        else:
            mean_and_band(axes, x, line, style, tint, **marks, **width)
        ends.append((curve, style, float(x[-1]), float(line["mean"].iloc[-1])))
    return ends


BAND = "line: mean over seeds; band: min–max over seeds"


def _label_ends(axes: Axes, ends: Sequence[End], line_height: float, reference: str) -> None:
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
        weight = "bold" if method_of(curve.label) == reference else "normal"
        colour = FADED_TEXT if style.colour == FADED else style.colour
        font: dict[str, Any] = {"color": colour, "fontsize": 8, "fontweight": weight, "va": "center"}
        axes.annotate(
            curve.title, (beside, place), xytext=(6, 0), textcoords="offset points", annotation_clip=False, **font
        )
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)


@styled()
def curve_panels(
    epochs: pd.DataFrame,
    panels: Sequence[Panel],
    metric: str = TEST_ACCURACY,
    reference: str = REFERENCE,
    all_in_colour: bool = False,
) -> Figure:
    """Draw curves of any recorded metric in panels, names at the ends of the lines.

    `reference` is drawn bold. Of many curves only it, floor, ceiling and the best three are in colour, unless
    `all_in_colour`.
    """
    lines = {panel: [series(epochs, curve, metric) for curve in panel.curves] for panel in panels if len(epochs)}
    if all(line.empty for own in lines.values() for line in own):
        raise nothing(metric)
    columns = panels_per_row(len(panels))
    rows = math.ceil(len(panels) / columns)
    height = max(3.0, (LINE + 0.01) * max(len(p.curves) for p in panels) + AROUND)
    figure, grid = canvas(rows, columns, 5.2 * columns + 0.4, height * rows)
    for axes, panel in zip(grid.flat, panels, strict=False):
        axes.set_title(panel.title, fontsize=10, loc="left")
        axes.set_xlabel("Epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)  # there is no epoch 1.5
        drawn = [line for line in lines[panel] if len(line)]
        if not drawn:
            axes.text(0.5, 0.5, "no runs", transform=axes.transAxes, ha="center", color="#777777")
            continue
        every = {curve.label for curve in panel.curves}
        shown = every if all_in_colour else highlighted(panel, epochs, metric, reference)
        ends = _draw_curves(axes, panel, lines[panel], reference, shown)
        first = min(line.index[0] for line in drawn) + 1  # some are evaluated now and then
        last = max(line.index[-1] for line in drawn) + 1
        axes.set_xlim(first if last > first else first - 0.5, max(last, first + 1))
        _label_ends(axes, ends, LINE / (height - AROUND), reference)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel(metric_title(metric))
    if epochs["seed"].nunique() > 1:
        footnote(figure, BAND)
    return figure


def method_curves(
    epochs: pd.DataFrame, contents: Contents, metric: str = TEST_ACCURACY, all_in_colour: bool = False
) -> Figure:
    """Draw a panel per dataset with a line per main method, and floor and ceiling where they have runs."""
    own = relevant(epochs, contents)
    labels = set(own["label"])
    bounds = [m for m in contents.other_methods if m.name in BOUNDS]
    methods = [m for m in (*contents.main_methods, *bounds) if m.name in labels]
    panels = [Panel(d.title, tuple(Curve(m.title, d.name, m.name) for m in methods)) for d in contents.datasets]
    return curve_panels(own, panels, metric, contents.reference, all_in_colour)


# Accuracy against a parameter -----------------------------------------------------------------------------------------
@styled()
def sensitivity(
    points: pd.DataFrame,
    parameters: Mapping[str, str],
    datasets: Mapping[str, str],
    methods: Mapping[str, str],
    defaults: Mapping[str, Any],
) -> Figure:
    """Draw a row per dataset and a column per parameter, a line per method with a seed band; the default is filled.

    `parameters`, `datasets` and `methods` map names to titles. Values are evenly spaced: they were chosen as a grid.
    """
    points = points[points["parameter"].isin(list(parameters)) & points["dataset"].isin(list(datasets))]
    if points.empty:
        raise nothing("accuracy against a parameter")
    several, many = len(methods) > 1, len(parameters)
    wide = panels_per_row(many, most=many, in_column=1 if many % 2 else 2)
    is_narrow = 1 < wide < many
    columns = 2 * (1 if is_narrow else wide)  # of the legend: two fit above an axis
    rows = len(datasets) * many // wide
    height = (2.0 if is_narrow else 2.7) * rows + 0.3
    height += 0.2 * (1 + math.ceil(len(methods) / columns)) if several else 0
    figure, grid = canvas(rows, wide, 3.2 * wide + 0.5, height, sharey="row")
    grid = grid.reshape(len(datasets), many)
    characters = int(figure.get_figwidth() / wide * 72 / 6)  # of 9 points, below a panel
    styles = styles_of(methods)
    handles: dict[str, Any] = {}
    for r, (dataset, title) in enumerate(datasets.items()):
        for axes, parameter in zip(grid[r], parameters, strict=True):
            own = points[points["parameter"] == parameter]
            values = list(dict.fromkeys(own["value"]))
            if all(isinstance(value, int | float) for value in values):  # words stay as they were named
                values.sort()
            for method in methods:
                here = own[(own["dataset"] == dataset) & (own["method"] == method)]
                stats = here.groupby("value", sort=False)["accuracy"].agg(["mean", "min", "max"])
                stats = stats.reindex([value for value in values if value in stats.index])
                x = np.array([values.index(value) for value in stats.index])
                look = {"linewidth": 1.2, "zorder": 3, "label": methods[method]}
                mean_and_band(axes, x, stats, styles[method], 0.12, **look)
                if defaults.get(parameter) in stats.index:
                    usual = defaults[parameter]
                    filled = {"color": styles[method].colour, "marker": styles[method].marker, "zorder": 4}
                    axes.plot([values.index(usual)], [stats["mean"][usual]], markersize=5, **filled)
            handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
            axes.set_xticks(range(len(values)), [f"{v:g}" if isinstance(v, int | float) else str(v) for v in values])
            axes.set_xlim(-0.3, len(values) - 0.7)
            if r == len(datasets) - 1 or wide < many:
                axes.set_xlabel(textwrap.fill(parameters[parameter], characters))
        for axes in grid[r, ::wide]:
            axes.set_ylabel(f"{title}\ntest accuracy (%)")
    if several:
        figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=columns, fontsize=8)
    footnote(figure, f"{BAND}; filled: default" if defaults else BAND)
    return figure
