"""Figure 2: one method under uniform (PLL) and instance-dependent (IDPLL) candidate labels of the same average size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmark.errors import UsageError
from benchmark.exhibits.base import Exhibit, Material, Need, NoFlags, chosen

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmark.config.resolution import Override
    from benchmark.config.selection import Selection


class Figure2(Exhibit):
    name, title, kind = "fig2", "Figure 2", "figure"

    def runs(self, selection: Selection, options: NoFlags) -> Need:
        need = Need()
        method = selection.profile.figures.get(self.name, {}).get("method", "proden")
        for dataset in chosen(selection, self.name):
            need.add(selection.specs([method], [dataset]), "IDPLL")
            need.add(selection.specs([method], [dataset], extra=uniform_like(selection, dataset)), "PLL")
        return need

    def make(self, material: Material, options: NoFlags) -> Figure:
        from benchmark.exhibits.parts.panels import Curve, Panel, curve_panels
        from benchmark.exhibits.parts.style import DASH, Style

        material.check_there_is_one(self.name)
        pll, idpll = Style("#0072B2", DASH, "s"), Style("#D55E00", "-", "o")
        panels = [
            Panel(title, (Curve("PLL", dataset, "PLL", pll), Curve("IDPLL", dataset, "IDPLL", idpll)))
            for dataset, title in material.datasets.items()
        ]
        return material.signed(curve_panels(material.epochs, panels))


def uniform_like(selection: Selection, dataset: str) -> list[Override]:
    """Uniform candidate labels of the same expected size as the profile's instance-dependent ones."""
    from benchmark.config.resolution import Override
    from benchmark.config.sections import Data, fields_of

    source = selection.source(dataset)
    if source.own_candidates:
        raise UsageError(
            f"{dataset} brings its own candidate sets; Figure 2 compares generated ones, name other data sets."
        )
    data = selection.profile.data.get(dataset, {})
    classes = int(data.get("settings", {}).get("classes") or source.num_classes or 2)
    size = data.get("target_size") or 1 + data.get("rate", fields_of(Data)["rate"].default) * classes
    rate = (size - 1) / (classes - 1)
    return [
        Override("data", "generator", "uniform"),
        Override("data", "rate", repr(round(rate, 6))),
        Override("data", "target_size", "0.0"),
    ]
