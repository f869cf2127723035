"""Statistics of the tables: spreads, tests per cell, win/tie/loss counts, power, ranks over datasets, intervals by resampling.

Outcomes are coded from the first method's side: `WIN`, `TIE`, `LOSS`, and `MISSING` where there is too little data for a
test, which is never counted as a tie. Standard deviations are the sample form (divisor n-1) unless a name says otherwise.
docs/statistics.md explains all of it.

References: Demšar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7, 2006; Holm, Scand. J.
Statist. 6, 1979; Hedges, J. Educ. Statist. 6, 1981; Cohen, "Statistical power analysis", 1988; Schuirmann, J. Pharmacokin.
Biopharm. 15, 1987.
"""

from __future__ import annotations

import functools
import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy  # scipy.stats takes a second to import: only what needs it pays, by SciPy's own lazy attribute
from numpy.typing import ArrayLike, NDArray
from scipy import special

from benchmark.analysis.contents import MARGIN

# Mean, spread and interval of the runs of one cell --------------------------------------------------------------------
# Differences such as 70.1-69.8 and 70.4-70.1 are not the same float: below this, a spread is rounding noise.
ZERO_TOLERANCE = 1e-9

Array = NDArray[np.float64]


def floats(values: ArrayLike) -> Array:
    return np.asarray(values, dtype=np.float64)


def mean(values: ArrayLike) -> float:
    """Return the mean; nan for no values."""
    x = floats(values)
    return float(x.mean()) if x.size else math.nan


def sample_std(values: ArrayLike) -> float:
    """Return the standard deviation with divisor n-1; nan for fewer than two values."""
    x = floats(values)
    return float(x.std(ddof=1)) if x.size > 1 else math.nan


def critical_t(n: int, alpha: float = 0.05) -> float:
    """Return the |t| that a two-sided one-sample or paired test on n values has to exceed."""
    return float(special.stdtrit(n - 1, 1 - alpha / 2)) if n > 1 else math.inf


def t_interval(values: ArrayLike, confidence: float = 0.95) -> tuple[float, float]:
    """Return Student's interval of the mean; (nan, nan) for fewer than two values."""
    x = floats(values)
    if x.size < 2:
        return math.nan, math.nan
    half = critical_t(x.size, 1 - confidence) * sample_std(x) / math.sqrt(x.size)
    return mean(x) - half, mean(x) + half


def binomial_se(accuracy: float, test_size: int) -> float:
    """Return the standard error, in points, that a finite test set gives an accuracy in percent."""
    return math.sqrt(accuracy * (100 - accuracy) / test_size)


# Two methods on one dataset -------------------------------------------------------------------------------------------
WIN, TIE, LOSS, MISSING = 1, 0, -1, 9


@dataclass(frozen=True)
class Comparison:
    """Comparison of one method with another on one dataset, from the first one's side."""

    n: int  # pairs for a paired test, else the smaller number of runs
    mean_difference: float = math.nan
    ci_low: float = math.nan
    ci_high: float = math.nan
    statistic: float = math.nan  # t, or with Wilcoxon's test the smaller rank sum
    df: float = math.nan
    p: float = math.nan
    effect: float = math.nan  # paired: d_z; unpaired: Hedges' g
    outcome: int = MISSING  # of too few runs for a test
    flags: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the interval; with Wilcoxon's test it is the paired t interval."""
        return self.n - 1 if math.isnan(self.df) else self.df

    def standard_error(self, alpha: float = 0.05) -> float:
        """Return the standard error of the mean difference from its 1 − alpha interval; nan without variance."""
        half = (self.ci_high - self.ci_low) / 2
        return half / float(special.stdtrit(self.freedom, 1 - alpha / 2)) if half > ZERO_TOLERANCE else math.nan


def outcome_of(p: float, difference: float, alpha: float) -> int:
    """Return win, tie or loss from a p value and the sign of the difference; missing without a p value."""
    if math.isnan(p):
        return MISSING
    if p >= alpha or difference == 0:
        return TIE
    return WIN if difference > 0 else LOSS


