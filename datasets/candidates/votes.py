"""Make candidate sets from the answers of several people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from datasets.base import DataError

if TYPE_CHECKING:
    import numpy as np


def candidates_by_votes(counts: np.ndarray, votes: int = 1) -> np.ndarray:
    """Return the candidates (N, C) of counted answers (N, C): those with at least `votes` votes.

    Where no answer has so many, those with the most votes are the candidates.
    """
    import numpy as np

    return (counts > 0) & (counts >= np.minimum(counts.max(1, keepdims=True), votes))


def check_votes(where: str, votes: int, most: int | None = None) -> None:
    """Refuse a number of votes below 1 or beyond `most`, the votes of the most frequent answer."""
    if votes < 1 or (most is not None and votes > most):
        end = "or more" if most is None else f"to {most} (no answer has more)"
        raise DataError(f"{where}: votes={votes} is not possible; take 1 (every answer counts) {end}.")
