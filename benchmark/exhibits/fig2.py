"""Figure 2: one method under uniform (PLL) and instance-dependent (IDPLL) candidate labels of the same average size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmark.errors import UsageError
from benchmark.exhibits.base import Exhibit, Inputs, NoFlags, RequiredRuns, figure_datasets
from benchmark.exhibits.parts.style import DASH, Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmark.config.resolution import Override
    from benchmark.config.selection import Selection


class Figure2(Exhibit):
    name, title, kind = "fig2", "Figure 2", "figure"

    def required_runs(self, selection: Selection, options: NoFlags) -> RequiredRuns:
        required = RequiredRuns()
        method = selection.profile.figures.get(self.name, {}).get("method", "proden")
        for dataset in figure_datasets(selection, self.name):
            required.add(selection.specs([method], [dataset]), "IDPLL")
            required.add(selection.specs([method], [dataset], extra=uniform_like(selection, dataset)), "PLL")
        return required

    def make(self, inputs: Inputs, options: NoFlags) -> Figure:
        from benchmark.exhibits.parts.panels import Curve, Panel, curve_panels

        pll, idpll = Style("#0072B2", DASH, "s"), Style("#D55E00", "-", "o")
        panels = [
            Panel(title, (Curve("PLL", dataset, "PLL", pll), Curve("IDPLL", dataset, "IDPLL", idpll)))
            for dataset, title in inputs.datasets.items()
        ]
        return inputs.with_status(curve_panels(inputs.epochs, panels))


def uniform_like(selection: Selection, dataset: str) -> list[Override]:
    """Return settings of uniform candidate labels with the expected size of the profile's instance-dependent ones."""
    from benchmark.config.resolution import Override
    from benchmark.config.sections import Data, fields_of

    source = selection.source(dataset)
    if source.own_candidates:
        raise UsageError(
            f"{dataset} has its own candidate sets and Figure 2 compares generated ones; name other datasets."
        )
    data = selection.profile.data.get(dataset, {})
    classes = int(data.get("settings", {}).get("classes") or source.num_classes or 2)
    size = data.get("target_size") or 1 + data.get("rate", fields_of(Data)["rate"].default) * classes
    rate = (size - 1) / (classes - 1)
    settings = {"generator": "uniform", "rate": repr(round(rate, 6)), "target_size": "0.0"}
    return [Override("data", key, text) for key, text in settings.items()]
