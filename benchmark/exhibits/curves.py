"""Accuracy curves with seed bands: of a profile's main methods, or of whatever a results folder holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmark.exhibits.base import FolderPlot, Material, Need
from benchmark.files import file_name
from benchmark.flags import flag

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from benchmark.plan.selection import Selection


class Curves(FolderPlot):
    name, title = "curves", "Accuracy curves"

    @dataclass(frozen=True)
    class Options:
        metric: str = flag("test_accuracy", "any recorded metric")

    def runs(self, selection: Selection, options: Options) -> Need:
        need = Need()
        need.add(selection.specs())
        return need

    def make(self, material: Material, options: Options) -> Figure:
        from benchmark.exhibits.parts.panels import method_curves

        contents = material.contents
        return method_curves(material.epochs, contents, contents.main_methods, options.metric)

    def draw(self, epochs: pd.DataFrame, methods: Sequence[str], options: Options) -> Figure:
        from benchmark.exhibits.parts.panels import Curve, Panel, curve_panels

        if epochs["method"].nunique() > 1:  # between methods their variants would only clutter, unless asked for
            plain = epochs["label"] == epochs["method"]
            alone = ~epochs["method"].isin(set(epochs["method"][plain]))
            epochs = epochs[plain | epochs["label"].isin(methods) | alone]
        if epochs["profile"].nunique() > 1:  # runs of several profiles side by side are told apart
            epochs = epochs.assign(label=epochs["label"] + " (" + epochs["profile"] + ")")
        panels = [
            Panel(str(d), tuple(Curve(label, str(d), label) for label in sorted(set(part["label"]))))
            for d, part in epochs.groupby("dataset")
        ]
        return curve_panels(epochs, panels, options.metric)

    def stem(self, options: Options, altered: str = "") -> str:
        return file_name("-".join(["curves", options.metric, *([altered] if altered else [])]))
