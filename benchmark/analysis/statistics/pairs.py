"""Two methods on one data set: tests of their runs, matched by seed or from what is left of them in print."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import scipy  # scipy.stats takes a second to import: only what needs it pays, by SciPy's own lazy attribute
from numpy.typing import ArrayLike, NDArray
from scipy import special

from benchmark.analysis.contents import TEST_NAMES
from benchmark.analysis.statistics.spread import ZERO_TOLERANCE, Array, floats, mean, sample_std, t_interval

WIN, TIE, LOSS, MISSING = 1, 0, -1, 9
TESTS = tuple(TEST_NAMES)


@dataclass(frozen=True)
class Comparison:
    """One method against another on one data set, from the first one's side."""

    n: int  # pairs for a paired test, else the smaller number of runs
    mean_difference: float
    t: float  # Wilcoxon: the smaller rank sum
    df: float
    p: float
    ci_low: float
    ci_high: float
    effect: float  # paired: d_z; unpaired: Hedges' g
    outcome: int
    seeds: tuple[int, ...] = ()
    flags: tuple[str, ...] = ()


def _not_available(n: int, seeds: tuple[int, ...] = (), flags: tuple[str, ...] = ()) -> Comparison:
    nan = math.nan
    return Comparison(n, nan, nan, nan, nan, nan, nan, nan, MISSING, seeds, flags)


def outcome_of(p: float, difference: float, alpha: float) -> int:
    """Win, tie or loss from a p value and the sign of the difference; missing without a p value."""
    if math.isnan(p):
        return MISSING
    if p >= alpha or difference == 0:
        return TIE
    return WIN if difference > 0 else LOSS


def paired_t(a: ArrayLike, b: ArrayLike, alpha: float = 0.05, zero_tolerance: float = ZERO_TOLERANCE) -> Comparison:
    """Two-sided paired t-test of a and b, (n,) each, same seeds in the same order; nan pairs must be gone already.

    Where the differences do not vary SciPy gives nan or inf. Here: all zero is a tie with p=1; constant but not zero is
    a win or loss with p=0 and the flag `zero_variance`, for it almost always means that runs are copies of each other.
    """
    d = floats(a) - floats(b)
    n = int(d.size)
    if n < 2:
        return _not_available(n)
    difference, spread = mean(d), sample_std(d)
    if spread <= zero_tolerance:
        if abs(difference) <= zero_tolerance:
            return Comparison(n, 0.0, 0.0, n - 1, 1.0, 0.0, 0.0, 0.0, TIE, flags=("zero_variance",))
        infinite = math.copysign(math.inf, difference)
        outcome = WIN if difference > 0 else LOSS
        return Comparison(
            n, difference, infinite, n - 1, 0.0, difference, difference, infinite, outcome, flags=("zero_variance",)
        )
    test = scipy.stats.ttest_rel(floats(a), floats(b))
    low, high = t_interval(d, 1 - alpha)
    p = float(test.pvalue)
    outcome = outcome_of(p, difference, alpha)
    return Comparison(n, difference, float(test.statistic), n - 1, p, low, high, difference / spread, outcome)


def common_seeds(a: Mapping[int, float], b: Mapping[int, float]) -> tuple[int, ...]:
    """Seeds on which both have a finite accuracy, sorted."""
    return tuple(sorted(s for s in a.keys() & b.keys() if math.isfinite(a[s]) and math.isfinite(b[s])))


def paired_t_by_seed(
    a: Mapping[int, float], b: Mapping[int, float], alpha: float = 0.05, min_pairs: int = 2
) -> Comparison:
    """Paired t-test of accuracies keyed by seed: matched by seed id, whatever the order; nan counts as not run."""
    seeds = common_seeds(a, b)
    if len(seeds) < max(2, min_pairs):
        return _not_available(len(seeds), seeds)
    result = paired_t([a[s] for s in seeds], [b[s] for s in seeds], alpha)
    return replace(result, seeds=seeds)


@dataclass(frozen=True)
class Summary:
    """What is left of runs in print: mean, standard deviation and number of runs, (m,) each."""

    mean: ArrayLike
    std: ArrayLike
    n: ArrayLike


def _arrays(a: Summary, b: Summary) -> list[Array]:
    return list(np.broadcast_arrays(*map(floats, (a.mean, a.std, a.n, b.mean, b.std, b.n))))


