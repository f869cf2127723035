"""Figures of the paper from the tidy frame of epochs or of runs. matplotlib is imported on first use; no torch.

A method has the same colour, line style and marker in every figure. Colours are from Okabe and Ito's and Tol's
colour-blind-safe sets; line styles and markers tell the methods apart in grey print.
Accuracies are in percent. Functions return a matplotlib `Figure`; `save` writes PNG and PDF without dates in them.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from benchmark.analysis.comparisons import MethodInfo, Plan, RankAnalysis, relevant
from benchmark.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Style:
    """How a method is drawn."""

    colour: str
    line: Any
    marker: str


_DASH, _DOT, _DASH_DOT, _LONG = (0, (4, 1.5)), (0, (1, 1.3)), (0, (5, 1.5, 1, 1.5)), (0, (8, 2))
STYLES = {
    "cel": Style("#D55E00", "-", "o"),
    "dirk": Style("#0072B2", _DASH, "s"),
    "nepll": Style("#009E73", _DASH_DOT, "^"),
    "pop": Style("#AA4499", _LONG, "D"),
    "idgp": Style("#56B4E9", "-", "v"),
    "able": Style("#882255", _DOT, "P"),
    "valen": Style("#999933", _DASH, "X"),
    "pico": Style("#332288", "-", "<"),
    "cr-dpll": Style("#CC79A7", _DASH_DOT, ">"),
    "lws": Style("#117733", _LONG, "p"),
    "proden": Style("#000000", _DASH, "h"),
    "rc": Style("#B8860B", _DOT, "*"),
    "cc": Style("#666666", "-", "d"),
    "average": Style("#9A9A9A", _DOT, "1"),
    "supervised": Style("#444444", _LONG, "2"),
}
_OTHER_COLOURS = ("#0072B2", "#009E73", "#CC79A7", "#882255", "#117733", "#332288", "#8C564B", "#44AA99")
_OTHER_LINES = ("-", _DASH, _DOT, _DASH_DOT, _LONG)
_OTHER_MARKERS = ("o", "s", "^", "v", "D", "P", "X", "h")

RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "axes.edgecolor": "#555555",
    "axes.linewidth": 0.8,
    "xtick.color": "#333333",
    "ytick.color": "#333333",
    "legend.frameon": False,
    "pdf.fonttype": 42,
}


def style_of(name: str) -> Style:
    """Style of a method (or of a label such as "cel[beta=0]"): fixed for known ones, else from a digest of the name."""
    if name in STYLES:
        return STYLES[name]
    digest = hashlib.sha256(name.encode()).digest()
    return Style(
        _OTHER_COLOURS[digest[0] % len(_OTHER_COLOURS)],
        _OTHER_LINES[digest[1] % len(_OTHER_LINES)],
        _OTHER_MARKERS[digest[2] % len(_OTHER_MARKERS)],
    )


def save(figure: Figure, folder: str | Path, stem: str) -> list[Path]:
    """Write `stem`.png (150 dpi) and `stem`.pdf atomically; the same figure gives the same bytes."""
    paths = []
    for suffix, options in (
        (".png", {"Software": None}),
        (".pdf", {"CreationDate": None, "Creator": None, "Producer": None}),
    ):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=suffix[1:], dpi=150, metadata=options)
        path = Path(folder) / f"{stem}{suffix}"
        atomic_write(path, buffer.getvalue())
        paths.append(path)
    return paths


def _canvas(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Figure, np.ndarray]:
    """A figure without pyplot's global state, and its axes (rows, columns)."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(RC):
        figure = Figure(figsize=(width, height), layout="constrained")
        engine = figure.get_layout_engine()
        assert engine is not None
        engine.set(w_pad=0.09, h_pad=0.06)  # type: ignore[call-arg]
        axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, axes


def _nothing(what: str) -> ValueError:
    return ValueError(f"There is nothing to draw for {what}: no finished epoch of such a run is in the results folder.")


# curves -------------------------------------------------------------------------------------------------------------
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
        raise ValueError(f"Unknown metric '{metric}'; recorded are {', '.join(known)}.")
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
    axes: Axes, epochs: pd.DataFrame, panel: Panel, metric: str
) -> list[tuple[Curve, Style, float, float]]:
    """Lines with bands from the least to the largest seed; returns where each line ends."""
    ends = []
    for k, curve in enumerate(panel.curves):
        line = series(epochs, curve, metric)
        if line.empty:
            continue
        style = curve.style or style_of(curve.label)
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
            linewidth=2.0 if curve.label.split("[")[0] == "cel" else 1.2,
            zorder=4 if curve.label.split("[")[0] == "cel" else 3,
        )
        if (line["count"] > 1).any():
            axes.fill_between(x, line["min"], line["max"], color=style.colour, alpha=0.13, linewidth=0, zorder=2)
        ends.append((curve, style, float(x[-1]), float(line["mean"].iloc[-1])))
    return ends


