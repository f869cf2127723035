"""Figure 5: CEL's sensitivity to α, β, γ₁ and γ₂, one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmark.exhibits.base import Exhibit, Material, Need, NoFlags, chosen

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

    def runs(self, selection: Selection, options: NoFlags) -> Need:
        need = Need()
        for dataset in chosen(selection, self.name):
            for key, values in VALUES.items():
                for value in values:
                    need.vary(selection.specs(["cel"], [dataset], {key: value}), key, value)
        return need

    def make(self, material: Material, options: NoFlags) -> Figure:
        from benchmark.exhibits.parts.sensitivity import sensitivity

        material.check_there_is_one(self.name)
        defaults = material.selection.specs(["cel"], list(material.datasets)[:1])[0].config.method_config
        return material.signed(sensitivity(material.points, TITLES, material.datasets, defaults))
