"""Compare every pair of methods over all datasets of a profile."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmark.accuracy import LAST, Accuracy
from benchmark.analysis import statistics as st
from benchmark.analysis.comparisons import measure, relevant
from benchmark.analysis.contents import LEAST_DATASETS, Contents
from benchmark.errors import MissingRuns

if TYPE_CHECKING:
    import pandas as pd

    from benchmark.analysis.statistics import Array


@dataclass(frozen=True)
class PairComparisons:
    """Pairs of methods, compared on the datasets where all methods have all seeds."""

    records: tuple[dict[str, Any], ...]  # one per pair; without a reference the better average is named first
    datasets: tuple[str, ...]
    incomplete: tuple[str, ...]  # datasets that are left out


def compare_pairs(
    runs: pd.DataFrame, contents: Contents, accuracy: Accuracy = LAST, reference: str | None = None
) -> PairComparisons:
    """Compare every two main methods, or the reference with each of the others; Holm's correction covers all pairs."""
    scores, complete, incomplete = complete_scores(runs, contents, accuracy)
    names = sorted(scores, key=lambda name: -float(scores[name].mean()))
    if reference is None:
        pairs = list(itertools.combinations(names, 2))
    else:
        pairs = [(reference, name) for name in names if name != reference]
    shared = {"profile": contents.profile, "accuracy": accuracy.key, "datasets": complete, "n": len(complete)}
    records = [{"method": a, "other": b, **shared, **compare_pair(scores[a], scores[b])} for a, b in pairs]
    for record, p in zip(records, st.holm([r["p"] for r in records]), strict=True):
        record["p_holm"] = float(p)
    return PairComparisons(tuple(records), tuple(complete), tuple(incomplete))


def complete_scores(
    runs: pd.DataFrame, contents: Contents, accuracy: Accuracy
) -> tuple[dict[str, Array], list[str], list[str]]:
    """Return the accuracies (datasets, seeds) of each main method on complete datasets, and the names of both kinds."""
    runs = relevant(runs, contents)
    methods = [m.name for m in contents.main_methods]
    cells = {(m, d.name): measure(runs, contents, d.name, m, accuracy) for m in methods for d in contents.datasets}
    complete = [d.name for d in contents.datasets if all(cells[m, d.name].complete for m in methods)]
    incomplete = [d.name for d in contents.datasets if d.name not in complete]
    if len(methods) < 2 or not complete:
        raise MissingRuns(
            f"No pair of methods can be compared for profile {contents.profile}: this needs two methods and a dataset on "
            f"which all methods have all seeds (incomplete: {', '.join(incomplete) or 'none'})."
        )
    scores = {m: np.array([[*cells[m, d].values.values()] for d in complete]) for m in methods}
    return scores, complete, incomplete


def compare_pair(first: Array, second: Array) -> dict[str, Any]:
    """Compare two methods by their accuracies (datasets, seeds); what cannot be computed is NaN.

    The t interval is of the difference averaged over datasets, with one value per seed. The bootstrap draws seeds anew
    inside each dataset. Wilcoxon's signed-rank test takes the mean over seeds of each dataset.
    """
    differences = first - second
    by_dataset = differences.mean(axis=1)
    low, high = st.t_interval(differences.mean(axis=0))
    several_seeds = differences.shape[1] > 1
    drawn = st.stratified_bootstrap_mean(list(differences)) if several_seeds else (math.nan, math.nan)
    better, better_low, better_high = st.probability_better(list(differences))
    enough = len(differences) >= LEAST_DATASETS
    return {
        "mean_difference": float(by_dataset.mean()),
        "ci_low": low,
        "ci_high": high,
        "bootstrap_low": drawn[0],
        "bootstrap_high": drawn[1],
        "p_better": better,
        "p_better_low": better_low,
        "p_better_high": better_high,
        "ahead": int((by_dataset > st.ZERO_TOLERANCE).sum()),
        "equal": int((np.abs(by_dataset) <= st.ZERO_TOLERANCE).sum()),
        "behind": int((by_dataset < -st.ZERO_TOLERANCE).sum()),
        "p": st.wilcoxon(first.mean(axis=1), second.mean(axis=1))[1] if enough else math.nan,
    }