def paired_t(a: ArrayLike, b: ArrayLike, alpha: float = 0.05) -> Comparison:
    """Test a and b, (n,) each, with a two-sided paired t-test; same seeds in the same order, without nan.

    Where the differences do not vary SciPy gives nan or inf. Here: all zero is a tie with p=1; constant but not zero is
    a win or loss with p=0. The flag `zero_variance` marks both, because such runs are usually copies of each other.
    """
    d = floats(a) - floats(b)
    n = int(d.size)
    if n < 2:
        return Comparison(n)
    difference, spread = mean(d), sample_std(d)
    if spread <= ZERO_TOLERANCE:
        difference = 0.0 if abs(difference) <= ZERO_TOLERANCE else difference
        t, p = (math.copysign(math.inf, difference), 0.0) if difference else (0.0, 1.0)
        outcome = outcome_of(p, difference, alpha)
        return Comparison(n, difference, difference, difference, t, n - 1, p, t, outcome, ("zero_variance",))
    test = scipy.stats.ttest_rel(floats(a), floats(b))
    low, high = t_interval(d, 1 - alpha)
    p = float(test.pvalue)
    outcome = outcome_of(p, difference, alpha)
    return Comparison(n, difference, low, high, float(test.statistic), n - 1, p, difference / spread, outcome)


def common_seeds(a: Mapping[int, float], b: Mapping[int, float]) -> tuple[int, ...]:
    """Return the seeds on which both have a finite accuracy, sorted."""
    return tuple(sorted(s for s in a.keys() & b.keys() if math.isfinite(a[s]) and math.isfinite(b[s])))


def unpaired_t(
    m1: ArrayLike,
    s1: ArrayLike,
    n1: ArrayLike,
    m2: ArrayLike,
    s2: ArrayLike,
    n2: ArrayLike,
    *,
    equal_var: bool = True,
    alpha: float = 0.05,
) -> dict[str, NDArray]:
    """Test means, standard deviations and numbers of runs with two-sided two-sample t-tests: pooled (`equal_var`) or Welch's.

    Returns t, df, p and outcome, (m,) each.
    """
    m1, s1, n1, m2, s2, n2 = np.broadcast_arrays(*map(floats, (m1, s1, n1, m2, s2, n2)))
    with np.errstate(all="ignore"):
        v1, v2 = s1**2 / n1, s2**2 / n2
        pooled = n1 + n2 - 2
        df = pooled if equal_var else (v1 + v2) ** 2 / (v1**2 / (n1 - 1) + v2**2 / (n2 - 1))
        t, p = scipy.stats.ttest_ind_from_stats(m1, s1, n1, m2, s2, n2, equal_var=equal_var)
    difference = m1 - m2
    # The same rules as for pairs where nothing varies: equal is a tie, different is certain.
    flat, same = np.maximum(s1, s2) <= ZERO_TOLERANCE, np.abs(difference) <= ZERO_TOLERANCE
    df = np.where(flat, pooled, df)
    t = np.where(flat, np.where(same, 0.0, np.copysign(np.inf, difference)), t)
    p = np.where(flat, np.where(same, 1.0, 0.0), p)
    available = (n1 >= 2) & (n2 >= 2) & np.isfinite(m1) & np.isfinite(m2) & np.isfinite(s1) & np.isfinite(s2)
    t, df, p = (np.where(available, x, np.nan) for x in (t, df, p))
    outcome = np.where(p < alpha, np.sign(difference), TIE)
    outcome = np.where(available, outcome, MISSING).astype(np.int64)
    return {"t": t, "df": df, "p": p, "outcome": outcome}


def hedges_g(
    m1: ArrayLike, s1: ArrayLike, n1: ArrayLike, m2: ArrayLike, s2: ArrayLike, n2: ArrayLike
) -> dict[str, NDArray]:
    """Return standardised differences from summaries, (m,) each: cohen_d, the small-sample correction, hedges_g.

    The unit is the spread between seeds, so values are huge; print the difference in accuracy points beside them.
    """
    m1, s1, n1, m2, s2, n2 = np.broadcast_arrays(*map(floats, (m1, s1, n1, m2, s2, n2)))
    df = n1 + n2 - 2
    with np.errstate(divide="ignore", invalid="ignore"):
        d = (m1 - m2) / np.sqrt(((n1 - 1) * s1**2 + (n2 - 1) * s2**2) / df)
        correction = np.exp(special.gammaln(df / 2) - special.gammaln((df - 1) / 2)) / np.sqrt(df / 2)
        return {"cohen_d": d, "correction": correction, "hedges_g": correction * d}