def _label_ends(axes: Axes, ends: Sequence[tuple[Curve, Style, float, float]], line_height: float) -> None:
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
            fontweight="bold" if curve.label == "cel" else "normal",
            annotation_clip=False,
        )
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)


def curve_panels(
    epochs: pd.DataFrame, panels: Sequence[Panel], metric: str = "test_accuracy", columns: int = 2, title: str = ""
) -> Figure:
    """Curves in panels, any recorded metric, names at the ends of the lines."""
    if epochs.empty or all(series(epochs, c, metric).empty for p in panels for c in p.curves):
        raise _nothing(title or metric)
    from matplotlib import rc_context

    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    most = max(len(p.curves) for p in panels)
    height = max(3.0, 0.23 * most + 0.9)
    figure, grid = _canvas(rows, columns, 5.2 * columns + 0.4, height * rows)
    with rc_context(RC):
        for axes, panel in zip(grid.flat, panels, strict=False):
            ends = _draw_curves(axes, epochs, panel, metric)
            axes.set_title(panel.title, fontsize=10, loc="left")
            axes.set_xlabel("Epoch")
            axes.xaxis.get_major_locator().set_params(integer=True)  # there is no epoch 1.5
            if not ends:
                axes.text(0.5, 0.5, "no runs", transform=axes.transAxes, ha="center", color="#777777")
                continue
            last = max(x for *_, x, _ in ends)
            axes.set_xlim(1 if last > 1 else 0.5, max(last, 2))
            _label_ends(axes, ends, 0.19 / height)
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_visible(False)
        for axes in grid[:, 0]:
            axes.set_ylabel(metric_title(metric))
        if epochs["seed"].nunique() > 1:
            figure.supxlabel("line: mean over seeds; band: least to largest seed", fontsize=7.5, color="#666666")
        if title:
            figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    return figure


def method_curves(
    epochs: pd.DataFrame, plan: Plan, methods: Sequence[MethodInfo] | None = None, metric: str = "test_accuracy"
) -> Figure:
    """One panel per data set with a line per method: `plot curves`."""
    chosen = plan.methods if methods is None else tuple(methods)
    panels = [Panel(d.title, tuple(Curve(m.title, d.name, m.name) for m in chosen)) for d in plan.datasets]
    own = relevant(epochs, plan)
    present = set(own["label"])
    panels = [Panel(p.title, tuple(c for c in p.curves if c.label in present)) for p in panels]
    return curve_panels(own, panels, metric)


PLL_STYLE, IDPLL_STYLE = Style("#0072B2", _DASH, "s"), Style("#D55E00", "-", "o")


def fig2(
    epochs: pd.DataFrame, panels: Sequence[tuple[str, tuple[str, str], tuple[str, str]]], **options: Any
) -> Figure:
    """PRODEN under PLL and IDPLL candidates: per panel a title and the (data set, label) of each setting's runs."""
    drawn = [
        Panel(title, (Curve("PLL", *pll, style=PLL_STYLE), Curve("IDPLL", *idpll, style=IDPLL_STYLE)))
        for title, pll, idpll in panels
    ]
    return curve_panels(epochs, drawn, **options)


def fig4(epochs: pd.DataFrame, plan: Plan, dataset: str, metric: str = "test_accuracy") -> Figure:
    """All main methods on one data set."""
    info = next((d for d in plan.datasets if d.name == dataset), None)
    if info is None:
        raise ValueError(f"Data set '{dataset}' is not in profile {plan.profile}.")
    curves = tuple(Curve(m.title, dataset, m.name) for m in plan.main_methods)
    return curve_panels(relevant(epochs, plan), [Panel(info.title, curves)], metric)


