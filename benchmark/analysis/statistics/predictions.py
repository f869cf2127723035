"""Two methods on the same test rows: McNemar's test and an interval over test sets, from which rows each got right.

Seeds show what training again would change. These show what another test set would.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy  # lazy, see pairs
from numpy.typing import ArrayLike, NDArray

from benchmark.analysis.statistics.spread import Array, floats


@dataclass(frozen=True)
class McNemar:
    """Rows that only the first or only the second got right, and the exact two-sided p that both are as likely."""

    first_only: int
    second_only: int
    p: float


def mcnemar(first: ArrayLike, second: ArrayLike) -> McNemar:
    """Exact McNemar test of two boolean arrays (n,), row by row; p=1 where they never differ."""
    a, b = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    if a.shape != b.shape:
        raise ValueError(f"McNemar's test needs the same test rows on both sides, not {a.size} and {b.size}.")
    one, other = int((a & ~b).sum()), int((b & ~a).sum())
    p = float(scipy.stats.binomtest(one, one + other, 0.5).pvalue) if one + other else 1.0
    return McNemar(one, other, p)


def row_bootstrap(differences: ArrayLike, alpha: float = 0.05, resamples: int = 9999, seed: int = 0) -> Array:
    """Percentile interval (2,), in points, of the mean difference when test rows are drawn again.

    `differences` (n,) is per row: share of seeds on which the first is right, minus that of the second.
    """
    d = floats(differences)
    if not d.size:
        raise ValueError("An interval over test rows needs at least one row.")
    # Few values are possible, so drawing rows is drawing how often each value comes: the same distribution, far less work.
    values, counts = np.unique(np.round(d, 12), return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(d.size, counts / d.size, size=resamples)
    return 100 * np.quantile(drawn @ values / d.size, [alpha / 2, 1 - alpha / 2])


def common_rows(
    first: tuple[NDArray, NDArray], second: tuple[NDArray, NDArray]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Two (row ids, right or wrong) in the same order of rows; ValueError where their rows are not the same."""
    orders = [np.argsort(rows, kind="stable") for rows, _ in (first, second)]
    if not np.array_equal(first[0][orders[0]], second[0][orders[1]]):
        raise ValueError("their test rows are not the same")
    return np.asarray(first[1][orders[0]], dtype=bool), np.asarray(second[1][orders[1]], dtype=bool)


@dataclass(frozen=True)
class OverRows:
    """Two methods by kept predictions: a McNemar test per seed, and the interval of the difference over test rows."""

    tests: Mapping[int, McNemar]
    low: float
    high: float

    def significant(self, alpha: float = 0.05) -> int:
        return sum(test.p < alpha for test in self.tests.values())


def compare_rows(
    first: Mapping[int, tuple[NDArray, NDArray]], second: Mapping[int, tuple[NDArray, NDArray]], alpha: float = 0.05
) -> OverRows:
    """From (row ids, right or wrong) by seed. Seeds that share their test rows are averaged row by row before drawing.

    Where every seed has test rows of its own, rows of all of them are drawn together.
    """
    seeds = sorted(first.keys() & second.keys())
    if not seeds:
        raise ValueError("no seed has predictions of both")
    pairs = {seed: common_rows(first[seed], second[seed]) for seed in seeds}
    tests = {seed: mcnemar(*pair) for seed, pair in pairs.items()}
    d = [pair[0].astype(float) - pair[1] for pair in pairs.values()]
    shared = all(np.array_equal(np.sort(first[seed][0]), np.sort(first[seeds[0]][0])) for seed in seeds)
    low, high = row_bootstrap(np.mean(d, axis=0) if shared else np.concatenate(d), alpha)
    return OverRows(tests, float(low), float(high))