def wilcoxon(a: ArrayLike, b: ArrayLike) -> tuple[float, float]:
    """Test pairs, (n,) each, with Wilcoxon's signed-rank test; return the smaller rank sum and its two-sided p.

    Zero differences are left out, tied sizes share the mean rank; without any other difference p=1. SciPy's p is exact up
    to 50 pairs, with ties up to 13, and a normal approximation beyond.
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
    """Test accuracies keyed by seed; pairs are matched by seed, and nan counts as missing.

    `test` is one of `TEST_NAMES`; `expected` seeds not all used give the flag `missing_seeds`.
    """
    seeds = common_seeds(a, b)
    if test in ("paired", "wilcoxon"):
        pairs = [a[s] for s in seeds], [b[s] for s in seeds]
        result = paired_t(*pairs, alpha)
        if test == "wilcoxon" and result.outcome != MISSING:
            statistic, p = wilcoxon(*pairs)
            outcome = outcome_of(p, result.mean_difference, alpha)
            result = replace(result, statistic=statistic, df=math.nan, p=p, outcome=outcome)
    else:
        x, y = (np.array([v for v in runs.values() if math.isfinite(v)]) for runs in (a, b))
        result = _unpaired(x, y, test == "student", alpha)
    flags: tuple[str, ...] = ()
    if expected is not None and result.n < expected:
        flags += ("missing_seeds",)
    if result.n < 3:
        flags += ("n_below_3",)
    return replace(result, seeds=seeds, flags=result.flags + flags)


def _unpaired(x: Array, y: Array, equal_var: bool, alpha: float) -> Comparison:
    n = min(x.size, y.size)
    if n < 2:
        return Comparison(n)
    summaries = (mean(x), sample_std(x), x.size, mean(y), sample_std(y), y.size)
    test = {k: v.item() for k, v in unpaired_t(*summaries, equal_var=equal_var, alpha=alpha).items()}
    difference = mean(x) - mean(y)
    tested = (test["t"], test["df"], test["p"])
    if max(sample_std(x), sample_std(y)) <= ZERO_TOLERANCE:
        return Comparison(
            n, difference, difference, difference, *tested, test["t"], test["outcome"], ("zero_variance",)
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # one side may have no variance
        low, high = scipy.stats.ttest_ind(x, y, equal_var=equal_var).confidence_interval(1 - alpha)
    effect = hedges_g(*summaries)["hedges_g"].item()
    return Comparison(n, difference, float(low), float(high), *tested, effect, test["outcome"])


# Many cells: win/tie/loss counts and Holm's correction ----------------------------------------------------------------
def win_tie_loss(outcomes: ArrayLike, groups: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count outcomes (M, D) over groups of datasets, `groups` (D,) 0-based ids.

    Returns counts (G+1, M+1, 3) of win/tie/loss and missing (G+1, M+1); last row all groups, last column all methods.
    """
    codes, ids = np.asarray(outcomes, dtype=np.int64), np.asarray(groups, dtype=np.int64)
    matches = np.stack([codes == code for code in (WIN, TIE, LOSS, MISSING)], axis=-1)  # (M, D, 4)
    size = int(ids.max()) + 1 if ids.size else 0
    member = np.vstack([ids == g for g in range(size)] + [np.ones_like(ids, dtype=bool)])  # (G+1, D)
    table = np.einsum("gd,mdc->gmc", member.astype(np.int64), matches.astype(np.int64))
    table = np.concatenate([table, table.sum(axis=1, keepdims=True)], axis=1)
    return table[..., :3], table[..., 3]


def holm(p: ArrayLike) -> Array:
    """Return Holm's step-down adjusted p values, in input order; nan (no comparison) stays nan and out of the family."""
    raw = floats(p)
    adjusted = np.full(raw.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(raw))
    order = tested[np.argsort(raw[tested], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, factors * raw[order]))
    return adjusted


# Power of a two-sided t-test, by the noncentral t distribution --------------------------------------------------------
POWER = 0.8


@functools.lru_cache(maxsize=256)
def detectable_shift(df: float, alpha: float = 0.05) -> float:
    """Return the difference, in standard errors, that a two-sided t-test detects with a probability of `POWER`."""
    bound = float(special.stdtrit(df, 1 - alpha / 2))

    def excess_power(shift: float) -> float:
        # Beyond 5 the other tail is 0, where SciPy may give nan.
        other = scipy.stats.nct.cdf(-bound, df, shift) if shift < 5 else 0.0
        return float(scipy.stats.nct.sf(bound, df, shift) + other) - POWER

    upper = 4.0
    while excess_power(upper) < 0:
        upper *= 2
    return float(scipy.optimize.brentq(excess_power, 0.0, upper, xtol=1e-10))


