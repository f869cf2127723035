"""Robustness: accuracy against missing true labels, larger candidate sets and long tails, on the embedded data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmark.errors import UsageError, did_you_mean
from benchmark.exhibits.base import Exhibit, Inputs, RequiredRuns, figure_datasets
from benchmark.exhibits.parts.style import canvas, mean_and_band, styled, styles_of
from benchmark.flags import flag

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from benchmark.config.resolution import Override
    from benchmark.config.sections import Data
    from benchmark.config.selection import Selection

# Made for clean sets, for missing truth (ALIM, FREDIS) and for long tails (SoLar), and cheap enough for ten minutes.
USUAL = ("cel", "proden", "pico", "alim", "fredis", "solar")
BAND = "line: mean over seeds; band: least to largest seed"
BOUNDS = {"average": " (floor)", "supervised": " (ceiling)"}  # always drawn


@dataclass(frozen=True)
class Axis:
    """A setting that is varied, whatever `--set` says of it, and the settings that go with it."""

    key: str  # of [data]
    title: str
    values: tuple[float, ...]
    always: Mapping[str, str]


AXES = {
    "noise": Axis("noise", "Sets without the true label, share η", (0, 0.1, 0.2, 0.3), {}),
    "rate": Axis("rate", "Rate q of wrong labels, uniform sets", (0.1, 0.3, 0.5, 0.7), {"generator": "uniform", "target_size": "0"}),
    "imbalance": Axis("imbalance", "Largest over smallest class", (1, 10, 30, 100), {}),
}  # fmt: skip


class Robustness(Exhibit):
    name, title, kind = "robustness", "the robustness curves", "figure"
    profile = "quick"

    @dataclass(frozen=True)
    class Options:
        axes: str = flag(",".join(AXES), f"comma list of {', '.join(AXES)}", metavar="A,B")

    def required_runs(self, selection: Selection, options: Options) -> RequiredRuns:
        required = RequiredRuns()
        for dataset in datasets_of(selection):
            usual = selection.specs(BOUNDS, [dataset])[0].data
            if usual.generator == "own":
                raise UsageError(f"{dataset} brings its own candidate sets; these curves need sets that are made.")
            for name in axes_of(options.axes):
                for value in AXES[name].values:
                    extra = changes(AXES[name], value, usual)
                    required.vary(selection.specs(methods_of(selection), [dataset], extra=extra), name, float(value))
        return required

    def make(self, inputs: Inputs, options: Options) -> Figure:
        inputs.require_one(self.name)
        titles = {name: inputs.selection.entry(name).title for name in methods_of(inputs.selection)}
        return inputs.signed(curves(inputs.points, axes_of(options.axes), inputs.datasets, titles))


def axes_of(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in AXES:
            raise UsageError(f"--axes: unknown '{word}'.{did_you_mean(word, AXES)} Known: {', '.join(AXES)}.")
    if not words:
        raise UsageError(f"--axes names nothing; write a comma list of {', '.join(AXES)}.")
    return list(dict.fromkeys(words))


def methods_of(selection: Selection) -> list[str]:
    """Return the usual methods or those that the command line names, with floor and ceiling in any case."""
    named = selection.methods if selection.methods != selection.profile.all_methods else USUAL
    return list(dict.fromkeys((*named, *BOUNDS)))


def datasets_of(selection: Selection) -> list[str]:
    """Return the profile's choice for this figure, or what the command line names."""
    if selection.datasets != selection.profile.datasets:
        return list(selection.datasets)
    return figure_datasets(selection, Robustness.name)


def changes(axis: Axis, value: float, usual: Data) -> list[Override]:
    """Return the settings of this point; none where it is the usual setting."""
    from benchmark.config.resolution import Override

    words = dict(axis.always)
    if words or value != getattr(usual, axis.key):
        words[axis.key] = str(value)
    return [Override("data", key, text) for key, text in words.items()]


@styled
def curves(
    points: pd.DataFrame, axes_shown: list[str], datasets: Mapping[str, str], methods: Mapping[str, str]
) -> Figure:
    """Draw a row per dataset and a column per axis, a line per method with a seed band."""
    import numpy as np

    columns = 2 * len(axes_shown)  # of the legend: two fit above an axis
    height = 2.7 * len(datasets) + 0.2 * (2 + math.ceil(len(methods) / columns))
    styles = styles_of(methods)
    figure, grid = canvas(len(datasets), len(axes_shown), 3.2 * len(axes_shown) + 0.5, height, sharey="row")
    handles: dict[str, Any] = {}
    for r, (dataset, title) in enumerate(datasets.items()):
        for axes, name in zip(grid[r], axes_shown, strict=True):
            axis = AXES[name]
            here = points[(points["dataset"] == dataset) & (points["parameter"] == name)]
            for method in methods:
                stats = here[here["method"] == method].groupby("value")["accuracy"].agg(["mean", "min", "max"])
                if stats.empty:
                    continue
                x = np.array([axis.values.index(value) for value in stats.index])
                label = methods[method] + BOUNDS.get(method, "")
                order = 2 if method in BOUNDS else 3
                mean_and_band(axes, x, stats, styles[method], 0.12, linewidth=1.2, zorder=order, label=label)
            handles |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
            axes.set_xticks(range(len(axis.values)), [f"{value:g}" for value in axis.values])
            axes.set_xlim(-0.2, len(axis.values) - 0.8)
            if r == len(datasets) - 1:
                axes.set_xlabel(axis.title)
        grid[r, 0].set_ylabel(f"{title}\ntest accuracy (%)")
    font: dict[str, Any] = {"fontsize": 8, "title": BAND, "title_fontsize": 7}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=columns, **font)
    return figure
