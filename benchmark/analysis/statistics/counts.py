"""Many cells: win/tie/loss counts, and Holm's correction over a family of tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchmark.analysis.statistics.pairs import LOSS, MISSING, TIE, WIN
from benchmark.analysis.statistics.spread import Array, floats


def win_tie_loss(outcomes: ArrayLike, groups: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count outcomes (M, D) over groups of data sets, `groups` (D,) 0-based ids.

    Returns counts (G+1, M+1, 3) of win/tie/loss and missing (G+1, M+1); last row all groups, last column all methods.
    """
    codes, ids = np.asarray(outcomes, dtype=np.int64), np.asarray(groups, dtype=np.int64)
    known = np.stack([codes == code for code in (WIN, TIE, LOSS, MISSING)], axis=-1)  # (M, D, 4)
    if not known.any(axis=-1).all():
        raise ValueError("An outcome is none of win (1), tie (0), loss (-1) and missing (9).")
    size = int(ids.max()) + 1 if ids.size else 0
    member = np.vstack([ids == g for g in range(size)] + [np.ones_like(ids, dtype=bool)])  # (G+1, D)
    table = np.einsum("gd,mdc->gmc", member.astype(np.int64), known.astype(np.int64))
    table = np.concatenate([table, table.sum(axis=1, keepdims=True)], axis=1)
    return table[..., :3], table[..., 3]


def holm(p: ArrayLike) -> Array:
    """Holm's step-down adjusted p values, in input order; nan (a comparison not made) stays nan and out of the family."""
    raw = floats(p)
    adjusted = np.full(raw.shape, np.nan)
    made = np.flatnonzero(~np.isnan(raw))
    order = made[np.argsort(raw[made], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, factors * raw[order]))
    return adjusted
