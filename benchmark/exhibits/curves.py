"""Accuracy curves with seed bands: of a profile's main methods, or of whatever a results folder holds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmark.analysis.contents import REFERENCE
from benchmark.config.profile import load_profile, profile_names
from benchmark.exhibits.base import FolderPlot, Material, Need, reference_flag
from benchmark.files import file_name
from benchmark.flags import flag
from methods.registry import discover

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from benchmark.config.selection import Selection


def titled(label: str, titles: Mapping[str, str]) -> str:
    """A label as tables name it: "cel[beta=0] (quick)" is "CEL[beta=0] (quick)"."""
    name = re.split(r"[\[ ]", label, maxsplit=1)[0]
    return titles.get(name, name) + label[len(name) :]


class Curves(FolderPlot):
    name, title = "curves", "Accuracy curves"

    @dataclass(frozen=True)
    class Options:
        metric: str = flag("test_accuracy", "any recorded metric")
        reference: str = reference_flag("the method whose line is drawn bold")

    def runs(self, selection: Selection, options: Options) -> Need:
        need = Need()
        need.add(selection.specs())
        return need

    def make(self, material: Material, options: Options) -> Figure:
        from benchmark.exhibits.parts.panels import method_curves

        contents = material.contents
        marked = replace(contents, reference=options.reference)
        return method_curves(material.epochs, marked, contents.main_methods, options.metric)

    def draw(self, epochs: pd.DataFrame, methods: Sequence[str], options: Options) -> Figure:
        from benchmark.exhibits.parts.panels import Curve, Panel, curve_panels

        if epochs["method"].nunique() > 1:  # between methods their variants would only clutter, unless asked for
            plain = epochs["label"] == epochs["method"]
            alone = ~epochs["method"].isin(set(epochs["method"][plain]))
            epochs = epochs[plain | epochs["label"].isin(methods) | alone]
        epochs = epochs[
            ~epochs["status"].isin(["failed", "diverged", "oom"])
        ]  # a run that died after an epoch is no curve
        if epochs["profile"].nunique() > 1:  # runs of several profiles side by side are told apart
            epochs = epochs.assign(label=epochs["label"] + " (" + epochs["profile"] + ")")
        from datasets.registry import SOURCES  # which imports NumPy

        entries = discover(tolerant=True).entries
        titles = {name: entry.title for name, entry in entries.items()}
        named = [name for name in epochs["profile"].unique() if name in profile_names()]
        planned = [d for name in named for d in load_profile(name).datasets]  # as in the tables
        order = [*planned, *SOURCES, *sorted(set(epochs["dataset"]) - set(SOURCES))]
        parts = {str(d): part for d, part in epochs.groupby("dataset")}
        panels = [
            Panel(
                SOURCES[d].title if d in SOURCES else d,
                tuple(Curve(titled(label, titles), d, label) for label in sorted(set(part["label"]))),
            )
            for d, part in sorted(parts.items(), key=lambda one: order.index(one[0]))
        ]
        return curve_panels(epochs, panels, options.metric, options.reference)

    def stem(self, options: Options, altered: str = "") -> str:
        words = ["curves", options.metric, options.reference if options.reference != REFERENCE else "", altered]
        return file_name("-".join(filter(None, words)))
