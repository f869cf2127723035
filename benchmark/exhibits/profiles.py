"""Performance profiles: on what share of the runs is a method within so many points of the best?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from benchmark.exhibits.base import Exhibit, Material, Need, OfMarked

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from benchmark.analysis.contents import Contents
    from benchmark.plan.selection import Selection

STEPS = 200


class Profiles(Exhibit):
    name, title, kind = "profiles", "Performance profiles", "plot"
    Options = OfMarked

    def runs(self, selection: Selection, options: OfMarked) -> Need:
        need = Need()
        need.add(selection.specs())
        return need

    def make(self, material: Material, options: OfMarked) -> Figure:
        return draw(material.runs, replace(material.ranked(options), reference=options.reference))


def draw(runs: pd.DataFrame, contents: Contents) -> Figure:
    """A step line per method, the highest area first; the band of the reference and of the best is a 95 % bootstrap."""
    import numpy as np
    from matplotlib import rc_context

    from benchmark.accuracy import LAST
    from benchmark.analysis import statistics as st
    from benchmark.analysis.overall import complete_cells
    from benchmark.exhibits.parts.style import RC, canvas, styles_of

    cells, whole, dropped = complete_cells(runs, contents, LAST)
    names = list(cells)
    scores = np.array([[v for d in whole for v in cells[name][d].values.values()] for name in names])
    strata = [d for d in whole for _ in contents.seeds]
    behind = st.shortfalls(scores)
    # Up to where nine tenths of all runs are: one method that fails must not squeeze the others.
    bounds = np.linspace(0, max(1.0, float(np.quantile(behind, 0.9))), STEPS)
    profiles = st.performance_profiles(behind, strata, bounds)
    order = np.argsort(-profiles.mean(axis=1), kind="stable")
    banded = {int(order[0]), *(i for i, name in enumerate(names) if name == contents.reference)}
    low, high = st.profile_bands(behind, strata, bounds, resamples=400)
    figure, grid = canvas(1, 1, 7.5, 4.4)
    axes, styles = grid[0, 0], styles_of(names)
    with rc_context(RC):
        for i in order:
            style, own = styles[names[i]], names[i] == contents.reference
            look = {"color": style.colour, "linestyle": style.line, "linewidth": 2.2 if own else 1.2}
            axes.step(bounds, 100 * profiles[i], where="post", label=contents.titles[names[i]], **look)
            if i in banded:
                axes.fill_between(
                    bounds, 100 * low[i], 100 * high[i], step="post", color=style.colour, alpha=0.12, lw=0
                )
        axes.set_xlim(0, bounds[-1])
        axes.set_ylim(0, 102)
        axes.set_xlabel("Points behind the best method of the run")
        axes.set_ylabel("Share of runs (%)")
        figure.legend(loc="outside right upper", fontsize=8)
        sets = ", ".join(contents.titles[d] for d in whole)
        note = f"{sets}, {len(contents.seeds)} seeds; data sets count alike"
        if dropped:
            note += f"; left out as incomplete: {', '.join(contents.titles[d] for d in dropped)}"
        note += "\nBand: 95 % when seeds are drawn again. Who is the best of a run depends on who is drawn"
        axes.set_title(note, fontsize=8, loc="left")
    return figure
