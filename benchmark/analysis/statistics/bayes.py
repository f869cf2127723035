"""All data sets and seeds in one model: how probable is it that one method is better than another on a further data set?

The hierarchical comparison of Corani, Benavoli, Demšar, Mangili and Zaffalon (Machine Learning 106, 2017) for
independent seeds: the differences of a data set vary around its own mean with its own spread, and the data sets' means
around a common one. Their population is Student's t with unknown degrees of freedom; with the few data sets of a table
these cannot be learned, so here it is normal. Priors: flat for the common mean, 1/σ for the spread inside a data set,
half-Cauchy for the spread between data sets (Gelman, Bayesian Analysis 1, 2006). Sampled by Gibbs' method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from benchmark.analysis.statistics.spread import ZERO_TOLERANCE, Array, floats, mean, sample_std

BETWEEN = 5.0  # accuracy points: scale of the half-Cauchy prior of the spread between data sets
LEAST_DATASETS = 3
CHAINS, WARM_UP, KEPT = 100, 300, 400


@dataclass(frozen=True)
class Posterior:
    """Draws from the posterior, (R,) each, and of the data sets' own means (R, D)."""

    common_mean: Array
    between: Array  # spread between data sets
    means: Array

    def shares(self, margin: float) -> tuple[float, float, float]:
        """Probabilities that on a further data set the first method is better, equal within ± margin, worse."""
        from scipy import special

        upper, lower = (
            special.ndtr((bound - self.common_mean) / np.maximum(self.between, 1e-12)) for bound in (margin, -margin)
        )
        worse, better = float(lower.mean()), float((1 - upper).mean())
        return better, max(0.0, 1 - better - worse), worse


def hierarchical(cells: Sequence[ArrayLike], scale: float = BETWEEN, seed: int = 0) -> Posterior:
    """From the paired differences of every data set, two seeds or more in each, which must vary."""
    arrays = [floats(cell) for cell in cells]
    if len(arrays) < LEAST_DATASETS:
        raise ValueError(f"A model over data sets needs {LEAST_DATASETS} of them or more, not {len(arrays)}.")
    errors = [sample_std(a) / math.sqrt(a.size) if a.size > 1 else 0.0 for a in arrays]
    if min(errors) <= ZERO_TOLERANCE:
        raise ValueError("A model over data sets needs differences that vary between the seeds of every data set.")
    return sample([mean(a) for a in arrays], errors, [a.size - 1 for a in arrays], scale, seed)


def sample(
    centres: ArrayLike, errors: ArrayLike, freedoms: ArrayLike, scale: float = BETWEEN, seed: int = 0
) -> Posterior:
    """Posterior for data sets with a mean, its standard error and the degrees of freedom of that error, (D,) each.

    Infinite degrees of freedom say that the error is known. Student's t and the half-Cauchy distribution are mixtures of
    normal distributions over gamma variables, so that every draw below is from a named distribution.
    """
    y, se, df = map(floats, (centres, errors, freedoms))
    rng = np.random.default_rng(seed)
    shape = (CHAINS, y.size)
    means = y + se * rng.standard_normal(shape)
    between = np.full(CHAINS, se.mean() + y.std())
    kept = []
    for step in range(WARM_UP + KEPT):
        common = means.mean(axis=1) + between / math.sqrt(y.size) * rng.standard_normal(CHAINS)
        # The spread between data sets: inverse gamma given an inverse gamma auxiliary.
        auxiliary = (1 / between**2 + 1 / scale**2) / rng.standard_exponential(CHAINS)
        squares = ((means - common[:, None]) ** 2).sum(axis=1) / 2
        between = np.sqrt((squares + 1 / auxiliary) / rng.standard_gamma((y.size + 1) / 2, CHAINS))
        # The precision of each data set's mean, known where its degrees of freedom are infinite.
        precision = np.broadcast_to(1 / se**2, shape)
        finite = np.isfinite(df)
        if finite.any():
            rate = (df * se**2 + (means - y) ** 2)[:, finite] / 2
            draws = rng.standard_gamma((df[finite] + 1) / 2, rate.shape) / rate
            precision = precision.copy()
            precision[:, finite] = draws
        total = precision + 1 / between[:, None] ** 2
        centre = (precision * y + common[:, None] / between[:, None] ** 2) / total
        means = centre + rng.standard_normal(shape) / np.sqrt(total)
        if step >= WARM_UP:
            kept.append((common, between, means))
    columns = zip(*kept, strict=True)
    return Posterior(*(np.concatenate(column) for column in columns))