# sensitivity --------------------------------------------------------------------------------------------------------
def sensitivity_points(runs: pd.DataFrame, method: str, defaults: Mapping[str, float]) -> pd.DataFrame:
    """Finished runs of a method as points: parameter, value, dataset, seed, accuracy.

    A run counts for a parameter if it overrides that one only (keys may be dotted: the last part is the name); a run
    without overrides is the default's point of every parameter.
    """
    points = []
    own = runs[(runs["method"] == method) & (runs["status"] == "done") & runs["accuracy"].notna()]
    for run in own.to_dict("records"):
        changed = {k.rsplit(".", 1)[-1]: v for k, v in json.loads(run["overrides"] or "{}").items()}
        if len(changed) > 1 or not changed.keys() <= defaults.keys():
            continue
        for parameter, value in (changed or defaults).items():
            points.append(
                {"parameter": parameter, "value": float(value), **{k: run[k] for k in ("dataset", "seed", "accuracy")}}
            )
    return pd.DataFrame(points, columns=["parameter", "value", "dataset", "seed", "accuracy"])


def sensitivity(
    points: pd.DataFrame, parameters: Mapping[str, str], datasets: Mapping[str, str], defaults: Mapping[str, float]
) -> Figure:
    """Small multiples: a row per data set, a column per parameter, mean and range over seeds; the default is filled.

    `parameters` and `datasets` map names to titles. Values are evenly spaced: they were chosen as a grid.
    """
    points = points[points["parameter"].isin(list(parameters)) & points["dataset"].isin(list(datasets))]
    if points.empty:
        raise _nothing("sensitivity")
    from matplotlib import rc_context

    figure, grid = _canvas(
        len(datasets), len(parameters), 2.1 * len(parameters) + 1.0, 2.1 * len(datasets) + 0.4, sharey="row"
    )
    colours = ("#0072B2", "#D55E00", "#009E73", "#882255")
    with rc_context(RC):
        for r, (dataset, dataset_title) in enumerate(datasets.items()):
            for c, (parameter, parameter_title) in enumerate(parameters.items()):
                axes = grid[r, c]
                own = points[(points["dataset"] == dataset) & (points["parameter"] == parameter)]
                _draw_sensitivity(axes, own, colours[r % len(colours)], defaults.get(parameter))
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
    stats = own.groupby("value")["accuracy"].agg(["mean", "min", "max"]).sort_index()
    x = np.arange(len(stats))
    below, above = stats["mean"] - stats["min"], stats["max"] - stats["mean"]
    axes.errorbar(
        x, stats["mean"], yerr=[below, above], color=colour, linewidth=1.4, capsize=2.5, elinewidth=0.9, zorder=3
    )
    fill = [colour if v == default else "white" for v in stats.index]
    axes.scatter(x, stats["mean"], s=26, c=fill, edgecolors=colour, linewidths=1.2, zorder=4)
    axes.set_xticks(x, [f"{v:g}" for v in stats.index])
    axes.set_xlim(-0.4, len(stats) - 0.6)


CEL_PARAMETERS = {"alpha": "α", "beta": "β", "gamma1": "γ₁", "gamma2": "γ₂"}


def fig5(points: pd.DataFrame, datasets: Mapping[str, str], defaults: Mapping[str, float]) -> Figure:
    """CEL's sensitivity to α, β, γ₁, γ₂."""
    return sensitivity(points, CEL_PARAMETERS, datasets, defaults)


def fig6(points: pd.DataFrame, datasets: Mapping[str, str], parameter: str, default: float = 512) -> Figure:
    """CEL's accuracy by length of the class-wise embedding, a panel per data set."""
    points = points[(points["parameter"] == parameter) & points["dataset"].isin(list(datasets))]
    if points.empty:
        raise _nothing("the embedding length")
    from matplotlib import rc_context

    figure, grid = _canvas(1, len(datasets), 3.3 * len(datasets) + 0.3, 2.7)
    colours = ("#0072B2", "#D55E00", "#009E73", "#882255")
    with rc_context(RC):
        for k, (dataset, title) in enumerate(datasets.items()):
            axes = grid[0, k]
            _draw_sensitivity(axes, points[points["dataset"] == dataset], colours[k % len(colours)], default)
            axes.grid(axis="x", visible=False)
            axes.set_title(title, fontsize=10, loc="left")
            axes.set_xlabel("Length of the class-wise embedding")
        grid[0, 0].set_ylabel("Test accuracy (%)")
    return figure


