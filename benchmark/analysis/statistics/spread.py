"""Mean, spread and interval of the runs of one cell, and the error that a finite test set adds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

# Differences such as 70.1-69.8 and 70.4-70.1 are not the same float: below this, a spread is rounding noise.
ZERO_TOLERANCE = 1e-9

Array = NDArray[np.float64]


def floats(values: ArrayLike) -> Array:
    return np.asarray(values, dtype=np.float64)


def mean(values: ArrayLike) -> float:
    """Mean; nan for no values."""
    x = floats(values)
    return float(x.mean()) if x.size else math.nan


def sample_std(values: ArrayLike) -> float:
    """Standard deviation with divisor n-1; nan for fewer than two values."""
    x = floats(values)
    return float(x.std(ddof=1)) if x.size > 1 else math.nan


def population_std(values: ArrayLike) -> float:
    """Standard deviation with divisor n: at n=3 it is 18 % smaller than the sample form."""
    x = floats(values)
    return float(x.std(ddof=0)) if x.size else math.nan


def critical_t(n: int, alpha: float = 0.05) -> float:
    """The |t| that a two-sided one-sample or paired test on n values has to exceed."""
    return float(special.stdtrit(n - 1, 1 - alpha / 2)) if n > 1 else math.inf


def t_interval(values: ArrayLike, confidence: float = 0.95) -> tuple[float, float]:
    """Student's interval of the mean; (nan, nan) for fewer than two values."""
    x = floats(values)
    if x.size < 2:
        return math.nan, math.nan
    half = critical_t(x.size, 1 - confidence) * sample_std(x) / math.sqrt(x.size)
    return mean(x) - half, mean(x) + half


def binomial_se(accuracy: float, test_size: int) -> float:
    """Standard error, in percentage points, that a finite test set gives an accuracy in percent."""
    return math.sqrt(accuracy * (100 - accuracy) / test_size)


def pooled_std(groups: Sequence[ArrayLike], confidence: float = 0.95) -> tuple[float, float, float]:
    """Root of the average variance of groups that share it, weighted by their degrees of freedom, with its interval."""
    arrays = [floats(group) for group in groups]
    freedom = sum(a.size - 1 for a in arrays)
    if not freedom or min(a.size for a in arrays) < 2:
        return math.nan, math.nan, math.nan
    squares = sum(float(((a - a.mean()) ** 2).sum()) for a in arrays)
    low, high = np.sqrt(squares / special.chdtri(freedom, [(1 - confidence) / 2, (1 + confidence) / 2]))
    return math.sqrt(squares / freedom), float(low), float(high)
