"""Figure 6: CEL's accuracy by the length of its class-wise embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmark.exhibits.base import Exhibit, Material, Need, NoFlags, chosen

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmark.config.selection import Selection

LENGTHS = (128, 256, 512, 768, 1024)
PAPER_LENGTH = 512  # filled in the drawing


class Figure6(Exhibit):
    name, title, kind = "fig6", "Figure 6", "figure"

    def runs(self, selection: Selection, options: NoFlags) -> Need:
        need = Need()
        for dataset in chosen(selection, self.name):
            for length in selection.profile.figures.get(self.name, {}).get("lengths", LENGTHS):
                need.vary(selection.specs(["cel"], [dataset], {"embedding_length": length}), "embedding_length", length)
        return need

    def make(self, material: Material, options: NoFlags) -> Figure:
        from benchmark.exhibits.parts.sensitivity import one_parameter

        material.check_there_is_one(self.name)
        title = "Length of the class-wise embedding"
        figure = one_parameter(material.points, "embedding_length", title, material.datasets, PAPER_LENGTH)
        return material.signed(figure)
