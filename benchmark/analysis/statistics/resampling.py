"""Intervals by resampling: of a mean, of an average over data sets, of the probability that one method beats another."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from benchmark.analysis.statistics.spread import ZERO_TOLERANCE, Array, floats


def exact_bootstrap_mean(values: ArrayLike, alpha: float = 0.05) -> tuple[float, float, int]:
    """Percentile interval of the mean over all n^n resamples of n <= 5 values, and n^n.

    It cannot reach beyond the observed extremes and covers far too little at n=3: a display aid, not an inference.
    """
    x = floats(values)
    if not 1 <= x.size <= 5:
        raise ValueError(f"All resamples are enumerated for 1 to 5 values, not {x.size}.")
    means = np.array(list(itertools.product(x, repeat=x.size))).mean(axis=1)
    low, high = np.quantile(means, [alpha / 2, 1 - alpha / 2])
    return float(low), float(high), len(means)


def two_level_bootstrap_mean(
    cells: Sequence[ArrayLike], alpha: float = 0.05, resamples: int = 9999, seed: int = 0
) -> tuple[float, float]:
    """Percentile interval of the average over data sets: resample data sets and, inside them, seeds; fixed seed.

    `cells` holds the per-seed values of each data set.
    """
    arrays = [floats(c) for c in cells]
    if not arrays or any(a.size == 0 for a in arrays):
        raise ValueError("The bootstrap over data sets needs at least one value for each data set.")
    rng = np.random.default_rng(seed)
    d = len(arrays)
    # Every drawn data set gets its own draw of seeds, also when it is drawn twice.
    inner = np.stack([a[rng.integers(a.size, size=(resamples, d, a.size))].mean(axis=-1) for a in arrays])  # (D, R, d)
    chosen = rng.integers(d, size=(resamples, d))
    means = inner[chosen, np.arange(resamples)[:, None], np.arange(d)].mean(axis=1)
    low, high = np.quantile(means, [alpha / 2, 1 - alpha / 2])
    return float(low), float(high)


def stratified_bootstrap_mean(
    cells: Sequence[ArrayLike], alpha: float = 0.05, resamples: int = 9999, seed: int = 0
) -> tuple[float, float]:
    """Percentile interval of the average over these data sets: seeds are drawn again inside each (Agarwal et al. 2021)."""
    arrays = [floats(c) for c in cells]
    if not arrays or any(a.size == 0 for a in arrays):
        raise ValueError("The bootstrap over data sets needs at least one value for each data set.")
    rng = np.random.default_rng(seed)
    means = np.mean([a[rng.integers(a.size, size=(resamples, a.size))].mean(axis=1) for a in arrays], axis=0)
    low, high = np.quantile(means, [alpha / 2, 1 - alpha / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class Probability:
    """A probability with its interval; `exact` where all runs agree, so that resampling them says nothing."""

    value: float
    low: float
    high: float
    exact: bool


def probability_better(cells: Sequence[ArrayLike], alpha: float = 0.05) -> Probability:
    """P(A > B) on a new seed (Bouthillier et al., MLSys 2021), averaged over data sets; 0.75 is called meaningful there.

    `cells` holds the paired differences of each data set. A difference of zero counts half. The interval is the
    stratified bootstrap's; where every seed says the same it is Clopper and Pearson's.
    """
    shares = [np.where(np.abs(d) <= ZERO_TOLERANCE, 0.5, (d > 0).astype(float)) for d in map(floats, cells)]
    value = float(np.mean([s.mean() for s in shares]))
    together = np.concatenate(shares)
    if together.min() < together.max() and any(s.min() < s.max() for s in shares):
        return Probability(value, *stratified_bootstrap_mean(shares, alpha), exact=False)
    won, n = float(together.sum()), together.size  # halves too, which SciPy's binomtest does not take
    low = special.betaincinv(won, n - won + 1, alpha / 2) if won else 0.0
    high = special.betaincinv(won + 1, n - won, 1 - alpha / 2) if won < n else 1.0
    return Probability(value, float(low), float(high), exact=True)


def shortfalls(scores: ArrayLike) -> Array:
    """(M, R) points below the best method of each run, from scores (M methods, R runs of a data set and seed each)."""
    x = floats(scores)
    return x.max(axis=0) - x


def performance_profiles(behind: ArrayLike, strata: ArrayLike, bounds: ArrayLike) -> Array:
    """(M, T) share of runs in which a method is at most `bounds` (T,) points behind the best; data sets count alike.

    Dolan and Moré, Mathematical Programming 91, 2002, with differences instead of ratios. `strata` (R,): the data set
    of each run of `behind` (M, R).
    """
    x, ids, t = floats(behind), np.asarray(strata), floats(bounds)
    within = x[:, :, None] <= t + ZERO_TOLERANCE  # (M, R, T)
    return np.mean([within[:, ids == one].mean(axis=1) for one in np.unique(ids)], axis=0)


def profile_bands(
    behind: ArrayLike, strata: ArrayLike, bounds: ArrayLike, alpha: float = 0.05, resamples: int = 999, seed: int = 0
) -> tuple[Array, Array]:
    """Lower and upper ends (M, T) of the profiles when seeds are drawn again inside each data set."""
    x, ids = floats(behind), np.asarray(strata)
    rng = np.random.default_rng(seed)
    places = [np.flatnonzero(ids == one) for one in np.unique(ids)]
    drawn = []
    for _ in range(resamples):
        columns = np.concatenate([rng.choice(p, p.size) for p in places])
        drawn.append(performance_profiles(x[:, columns], ids[columns], bounds))
    low, high = np.quantile(drawn, [alpha / 2, 1 - alpha / 2], axis=0)
    return low, high
