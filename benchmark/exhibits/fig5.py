"""Figure 5: CEL's sensitivity to α, β, γ₁ and γ₂, one at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

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


class Figure5(Exhibit):
    name, title, kind = "fig5", "Figure 5", "figure"
    titles: ClassVar[dict[str, str]] = {"alpha": "α", "beta": "β", "gamma1": "γ₁", "gamma2": "γ₂"}

    def values(self, selection: Selection) -> Mapping[str, Sequence[float]]:
        """Return the values of each setting."""
        return VALUES

    def required_runs(self, selection: Selection, options: NoFlags) -> RequiredRuns:
        required = RequiredRuns()
        for dataset in figure_datasets(selection, self.name):
            for key, values in self.values(selection).items():
                for value in values:
                    required.add_point(selection.specs(["cel"], [dataset], {key: value}), key, float(value))
        return required

    def make(self, inputs: Inputs, options: NoFlags) -> Figure:
        from benchmark.exhibits.parts.panels import sensitivity

        defaults = inputs.selection.specs(["cel"], list(inputs.datasets)[:1])[0].method_config
        return inputs.with_status(sensitivity(inputs.points, self.titles, inputs.datasets, {"cel": "CEL"}, defaults))