def unpaired_t(
    a: Summary, b: Summary, *, equal_var: bool = True, std_ddof: int = 1, alpha: float = 0.05
) -> dict[str, NDArray]:
    """Two-sided two-sample t-tests from summaries: pooled (`equal_var`) or Welch's.

    `std_ddof` 0 says that the given deviations are the population form. Returns t, df, p and outcome, (m,) each.
    """
    m1, s1, k1, m2, s2, k2 = _arrays(a, b)
    if (s1 < 0).any() or (s2 < 0).any():
        raise ValueError("A standard deviation is negative; correct the summary before testing it.")
    if std_ddof not in (0, 1):
        raise ValueError(f"std_ddof is {std_ddof}; it is 1 for the sample form or 0 for the population form.")
    with np.errstate(all="ignore"):
        if std_ddof == 0:
            s1, s2 = s1 * np.sqrt(k1 / (k1 - 1)), s2 * np.sqrt(k2 / (k2 - 1))
        v1, v2 = s1**2 / k1, s2**2 / k2
        pooled = k1 + k2 - 2
        df = pooled if equal_var else (v1 + v2) ** 2 / (v1**2 / (k1 - 1) + v2**2 / (k2 - 1))
        t, p = scipy.stats.ttest_ind_from_stats(m1, s1, k1, m2, s2, k2, equal_var=equal_var)
    difference = m1 - m2
    # The same rules as for pairs where nothing varies: equal is a tie, different is certain.
    flat, same = np.maximum(s1, s2) <= ZERO_TOLERANCE, np.abs(difference) <= ZERO_TOLERANCE
    df = np.where(flat, pooled, df)
    t = np.where(flat, np.where(same, 0.0, np.copysign(np.inf, difference)), t)
    p = np.where(flat, np.where(same, 1.0, 0.0), p)
    available = (k1 >= 2) & (k2 >= 2) & np.isfinite(m1) & np.isfinite(m2) & np.isfinite(s1) & np.isfinite(s2)
    t, df, p = (np.where(available, x, np.nan) for x in (t, df, p))
    outcome = np.where(p < alpha, np.sign(difference), TIE)
    outcome = np.where(available, outcome, MISSING).astype(np.int64)
    return {"t": t, "df": df, "p": p, "outcome": outcome}


def hedges_g(a: Summary, b: Summary) -> dict[str, NDArray]:
    """Standardised differences from summaries, (m,) each: cohen_d, the exact small-sample correction, hedges_g.

    The unit is the spread between seeds, so values are huge; print the difference in accuracy points beside them.
    """
    m1, s1, k1, m2, s2, k2 = _arrays(a, b)
    df = k1 + k2 - 2
    with np.errstate(divide="ignore", invalid="ignore"):
        d = (m1 - m2) / np.sqrt(((k1 - 1) * s1**2 + (k2 - 1) * s2**2) / df)
        correction = np.exp(special.gammaln(df / 2) - special.gammaln((df - 1) / 2)) / np.sqrt(df / 2)
        return {"cohen_d": d, "correction": correction, "hedges_g": correction * d}


def wilcoxon(a: ArrayLike, b: ArrayLike) -> tuple[float, float]:
    """Signed-rank test of pairs, (n,) each: the smaller rank sum and its two-sided p.

    Zero differences are left out, tied sizes share the mean rank; nothing left: p=1. SciPy's p is exact up to 50 pairs,
    with ties up to 13, and the normal approximation beyond.
    """
    d = floats(a) - floats(b)
    d = d[np.abs(d) > ZERO_TOLERANCE]
    if not d.size:
        return 0.0, 1.0
    # Rounding to the tolerance keeps 0.1 and 0.30000000000000004-0.2 tied.
    test = scipy.stats.wilcoxon(np.round(d, 9))
    return float(test.statistic), float(test.pvalue)


def compare(
    a: Mapping[int, float],
    b: Mapping[int, float],
    test: str = "paired",
    alpha: float = 0.05,
    expected: int | None = None,
) -> Comparison:
    """Test accuracies keyed by seed with one of `TESTS`; `expected` seeds not all used give the flag `missing_seeds`."""
    if test not in TESTS:
        raise ValueError(f"Unknown test '{test}'; known are {', '.join(TESTS)}.")
    seeds = common_seeds(a, b)
    if test in ("paired", "wilcoxon"):
        result = paired_t_by_seed(a, b, alpha)
        if test == "wilcoxon" and result.outcome != MISSING:
            result = _as_wilcoxon(result, [a[s] for s in seeds], [b[s] for s in seeds], alpha)
    else:
        x, y = (np.array([v for v in runs.values() if math.isfinite(v)]) for runs in (a, b))
        result = _unpaired(x, y, test == "student", alpha)
    flags: tuple[str, ...] = ()
    if expected is not None and result.n < expected:
        flags += ("missing_seeds",)
    if result.n < 3:
        flags += ("n_below_3",)
    return replace(result, seeds=seeds, flags=result.flags + flags)


def _as_wilcoxon(paired: Comparison, a: list[float], b: list[float], alpha: float) -> Comparison:
    statistic, p = wilcoxon(a, b)
    outcome = outcome_of(p, paired.mean_difference, alpha)
    return replace(paired, t=statistic, df=math.nan, p=p, outcome=outcome)


def _unpaired(x: Array, y: Array, equal_var: bool, alpha: float) -> Comparison:
    n = min(x.size, y.size)
    if n < 2:
        return _not_available(n)
    one, other = (Summary(mean(z), sample_std(z), z.size) for z in (x, y))
    test = {k: v.item() for k, v in unpaired_t(one, other, equal_var=equal_var, alpha=alpha).items()}
    difference = mean(x) - mean(y)
    values = (n, difference, test["t"], test["df"], test["p"])
    if max(sample_std(x), sample_std(y)) <= ZERO_TOLERANCE:
        return Comparison(*values, difference, difference, test["t"], test["outcome"], flags=("zero_variance",))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # one side may well not vary
        low, high = scipy.stats.ttest_ind(x, y, equal_var=equal_var).confidence_interval(1 - alpha)
    return Comparison(*values, float(low), float(high), hedges_g(one, other)["hedges_g"].item(), test["outcome"])
