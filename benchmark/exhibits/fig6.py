"""Figure 6: CEL's accuracy by the length of its class-wise embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmark.exhibits.base import Exhibit, Inputs, NoFlags, RequiredRuns, figure_datasets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmark.config.selection import Selection

KEY = "embedding_length"
LENGTHS = (128, 256, 512, 768, 1024)
PAPER_LENGTH = 512  # filled in the drawing


class Figure6(Exhibit):
    name, title, kind = "fig6", "Figure 6", "figure"

    def required_runs(self, selection: Selection, options: NoFlags) -> RequiredRuns:
        required = RequiredRuns()
        for dataset in figure_datasets(selection, self.name):
            for length in selection.profile.figures.get(self.name, {}).get("lengths", LENGTHS):
                required.vary(selection.specs(["cel"], [dataset], {KEY: length}), KEY, float(length))
        return required

    def make(self, inputs: Inputs, options: NoFlags) -> Figure:
        from benchmark.exhibits.parts.panels import sensitivity

        titles, default = {KEY: "Length of the class-wise embedding"}, {KEY: float(PAPER_LENGTH)}
        return inputs.signed(sensitivity(inputs.points, titles, inputs.datasets, {"cel": "CEL"}, default))
