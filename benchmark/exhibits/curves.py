"""Accuracy curves with seed bands: of a profile's main methods, or of whatever a results folder holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmark.analysis.contents import REFERENCE
from benchmark.config.profile import load_profile, profile_names
from benchmark.exhibits.base import Exhibit, Inputs, reference_flag
from benchmark.files import file_name
from benchmark.flags import flag

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def titled(label: str, titles: Mapping[str, str]) -> str:
    """Return a label as tables name it: "cel[beta=0] (quick)" is "CEL[beta=0] (quick)"."""
    from benchmark.exhibits.parts.panels import method_of

    name = method_of(label)
    return titles.get(name, name) + label[len(name) :]


class Curves(Exhibit):
    name, title, kind = "curves", "Accuracy curves", "plot"

    @dataclass(frozen=True)
    class Options:
        all: bool = flag(False, "all methods in colour, not only the best three")
        metric: str = flag("test_accuracy", "any recorded metric")
        reference: str | None = reference_flag("the method whose line is drawn bold")

    def make(self, inputs: Inputs, options: Options) -> Figure:
        from benchmark.exhibits.parts.panels import method_curves

        return method_curves(inputs.epochs, inputs.compared_with(options.reference), options.metric, options.all)

    def draw(self, epochs: pd.DataFrame, methods: Sequence[str], titles: Mapping[str, str], options: Options) -> Figure:
        """Draw the epochs of a results folder, without a profile's plan.

        `methods` are those that were named, `titles` those of all methods by name.
        """
        from benchmark.exhibits.parts.panels import Curve, Panel, curve_panels, method_of
        from datasets.registry import SOURCES  # which imports NumPy
        from methods.registry import discover

        if epochs["method"].nunique() > 1:  # between methods their variants would only clutter, unless asked for
            plain = epochs["label"] == epochs["method"]
            alone = ~epochs["method"].isin(set(epochs["method"][plain]))
            epochs = epochs[plain | epochs["label"].isin(methods) | alone]
        epochs = epochs[~epochs["status"].isin(["failed", "diverged", "oom"])]  # what died after an epoch is no curve
        if epochs.groupby("dataset")["profile"].nunique().max() > 1:  # a panel with runs of several profiles
            epochs = epochs.assign(label=epochs["label"] + " (" + epochs["profile"] + ")")
        profiles = [name for name in epochs["profile"].unique() if name in profile_names()]
        planned = [d for name in profiles for d in load_profile(name).datasets]  # as in the tables
        order = [*planned, *SOURCES, *sorted(set(epochs["dataset"]) - set(SOURCES))]
        labels = {str(d): sorted(set(part["label"])) for d, part in epochs.groupby("dataset")}
        controls = {e.name for e in discover(tolerant=True).entries.values() if e.kind == "control"}
        panels = [
            Panel(
                SOURCES[d].title if d in SOURCES else d,
                tuple(
                    Curve(titled(label, titles), d, label, competes=method_of(label) not in controls)
                    for label in labels[d]
                ),
            )
            for d in sorted(labels, key=order.index)
        ]
        return curve_panels(epochs, panels, options.metric, options.reference or REFERENCE, options.all)

    def stem(self, options: Options, altered: str = "") -> str:
        return file_name(
            "-".join(
                filter(None, (self.name, options.metric, options.reference, "all" if options.all else None, altered))
            )
        )
