"""Figure 4: accuracy curves of all main methods on one dataset, with floor and ceiling."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmark.analysis.contents import MAIN_KINDS
from benchmark.exhibits.base import Exhibit, Inputs, RequiredRuns, reference_flag
from benchmark.flags import flag

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmark.config.selection import Selection


class Figure4(Exhibit):
    name, title, kind = "fig4", "Figure 4", "figure"

    @dataclass(frozen=True)
    class Options:
        reference: str | None = reference_flag("the method whose line is drawn bold")
        all: bool = flag(False, "all methods in colour, not only the best three")

    def required_runs(self, selection: Selection, options: Options) -> RequiredRuns:
        of_profile = selection.profile.figures.get(self.name, {}).get("dataset")
        dataset = of_profile if of_profile in selection.datasets else selection.datasets[0]
        shown = [m for m in selection.methods if selection.entry(m).kind in (*MAIN_KINDS, "reference")]
        return RequiredRuns().add(selection.specs(shown, [dataset]))

    def make(self, inputs: Inputs, options: Options) -> Figure:
        from benchmark.exhibits.parts.panels import method_curves

        contents = inputs.compared_with(options.reference)
        datasets = tuple(d for d in contents.datasets if d.name in inputs.datasets)
        return inputs.with_status(
            method_curves(inputs.epochs, replace(contents, datasets=datasets), all_in_colour=options.all)
        )
