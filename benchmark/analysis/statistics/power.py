"""What a test could have found: the smallest difference that it would detect.

Two-sided t-tests by the noncentral t distribution (Cohen, "Statistical power analysis", 1988). The spread between seeds
that goes in is an estimate itself: with three seeds its 95 % interval reaches from half of it to six times it.
"""

from __future__ import annotations

import functools
import math

import scipy  # lazy, see pairs
from scipy import special

from benchmark.analysis.statistics.pairs import Comparison
from benchmark.analysis.statistics.spread import ZERO_TOLERANCE

POWER = 0.8


def standard_error(c: Comparison, alpha: float = 0.05) -> float:
    """Of the mean difference, read back from its 1 − alpha interval; nan where there is none or nothing varies."""
    half = (c.ci_high - c.ci_low) / 2
    if not half > ZERO_TOLERANCE:
        return math.nan
    return half / float(special.stdtrit(freedom(c), 1 - alpha / 2))


def freedom(c: Comparison) -> float:
    """Degrees of freedom of the interval; Wilcoxon's test shows the paired t interval."""
    return c.n - 1 if math.isnan(c.df) else c.df


def power_of(shift: float, df: float, alpha: float = 0.05) -> float:
    """Probability that a two-sided t-test rejects, the difference being `shift` standard errors."""
    bound = float(special.stdtrit(df, 1 - alpha / 2))
    other = scipy.stats.nct.cdf(-bound, df, shift) if shift < 5 else 0.0  # beyond that SciPy gives nan for nothing
    return float(scipy.stats.nct.sf(bound, df, shift) + other)


@functools.lru_cache(maxsize=256)
def detectable_shift(df: float, alpha: float = 0.05, power: float = POWER) -> float:
    """The difference, in standard errors, that a test finds with the given power."""
    upper = 4.0
    while power_of(upper, df, alpha) < power:
        upper *= 2
    return float(scipy.optimize.brentq(lambda shift: power_of(shift, df, alpha) - power, 0.0, upper, xtol=1e-10))


def detectable_difference(c: Comparison, alpha: float = 0.05, tests: int = 1, power: float = POWER) -> float:
    """The smallest true difference that this comparison would have found, if its spread is the true one.

    `tests` is the size of the family whose first step of Holm's method it would have to pass. nan where no spread was
    seen, and for Wilcoxon's test, whose power the spread does not give.
    """
    if math.isnan(c.df) and not math.isnan(c.p):
        return math.nan
    error = standard_error(c, alpha)
    return math.nan if math.isnan(error) else error * detectable_shift(freedom(c), alpha / tests, power)
