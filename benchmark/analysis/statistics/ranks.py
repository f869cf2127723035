"""Methods over data sets by their ranks: Friedman, Nemenyi, comparisons with a control, pairwise signed ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # lazy, see pairs
from numpy.typing import ArrayLike, NDArray

from benchmark.analysis.statistics.counts import holm
from benchmark.analysis.statistics.pairs import wilcoxon
from benchmark.analysis.statistics.spread import ZERO_TOLERANCE, Array, floats


def rank_correlation(x: ArrayLike, y: ArrayLike, alpha: float = 0.05) -> tuple[float, float, float]:
    """Spearman's ρ with its interval by Fisher's z, standard error √(1.06/(n − 3)) (Fieller, Hartley and Pearson 1957)."""
    first, second = floats(x), floats(y)
    if len(first) < 4:
        raise ValueError("a rank correlation needs four pairs")
    rho = float(scipy.stats.spearmanr(first, second).statistic)
    if math.isnan(rho):
        raise ValueError("a rank correlation needs values that differ")
    if math.isclose(abs(rho), 1):  # Fisher's z has no end there
        rho = math.copysign(1.0, rho)
        return rho, rho, rho
    half = float(scipy.stats.norm.ppf(1 - alpha / 2)) * math.sqrt(1.06 / (len(first) - 3))
    return rho, math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half)


@dataclass(frozen=True)
class Friedman:
    """Friedman's test on scores (N data sets, k methods) with Iman and Davenport's F and Nemenyi's critical difference."""

    ranks: Array  # (N, k), 1 = best
    average_ranks: Array  # (k,)
    chi2: float
    p_chi2: float
    chi2_tie_corrected: float  # nan when all is tied
    p_tie_corrected: float
    iman_davenport: float
    p_iman_davenport: float
    q: float
    critical_difference: float


def friedman(scores: ArrayLike, alpha: float = 0.05, higher_is_better: bool = True) -> Friedman:
    """Compare k methods on N data sets by their ranks; every score must be there."""
    x = floats(scores)
    if x.ndim != 2 or x.shape[0] < 1 or x.shape[1] < 2:
        raise ValueError(f"Friedman's test needs data sets × methods with two methods or more, not shape {x.shape}.")
    if not np.isfinite(x).all():
        raise ValueError(
            "Friedman's test needs a score of every method on every data set; leave incomplete data sets out."
        )
    n, k = x.shape
    ranks = scipy.stats.rankdata(-x if higher_is_better else x, axis=1)
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
    return Friedman(
        ranks=ranks,
        average_ranks=average,
        chi2=chi2,
        p_chi2=float(scipy.stats.chi2.sf(chi2, k - 1)),
        chi2_tie_corrected=corrected,
        p_tie_corrected=float(scipy.stats.chi2.sf(corrected, k - 1)),
        iman_davenport=f,
        p_iman_davenport=p_f,
        q=nemenyi_q(k, alpha),
        critical_difference=nemenyi_q(k, alpha) * _rank_error(k, n),
    )


def _rank_error(k: int, n: int) -> float:
    return math.sqrt(k * (k + 1) / (6 * n))


def nemenyi_q(k: int, alpha: float = 0.05) -> float:
    """Critical value for all pairs of k methods: the studentised range quantile over sqrt 2."""
    return float(scipy.stats.studentized_range.ppf(1 - alpha, k, np.inf)) / math.sqrt(2)


def nemenyi_groups(average_ranks: ArrayLike, critical_difference: float) -> NDArray[np.int64]:
    """Bars of a critical-difference diagram, (bars, k) 0/1 in input order, from the best rank on.

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


@dataclass(frozen=True)
class ControlComparison:
    """All methods against one control by average ranks; arrays are (k-1,), the others in order."""

    z: Array
    p: Array
    p_holm: Array
    q_bonferroni_dunn: float
    critical_difference: float


def control_comparison(
    average_ranks: ArrayLike, n_datasets: int, control: int = 0, alpha: float = 0.05
) -> ControlComparison:
    """Compare each method with the control: normal z with Holm, and Bonferroni–Dunn's critical difference."""
    ranks = floats(average_ranks)
    k = len(ranks)
    error = _rank_error(k, n_datasets)
    z = (np.delete(ranks, control) - ranks[control]) / error
    p = 2 * scipy.stats.norm.sf(np.abs(z))
    q = float(scipy.stats.norm.ppf(1 - alpha / (2 * (k - 1))))
    return ControlComparison(z, p, holm(p), q, q * error)


@dataclass(frozen=True)
class SignedRanks:
    """Pairs of methods by Wilcoxon's test over data sets: whoever else is in the table has no say in a pair's p."""

    p: Array  # (pairs,)
    p_holm: Array
    least: float  # the smallest p that this number of data sets can give
    least_holm: float


def signed_ranks(scores: ArrayLike, pairs: Sequence[tuple[int, int]] | None = None) -> SignedRanks:
    """Signed-rank tests of pairs of columns of scores (N data sets, k methods), Holm over these; usually the first
    column with each other."""
    x = floats(scores)
    if x.ndim != 2 or not len(x) or x.shape[1] < 2 or not np.isfinite(x).all():
        raise ValueError(
            "Signed-rank tests need scores of two methods or more on every data set; leave incomplete ones out."
        )
    pairs = [(0, other) for other in range(1, x.shape[1])] if pairs is None else pairs
    p = np.array([wilcoxon(x[:, a], x[:, b])[1] for a, b in pairs])
    least = 2.0 ** (1 - len(x))
    return SignedRanks(p, holm(p), least, min(1.0, least * len(pairs)))
