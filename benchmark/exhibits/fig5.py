"""Figure 5: CEL's sensitivity to α, β, γ₁ and γ₂, one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmark.exhibits.base import Exhibit, Inputs, NoFlags, RequiredRuns, figure_datasets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmark.config.selection import Selection

VALUES = {
    "alpha": (0.1, 0.5, 1.0),
    "beta": (0.1, 0.5, 1.0),
    "gamma1": (0.5, 1.0, 2.0, 5.0),
    "gamma2": (0.5, 1.0, 2.0, 5.0),
}
TITLES = {"alpha": "α", "beta": "β", "gamma1": "γ₁", "gamma2": "γ₂"}


class Figure5(Exhibit):
    name, title, kind = "fig5", "Figure 5", "figure"

    def required_runs(self, selection: Selection, options: NoFlags) -> RequiredRuns:
        required = RequiredRuns()
        for dataset in figure_datasets(selection, self.name):
            for key, values in VALUES.items():
                for value in values:
                    required.vary(selection.specs(["cel"], [dataset], {key: value}), key, value)
        return required

    def make(self, inputs: Inputs, options: NoFlags) -> Figure:
        from benchmark.exhibits.parts.panels import sensitivity

        defaults = inputs.selection.specs(["cel"], list(inputs.datasets)[:1])[0].config.method_config
        return inputs.signed(sensitivity(inputs.points, TITLES, inputs.datasets, {"cel": "CEL"}, defaults))
