"""All methods over all data sets: averages with intervals, and one method against each other by tests over data sets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmark.accuracy import LAST, Accuracy
from benchmark.analysis import statistics as st
from benchmark.analysis.comparisons import Measured, measure, relevant
from benchmark.analysis.contents import MARGIN, Contents
from benchmark.errors import MissingRuns
from datasets.base import plural

if TYPE_CHECKING:
    import pandas as pd

NOTHING = (math.nan, math.nan, math.nan)
FURTHER = ("further_better", "further_equal", "further_worse")  # on a data set that is not in the table
Cells = Mapping[str, Mapping[str, Measured]]  # by method, then by data set


@dataclass(frozen=True)
class Aggregate:
    """One record per method, the best average first."""

    records: tuple[dict[str, Any], ...]
    datasets: tuple[str, ...]
    dropped: tuple[str, ...]  # data sets on which a method has not all its seeds
    least: float  # the least p of a signed-rank test over these data sets
    least_holm: float
    why_no_model: str
    flat: tuple[tuple[str, str], ...]  # method and data set whose differences to the reference do not vary
    seeds: int

    @property
    def complete(self) -> bool:
        return not self.dropped

    def remarks(self, titles: Mapping[str, str]) -> list[str]:
        notes = left_out(self.dropped, titles)
        if self.why_no_model:
            notes.append(f"Further set is not given: {self.why_no_model}")
        if self.flat:
            cells = ", ".join(f"{titles[method]} on {titles[dataset]}" for method, dataset in self.flat)
            notes.append(f"Warning: the difference is the same for every seed, so the model leaves it out: {cells}.")
        if self.seeds < 2:
            notes.append("With one seed there is no interval over seeds.")
        if len(self.datasets) < 2:
            notes.append("With one data set there is no interval for new ones.")
        return notes


@dataclass(frozen=True)
class Pairs:
    """One record per pair of methods, those with the better average first."""

    names: tuple[str, ...]  # the best average first
    records: tuple[dict[str, Any], ...]
    datasets: tuple[str, ...]
    dropped: tuple[str, ...]
    least: float
    least_holm: float


def signed_rank_limit(datasets: int, tests: int, alpha: float) -> str:
    """What the number of data sets allows: the least p, and how many would be needed."""
    least = 2.0 ** (1 - datasets)
    adjusted = min(1.0, least * tests)
    family = f" over {tests} tests" if tests > 1 else ""
    limit = f"With {plural(datasets, 'data set')} its p is at least {least:.2g}, after Holm{family} {adjusted:.2g}"
    if adjusted <= alpha:
        return f"{limit}."
    return f"{limit}: nothing can be significant; {math.ceil(1 + math.log2(tests / alpha))} data sets are needed."


def left_out(dropped: Sequence[str], titles: Mapping[str, str]) -> list[str]:
    listed = ", ".join(titles[name] for name in dropped)
    return [f"Incomplete: left out because a method has not all its seeds there: {listed}."] if dropped else []


def complete_cells(runs: pd.DataFrame, contents: Contents, accuracy: Accuracy) -> tuple[Cells, list[str], list[str]]:
    """The main methods on the data sets where all of them have all seeds; names of those sets, and of the others."""
    runs = relevant(runs, contents)
    cells = {
        m.name: {d.name: measure(runs, contents, d.name, m.name, accuracy) for d in contents.datasets}
        for m in contents.main_methods
    }
    whole = [d.name for d in contents.datasets if all(own[d.name].complete for own in cells.values())]
    dropped = [d.name for d in contents.datasets if d.name not in whole]
    if len(cells) < 2 or not whole:
        raise MissingRuns(
            f"Nothing to average for profile {contents.profile}: two methods and a data set on which all have all seeds are "
            f"needed (incomplete: {', '.join(dropped) or 'none'})."
        )
    return cells, whole, dropped


def all_pairs(runs: pd.DataFrame, contents: Contents, accuracy: Accuracy = LAST) -> Pairs:
    """Every main method against every other over the data sets, by Wilcoxon's test with Holm over all pairs."""
    cells, whole, dropped = complete_cells(runs, contents, accuracy)
    means = {name: [own[d].mean for d in whole] for name, own in cells.items()}
    names = sorted(means, key=lambda name: -st.mean(means[name]))
    scores = np.array([means[name] for name in names]).T
    pairs = list(itertools.combinations(range(len(names)), 2))
    tests = st.signed_ranks(scores, pairs)
    records = []
    for (a, b), p, p_holm in zip(pairs, tests.p, tests.p_holm, strict=True):
        differences = scores[:, a] - scores[:, b]
        ahead, behind = differences > st.ZERO_TOLERANCE, differences < -st.ZERO_TOLERANCE
        records.append(
            {
                "method": names[a],
                "other": names[b],
                "profile": contents.profile,
                "accuracy": accuracy.key,
                "datasets": list(whole),
                "n": len(whole),
                "mean_difference": float(differences.mean()),
                "ahead": int(ahead.sum()),
                "equal": int((~ahead & ~behind).sum()),
                "behind": int(behind.sum()),
                "p": float(p),
                "p_holm": float(p_holm),
            }
        )
    return Pairs(tuple(names), tuple(records), tuple(whole), tuple(dropped), tests.least, tests.least_holm)