def detectable_difference(c: Comparison, alpha: float = 0.05, tests: int = 1) -> float:
    """Return the minimum detectable difference of a comparison, taking its spread for the true one.

    `tests` is the size of the family of Holm's method, whose first step counts. nan without a spread, and for Wilcoxon's
    test, whose power does not follow from the spread.
    """
    if math.isnan(c.df):
        return math.nan
    error = c.standard_error(alpha)
    return math.nan if math.isnan(error) else error * detectable_shift(c.freedom, alpha / tests)


# Equivalence: is a tie equality? --------------------------------------------------------------------------------------
Verdict = Literal["better", "worse", "equal", "undecided", "missing"]


def equivalence_p(c: Comparison, alpha: float = 0.05) -> float:
    """Return the larger p of the two one-sided tests of |difference| >= MARGIN; below alpha, the methods are equal in practice."""
    if c.outcome == MISSING:
        return math.nan
    error = c.standard_error(alpha)
    if math.isnan(error):  # nothing varies
        return 0.0 if abs(c.mean_difference) < MARGIN else 1.0
    return float(special.stdtr(c.freedom, (abs(c.mean_difference) - MARGIN) / error))


def verdict_of(c: Comparison, p_equal: float, alpha: float = 0.05) -> Verdict:
    """Return the verdict from the first method's side: a difference, practical equality, or neither shown."""
    if c.outcome == MISSING:
        return "missing"
    if c.outcome in (WIN, LOSS):
        return "better" if c.outcome == WIN else "worse"
    return "equal" if p_equal < alpha else "undecided"


# Ranks of methods over datasets ---------------------------------------------------------------------------------------
def rank_correlation(x: ArrayLike, y: ArrayLike, alpha: float = 0.05) -> tuple[float, float, float]:
    """Return Spearman's ρ with its interval by Fisher's z, standard error √(1.06/(n − 3)) (Fieller, Hartley and Pearson 1957).

    This needs four pairs; nan where the values of one side do not differ.
    """
    first, second = floats(x), floats(y)
    rho = float(scipy.stats.spearmanr(first, second).statistic)
    if math.isclose(abs(rho), 1):  # Fisher's z has no end there
        rho = math.copysign(1.0, rho)
        return rho, rho, rho
    half = float(scipy.stats.norm.ppf(1 - alpha / 2)) * math.sqrt(1.06 / (len(first) - 3))
    return rho, math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half)


def friedman(scores: ArrayLike, alpha: float = 0.05) -> dict[str, Any]:
    """Compare k methods by their ranks on N datasets, scores (N, k), the highest first; no score may be missing.

    Returns Friedman's statistic with and without the correction for ties (nan when all is tied), Iman and Davenport's F,
    Nemenyi's q and critical difference, the ranks (N, k) and their averages (k,).
    """
    x = floats(scores)
    n, k = x.shape
    ranks = scipy.stats.rankdata(-x, axis=1)
    average = ranks.mean(axis=0)
    chi2 = max(0.0, float(12 * n / (k * (k + 1)) * ((average**2).sum() - k * (k + 1) ** 2 / 4)))
    # SciPy's friedmanchisquare gives the same corrected statistic, but refuses two methods.
    sizes = (ranks[:, :, None] == ranks[:, None, :]).sum(axis=-1)  # (N, k): size of the tie that each score is in
    correction = 1 - float((sizes.astype(float) ** 2 - 1).sum()) / (n * k * (k**2 - 1))
    corrected = chi2 / correction if correction > ZERO_TOLERANCE else math.nan
    rest = n * (k - 1) - chi2
    if rest > ZERO_TOLERANCE:
        f = (n - 1) * chi2 / rest
        p_f = float(scipy.stats.f.sf(f, k - 1, (k - 1) * (n - 1))) if n > 1 else math.nan
    else:
        f, p_f = math.inf, 0.0
    return {
        "ranks": ranks,
        "average_ranks": average,
        "chi2": chi2,
        "p_chi2": float(scipy.stats.chi2.sf(chi2, k - 1)),
        "chi2_tie_corrected": corrected,
        "p_tie_corrected": float(scipy.stats.chi2.sf(corrected, k - 1)),
        "iman_davenport": f,
        "p_iman_davenport": p_f,
        "q": nemenyi_q(k, alpha),
        "critical_difference": nemenyi_q(k, alpha) * _rank_error(k, n),
    }


def _rank_error(k: int, n: int) -> float:
    return math.sqrt(k * (k + 1) / (6 * n))


