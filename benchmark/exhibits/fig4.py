"""Figure 4: accuracy curves of all main methods on one data set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmark.analysis.contents import MAIN_KINDS
from benchmark.exhibits.base import Exhibit, Material, Need, reference_flag

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmark.config.selection import Selection


class Figure4(Exhibit):
    name, title, kind = "fig4", "Figure 4", "figure"

    @dataclass(frozen=True)
    class Options:
        reference: str = reference_flag("the method that stands out")

    def runs(self, selection: Selection, options: Options) -> Need:
        wanted = selection.profile.figures.get(self.name, {}).get("dataset")
        dataset = wanted if wanted in selection.datasets else selection.datasets[0]
        main = [m for m in selection.methods if selection.entry(m).kind in MAIN_KINDS]
        need = Need()
        need.add(selection.specs(main, [dataset]))
        return need

    def make(self, material: Material, options: Options) -> Figure:
        from benchmark.analysis.comparisons import relevant
        from benchmark.exhibits.parts.panels import Curve, Panel, curve_panels

        material.check_there_is_one(self.name)
        contents = material.contents
        panels = [
            Panel(title, tuple(Curve(m.title, dataset, m.name) for m in contents.main_methods))
            for dataset, title in material.datasets.items()
        ]
        epochs = relevant(material.epochs, contents)
        return material.signed(curve_panels(epochs, panels, reference=options.reference))
