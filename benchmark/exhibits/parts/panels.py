"""Accuracy curves in panels, names at the ends of the lines. matplotlib is imported on first use; no torch.

Accuracies are in percent. Functions return a matplotlib `Figure`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmark.analysis.comparisons import relevant
from benchmark.analysis.contents import REFERENCE, Contents, MethodInfo
from benchmark.errors import UsageError
from benchmark.exhibits.parts.style import RC, Style, canvas, nothing, styles_of

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
    """Mean, least and largest over seeds for every epoch that has a value; an unfinished seed ends where it ends."""
    if metric not in epochs.columns:
        known = sorted(
            c for c in epochs.columns if pd.api.types.is_numeric_dtype(epochs[c]) and c not in ("seed", "epoch")
        )
        raise UsageError(f"Unknown metric '{metric}'; recorded are {', '.join(known)}.")
    own = epochs[(epochs["dataset"] == curve.dataset) & (epochs["label"] == curve.label)]
    own = own[np.isfinite(own[metric].astype(float))]
    return own.groupby("epoch")[metric].agg(["mean", "min", "max", "count"]).sort_index()


def metric_title(metric: str) -> str:
    """Axis label of a recorded metric."""
    known = {"test_accuracy": "Test accuracy (%)", "train_accuracy": "Training accuracy (%)", "loss": "Training loss"}
    return known.get(metric, metric.replace("_", " ").capitalize())


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move label positions apart so that neighbours are `gap` away, staying in [low, high] where they fit, in order."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    # Blocks of labels that touch each other: [sum of wanted starts, count]; merging them keeps each near its place.
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
    """Lines with bands from the least to the largest seed; returns where each line ends."""
    ends = []
    styles = styles_of(curve.label for curve in panel.curves)
    tint = min(0.13, 1.3 / max(1, len(panel.curves)))  # many bands on each other would hide the lines
    for k, curve in enumerate(panel.curves):
        line = series(epochs, curve, metric)
        if line.empty:
            continue
        style = curve.style or styles[curve.label]
        studied = curve.label.split("[")[0] == reference
        x = line.index.to_numpy() + 1
        every = max(1, math.ceil(len(x) / 6))
        # Markers start at different epochs, so that they do not pile up.
        axes.plot(
            x,
            line["mean"],
            color=style.colour,
            linestyle=style.line,
            marker=style.marker,
            markersize=4,
            markevery=(k * every // max(1, len(panel.curves)), every),
            markerfacecolor="white",
            markeredgewidth=0.9,
            linewidth=2.0 if studied else 1.2,
            zorder=4 if studied else 3,
        )
        if (line["count"] > 1).any():
            axes.fill_between(x, line["min"], line["max"], color=style.colour, alpha=tint, linewidth=0, zorder=2)
        ends.append((curve, style, float(x[-1]), float(line["mean"].iloc[-1])))
    return ends


EARLY = 0.2  # of the epochs: where a curve may leave the axis below


def robust_range(lines: Sequence[pd.DataFrame]) -> tuple[float, float] | None:
    """Limits of the axis that the first epochs cannot stretch; None if they do not.

    An epoch or two near chance would press all that matters into a strip at the top.
    """
    means = [line["mean"] for line in lines if not line.empty]
    if not means:
        return None
    late = pd.concat([m[m.index >= EARLY * m.index.max()] for m in means])
    low, high = float(late.min()), float(max(m.max() for m in means))
    lowest, room = min(float(m.min()) for m in means), max(high - low, 1e-9)
    return (low - 0.12 * room, high + 0.06 * room) if lowest < low - 0.3 * room else None


def _label_ends(
    axes: Axes, ends: Sequence[tuple[Curve, Style, float, float]], line_height: float, reference: str
) -> None:
    """Names beside the ends of the lines, moved apart, each with its marker and a thin leader."""
    if not ends:
        return
    low, high = axes.get_ylim()
    gap = line_height * (high - low)
    places = spread([y for *_, y in ends], gap, low + gap / 2, high - gap / 2)
    right = axes.get_xlim()[1]
    left = axes.get_xlim()[0]
    for (curve, style, x, y), place in zip(ends, places, strict=True):
        axes.plot(
            [x, right + 0.05 * (right - left)],
            [y, place],
            color=style.colour,
            linewidth=0.6,
            alpha=0.7,
            clip_on=False,
            zorder=1,
        )
        axes.plot(
            [right + 0.065 * (right - left)],
            [place],
            marker=style.marker,
            color=style.colour,
            markersize=4.5,
            markerfacecolor="white",
            clip_on=False,
        )
        axes.annotate(
            curve.title,
            (right + 0.065 * (right - left), place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=style.colour,
            fontsize=8,
            fontweight="bold" if curve.label == reference else "normal",
            annotation_clip=False,
        )
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)


def curve_panels(
    epochs: pd.DataFrame, panels: Sequence[Panel], metric: str = "test_accuracy", reference: str = REFERENCE
) -> Figure:
    """Curves in panels, any recorded metric, names at the ends of the lines."""
    if epochs.empty or all(series(epochs, c, metric).empty for p in panels for c in p.curves):
        raise nothing(metric)
    from matplotlib import rc_context

    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    most = max(len(p.curves) for p in panels)
    height = max(3.0, 0.23 * most + 0.9)
    figure, grid = canvas(rows, columns, 5.2 * columns + 0.4, height * rows)
    with rc_context(RC):
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


def method_curves(
    epochs: pd.DataFrame, contents: Contents, methods: Sequence[MethodInfo] | None = None, metric: str = "test_accuracy"
) -> Figure:
    """One panel per data set with a line per method."""
    chosen = contents.methods if methods is None else tuple(methods)
    panels = [Panel(d.title, tuple(Curve(m.title, d.name, m.name) for m in chosen)) for d in contents.datasets]
    own = relevant(epochs, contents)
    present = set(own["label"])
    panels = [Panel(p.title, tuple(c for c in p.curves if c.label in present)) for p in panels]
    return curve_panels(own, panels, metric, contents.reference)