def aggregate(runs: pd.DataFrame, contents: Contents, accuracy: Accuracy = LAST, margin: float = MARGIN) -> Aggregate:
    """Averages of every main method, and the reference against each other one."""
    cells, whole, dropped = complete_cells(runs, contents, accuracy)
    values = {name: [list(own[d].values.values()) for d in whole] for name, own in cells.items()}
    reference = contents.reference
    names = [reference, *(name for name in cells if name != reference)]
    ranked = st.signed_ranks(np.array([[st.mean(cell) for cell in values[name]] for name in names]).T)
    tests = {name: (float(p), float(holm)) for name, p, holm in zip(names[1:], ranked.p, ranked.p_holm, strict=True)}
    paired = {name: _differences(cells[reference], cells[name], whole) for name in names[1:]}
    why = _no_model(list(paired.values()))
    records: list[dict[str, Any]] = []
    for name, own in values.items():
        low, high = st.stratified_bootstrap_mean(own) if len(contents.seeds) > 1 else NOTHING[:2]
        new_low, new_high = st.two_level_bootstrap_mean(own) if len(whole) > 1 else NOTHING[:2]
        record = {
            "method": name,
            "profile": contents.profile,
            "accuracy": accuracy.key,
            "datasets": list(whole),
            "mean": st.mean([st.mean(cell) for cell in own]),
            "low": low,
            "high": high,
            "new_low": new_low,
            "new_high": new_high,
        }
        records.append(record | _against(paired.get(name), tests.get(name), margin, not why))
    records.sort(key=lambda r: -r["mean"])
    flat = tuple(_flat(paired, whole)) if len(contents.seeds) > 1 else ()
    limits = (ranked.least, ranked.least_holm)
    return Aggregate(tuple(records), tuple(whole), tuple(dropped), *limits, why, flat, len(contents.seeds))


def _differences(a: Mapping[str, Measured], b: Mapping[str, Measured], datasets: Sequence[str]) -> list[list[float]]:
    return [[a[d].values[seed] - b[d].values[seed] for seed in a[d].values] for d in datasets]


def _against(
    paired: list[list[float]] | None, tests: tuple[float, float] | None, margin: float, model: bool
) -> dict[str, Any]:
    """The reference against one method; nothing for the reference itself."""
    nan = math.nan
    better = st.Probability(nan, nan, nan, exact=False) if paired is None else st.probability_better(paired)
    p, p_holm = tests or (nan, nan)
    usable = [d for d in paired or () if st.sample_std(d) > st.ZERO_TOLERANCE]
    shares = st.hierarchical(usable).shares(margin) if model and len(usable) >= st.LEAST_DATASETS else NOTHING
    return {
        "difference": nan if paired is None else st.mean([st.mean(d) for d in paired]),
        "p_better": better.value,
        "p_better_low": better.low,
        "p_better_high": better.high,
        "p": p,
        "p_holm": p_holm,
        **dict(zip(FURTHER, shares, strict=True)),
    }


def _no_model(paired: Sequence[Sequence[Sequence[float]]]) -> str:
    """Why the model over data sets cannot be had, as a sentence; empty where it can."""
    many = len(paired[0])
    if many < st.LEAST_DATASETS:
        return f"a model over data sets needs {st.LEAST_DATASETS} of them or more, not {many}."
    if min(len(d) for own in paired for d in own) < 2:
        return "it needs two seeds or more."
    return ""


def _flat(paired: Mapping[str, Sequence[Sequence[float]]], datasets: Sequence[str]) -> list[tuple[str, str]]:
    """Methods and data sets whose differences to the reference are the same for every seed."""
    return [
        (name, dataset)
        for name, own in paired.items()
        for dataset, d in zip(datasets, own, strict=True)
        if st.sample_std(d) <= st.ZERO_TOLERANCE
    ]
