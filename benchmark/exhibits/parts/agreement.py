"""Published accuracies and ours as dots, one line per number, each with its 95 % interval."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmark.analysis.agreement import Agreement

THEIRS, OURS = ("#666666", "D", "published"), ("#0072B2", "o", "ours")


def draw(found: list[Agreement]) -> Figure:
    """Sources from top to bottom; differing cells are printed bold."""
    from matplotlib import rc_context

    from benchmark.analysis.agreement import count
    from benchmark.exhibits.parts.style import RC, canvas

    figure, grid = canvas(1, 1, 7.5, 1.2 + 0.24 * len(found))
    axes = grid[0, 0]
    with rc_context(RC):
        for k, one in enumerate(found):
            theirs = (one.printed["mean"], one.printed["std"], int(one.printed["n"]))
            ours = (one.mean, one.std, len(one.values))
            for (middle, deviation, n), (colour, marker, label), shift in ((theirs, THEIRS, -0.14), (ours, OURS, 0.14)):
                bar = half_width(deviation, n)
                axes.errorbar(middle, k + shift, xerr=bar, color=colour, marker=marker, markersize=4, linewidth=1,
                              label=label if k == 0 else None)  # fmt: skip
        names = [f"{o.printed['source'].split(',')[0]}  {title(o)}" for o in found]
        axes.set_yticks(range(len(found)), names, fontsize=7)
        for tick, one in zip(axes.get_yticklabels(), found, strict=True):
            tick.set_fontweight("bold" if one.verdict == "differs" else "normal")
        axes.set_ylim(len(found) - 0.4, -0.6)
        axes.set_xlabel("Accuracy (%), mean and 95 % interval")
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=7, frameon=False
        )  # above: no row is covered
        words = (
            f"{count(found)}; those in bold differ" if any(one.verdict == "differs" for one in found) else count(found)
        )
        figure.supxlabel(words, fontsize=7, color="#666666", x=0.99, ha="right")
    return figure


def title(one: Agreement) -> str:
    labels = ", training labels" if one.printed["metric"] == "train" else ""
    return f"{one.printed['method']}{labels}, {one.printed['dataset']}"


def half_width(deviation: float, n: int) -> float | None:
    """Of the 95 % t interval of a mean; None where no deviation is printed."""
    from benchmark.analysis.statistics import critical_t

    return None if math.isnan(deviation) else critical_t(n) * deviation / math.sqrt(n)