# ranks and selection ------------------------------------------------------------------------------------------------
def critical_difference(ranks: RankAnalysis) -> Figure:
    """Average ranks on an axis, best at the left; a bar joins methods that Nemenyi's test does not tell apart."""
    from matplotlib import rc_context

    average, k = ranks.friedman.average_ranks, len(ranks.names)
    order = np.argsort(average, kind="stable")
    half = math.ceil(k / 2)
    bars = ranks.groups
    depth = 0.45 + 0.3 * len(bars)
    bottom = depth + 0.42 * half + 0.5
    figure, grid = _canvas(1, 1, 8.0, 1.4 + 0.42 * (bottom + 0.6))
    axes = grid[0, 0]
    with rc_context(RC):
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
        for b, bar in enumerate(bars):
            own = average[bar.astype(bool)]
            y = 0.35 + 0.3 * b
            axes.plot(
                [own.min() - 0.06, own.max() + 0.06], [y, y], color="#444444", linewidth=3, solid_capstyle="round"
            )
        for place, i in enumerate(order):
            left = place < half
            y = depth + 0.42 * (place if left else k - 1 - place) + 0.3
            edge = 1 - 0.03 * k if left else k + 0.03 * k
            style = style_of(ranks.names[i])
            axes.plot([average[i], average[i], edge], [0, y, y], color=style.colour, linewidth=1)
            axes.plot(
                [average[i]], [0], marker=style.marker, color=style.colour, markersize=4.5, markerfacecolor="white"
            )
            own = f"{ranks.titles[i]}  {average[i]:.2f}" if left else f"{average[i]:.2f}  {ranks.titles[i]}"
            weight = "bold" if ranks.names[i] == ranks.reference else "normal"
            axes.text(
                edge + (-0.1 if left else 0.1),
                y,
                own,
                ha="right" if left else "left",
                va="center",
                fontsize=8.5,
                color=style.colour,
                fontweight=weight,
            )
        f = ranks.friedman
        many = len(ranks.datasets)
        note = f"Average rank over {many} data set{'s' if many != 1 else ''} (1 = best); Nemenyi at {ranks.alpha:g}; "
        note += f"Friedman p = {f.p_tie_corrected:.2g}"
        if ranks.dropped:
            note += f"; left out as incomplete: {', '.join(ranks.dropped)}"
        axes.set_title(note, fontsize=8.5, loc="left")
    return figure


SELECTIONS = (
    ("accuracy", "last epoch", "o", "#000000"),
    ("accuracy_last10", "mean of the last 10", "|", "#0072B2"),
    ("accuracy_covering", "chosen by covering rate", "^", "#009E73"),
    ("accuracy_approximated", "chosen by approximated accuracy", "s", "#CC79A7"),
    ("accuracy_oracle", "best test epoch (oracle)", "x", "#D55E00"),
)


def selection(runs: pd.DataFrame, plan: Plan) -> Figure:
    """What each rule for choosing the epoch would add to or take from the last epoch's accuracy, mean over seeds.

    A panel per data set; methods are ordered by the last epoch's accuracy, which stands beside the name.
    """
    from matplotlib import rc_context

    own = relevant(runs, plan)
    own = own[(own["status"] == "done") & (own["label"] == own["method"])]
    names = {m.name: m.title for m in plan.methods}
    own = own[own["method"].isin(list(names))]
    if own.empty:
        raise _nothing("the selection rules")
    datasets = [d for d in plan.datasets if (own["dataset"] == d.name).any()]
    columns = min(3, len(datasets))
    rows = math.ceil(len(datasets) / columns)
    most = own.groupby("dataset")["method"].nunique().max()
    figure, grid = _canvas(rows, columns, 3.5 * columns + 0.6, (0.22 * most + 1.1) * rows + 0.3)
    with rc_context(RC):
        for axes, d in zip(grid.flat, datasets, strict=False):
            means = own[own["dataset"] == d.name].groupby("method")[[s[0] for s in SELECTIONS]].mean()
            means = means.sort_values("accuracy")
            gain = means.sub(means["accuracy"], axis=0)
            y = np.arange(len(means))
            axes.axvline(0, color="#777777", linewidth=0.9, zorder=1)
            axes.hlines(y, gain.min(axis=1), gain.max(axis=1), color="#BBBBBB", linewidth=1, zorder=2)
            for column, label, marker, colour in SELECTIONS:
                face = {"facecolors": "none", "edgecolors": colour} if marker in "^s" else {"color": colour}
                size = 60 if marker == "|" else 22
                axes.scatter(gain[column], y, marker=marker, s=size, linewidths=1.3, label=label, zorder=3, **face)
            names_beside = [f"{names[str(m)]}  {v:.1f}" for m, v in means["accuracy"].items()]
            axes.set_yticks(y, names_beside, fontsize=8)
            axes.grid(axis="y", visible=False)
            axes.set_title(d.title, fontsize=10, loc="left")
            axes.set_xlabel("Points above the last epoch")
        for axes in list(grid.flat)[len(datasets) :]:
            axes.set_visible(False)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(5, 2 * columns - 1), fontsize=8)
    return figure
