"""Is a tie equality? Two one-sided tests (Schuirmann, J. Pharmacokin. Biopharm. 15, 1987) against a margin.

A tie says that no difference was found, with three seeds mostly because none could be. Equivalence says that a difference
of more than the margin was ruled out.
"""

from __future__ import annotations

import math
from typing import Literal

from scipy import special

from benchmark.analysis.contents import MARGIN
from benchmark.analysis.statistics.pairs import LOSS, MISSING, WIN, Comparison
from benchmark.analysis.statistics.power import freedom, standard_error

Verdict = Literal["better", "worse", "equal", "undecided", "missing"]


def equivalence_p(c: Comparison, margin: float = MARGIN, alpha: float = 0.05) -> float:
    """The larger p of the two one-sided tests of |difference| >= margin; below alpha, the methods are equal in practice."""
    if not margin > 0 or not math.isfinite(margin):
        raise ValueError(f"The margin is {margin:g} points; equality in practice needs one above 0.")
    if c.outcome == MISSING:
        return math.nan
    error = standard_error(c, alpha)
    if math.isnan(error):  # nothing varies
        return 0.0 if abs(c.mean_difference) < margin else 1.0
    return float(special.stdtr(freedom(c), (abs(c.mean_difference) - margin) / error))


def verdict_of(c: Comparison, p_equal: float, alpha: float = 0.05) -> Verdict:
    """One of three, from the first method's side: a difference, practical equality, or neither shown."""
    if c.outcome == MISSING:
        return "missing"
    if c.outcome in (WIN, LOSS):
        return "better" if c.outcome == WIN else "worse"
    return "equal" if p_equal < alpha else "undecided"
