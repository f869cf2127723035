"""How many seeds would show a given difference, from the spread that the runs so far have shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from benchmark.analysis import statistics as st
from benchmark.analysis.comparisons import ALPHA, compare_runs, differences
from benchmark.analysis.contents import Contents
from benchmark.analysis.table import Table, row
from benchmark.errors import MissingRuns

if TYPE_CHECKING:
    import pandas as pd


def seeds_table(runs: pd.DataFrame, contents: Contents, wanted: float) -> Table:
    """A line per data set: the spread of the difference between the reference and each other method, and the seeds."""
    records = compare_runs(runs, contents)
    family = max(1, sum(r["outcome"] != st.MISSING for r in records))
    lines, data = [], []
    for dataset in contents.datasets:
        paired = [d for r in records if r["dataset"] == dataset.name and len(d := differences(r)) > 1]
        if not paired:
            continue
        spreads = [st.sample_std(d) for d in paired]
        alone = [st.seeds_needed(d, wanted) for d in paired]
        adjusted = [st.seeds_needed(d, wanted, ALPHA / family) for d in paired]
        lines.append(
            row(
                dataset.title,
                str(len(paired)),
                *(f"{value:.2f}" for value in (np.median(spreads), max(spreads))),
                *(_whole(value) for values in (alone, adjusted) for value in (np.median(values), max(values))),
            )
        )
        data.append(
            {
                "dataset": dataset.name,
                "points": wanted,
                "comparisons": len(paired),
                "spreads": spreads,
                "seeds": alone,
                "seeds_holm": adjusted,
            }
        )
    if not lines:
        raise MissingRuns(
            f"No spread has been seen yet: {contents.titles.get(contents.reference, contents.reference)} and another method "
            f"need two common seeds on a data set; train some, for example with --seeds 0,1,2."
        )
    fewest = min(len(d) for r in records if len(d := differences(r)) > 1)
    low, high = st.std_interval(list(range(fewest)))
    unit = st.sample_std(list(range(fewest)))
    points = f"{wanted:g} point{'' if wanted == 1 else 's'}"
    caption = (
        f"Seeds that a paired t-test at {ALPHA:g} needs to find a difference of {points} with probability "
        f"{st.POWER:g}: {contents.titles.get(contents.reference, contents.reference)} against each method. "
        f"Profile {contents.profile}, device {contents.device}."
    )
    notes = (
        f"Spread: sample deviation of the difference over the seeds that are there. Holm: the first step of {family} tests.",
        f"With {fewest} seeds a deviation is known to {low / unit:.2f} to {high / unit:.2f} times its estimate only, and the "
        f"number of seeds goes with its square: take it as a first guess.",
    )
    columns = (
        *("Data set", "Comparisons", "Spread, median", "largest", "Seeds, median", "largest"),
        *("after Holm, median", "largest"),
    )
    return Table("", caption, columns, tuple(lines), notes, (), tuple(data), {"table": "seeds", "points": wanted})


def _whole(value: float) -> str:
    return "over 100,000" if math.isinf(value) else f"{math.ceil(value):,}"


def usual_reference(names: Sequence[str], reference: str) -> str:
    """The method under study, or the first of those that were chosen."""
    return reference if reference in names else names[0]