def nemenyi_q(k: int, alpha: float = 0.05) -> float:
    """Return the critical value for all pairs of k methods: the studentised range quantile over sqrt 2."""
    return float(scipy.stats.studentized_range.ppf(1 - alpha, k, np.inf)) / math.sqrt(2)


def nemenyi_groups(average_ranks: ArrayLike, critical_difference: float) -> NDArray[np.int64]:
    """Return the bars of a critical-difference diagram, (bars, k) 0/1 in input order, from the best rank on.

    A bar covers a maximal run of methods, contiguous in rank, whose extremes differ by at most the critical difference;
    bars of one method are left out.
    """
    ranks = floats(average_ranks)
    order = np.argsort(ranks, kind="stable")
    bars, reach = [], 0
    for start in range(len(order)):
        within = ranks[order] <= ranks[order[start]] + critical_difference + 1e-12
        end = int(np.flatnonzero(within)[-1]) + 1
        if end > reach and end - start > 1:
            bars.append(np.isin(np.arange(len(order)), order[start:end]).astype(np.int64))
        reach = max(reach, end)
    return np.array(bars, dtype=np.int64).reshape(len(bars), len(order))


# Intervals by resampling ----------------------------------------------------------------------------------------------
def stratified_bootstrap_mean(
    cells: Sequence[ArrayLike], alpha: float = 0.05, resamples: int = 9999, seed: int = 0
) -> tuple[float, float]:
    """Return the percentile interval of the average over datasets: seeds are resampled within each (Agarwal et al. 2021)."""
    arrays = [floats(c) for c in cells]
    rng = np.random.default_rng(seed)
    means = np.mean([a[rng.integers(a.size, size=(resamples, a.size))].mean(axis=1) for a in arrays], axis=0)
    low, high = np.quantile(means, [alpha / 2, 1 - alpha / 2])
    return float(low), float(high)


def probability_better(cells: Sequence[ArrayLike], alpha: float = 0.05) -> tuple[float, float, float]:
    """Return P(A > B) on a new seed (Bouthillier et al., MLSys 2021), averaged over datasets, with its interval.

    `cells` has the paired differences of each dataset. A difference of zero counts half. The interval is the stratified
    bootstrap's, or Clopper and Pearson's where all seeds of every dataset agree.
    """
    shares = [np.where(np.abs(d) <= ZERO_TOLERANCE, 0.5, (d > 0).astype(float)) for d in map(floats, cells)]
    value = float(np.mean([s.mean() for s in shares]))
    if any(s.min() < s.max() for s in shares):
        return value, *stratified_bootstrap_mean(shares, alpha)
    together = np.concatenate(shares)
    wins, n = float(together.sum()), together.size  # halves too, which SciPy's binomtest refuses
    low = special.betaincinv(wins, n - wins + 1, alpha / 2) if wins else 0.0
    high = special.betaincinv(wins + 1, n - wins, 1 - alpha / 2) if wins < n else 1.0
    return value, float(low), float(high)


# Covered by golden vectors, used by no table --------------------------------------------------------------------------
def population_std(values: ArrayLike) -> float:
    """Standard deviation with divisor n: at n=3 it is 18 % smaller than the sample form."""
    x = floats(values)
    return float(x.std(ddof=0)) if x.size else math.nan


def control_comparison(
    average_ranks: ArrayLike, n_datasets: int, control: int = 0, alpha: float = 0.05
) -> dict[str, Array | float]:
    """Compare each method with a control by average ranks: normal z with Holm, Bonferroni–Dunn's critical difference."""
    ranks = floats(average_ranks)
    error = _rank_error(len(ranks), n_datasets)
    z = (np.delete(ranks, control) - ranks[control]) / error
    p = 2 * scipy.stats.norm.sf(np.abs(z))
    q = float(scipy.stats.norm.ppf(1 - alpha / (2 * (len(ranks) - 1))))
    return {"z": z, "p": p, "p_holm": holm(p), "q_bonferroni_dunn": q, "critical_difference": q * error}


def exact_bootstrap_mean(values: ArrayLike, alpha: float = 0.05) -> tuple[float, float, int]:
    """Return the percentile interval of the mean over all n^n resamples of n <= 5 values, and n^n.

    It cannot reach beyond the observed extremes and covers far too little at n=3: a display aid, not an inference.
    """
    x = floats(values)
    means = np.array(list(itertools.product(x, repeat=x.size))).mean(axis=1)
    low, high = np.quantile(means, [alpha / 2, 1 - alpha / 2])
    return float(low), float(high), len(means)
