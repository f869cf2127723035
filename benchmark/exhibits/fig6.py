"""Figure 6: CEL's accuracy by the length of its class-wise embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from benchmark.exhibits.fig5 import Figure5

if TYPE_CHECKING:
    from benchmark.config.selection import Selection

LENGTHS = (128, 256, 512, 768, 1024)


class Figure6(Figure5):
    name, title, kind = "fig6", "Figure 6", "figure"
    titles: ClassVar[dict[str, str]] = {"embedding_length": "Length of the class-wise embedding"}

    def values(self, selection: Selection) -> Mapping[str, Sequence[float]]:
        """Return the lengths of the profile, or the paper's."""
        return {"embedding_length": selection.profile.figures.get(self.name, {}).get("lengths", LENGTHS)}
