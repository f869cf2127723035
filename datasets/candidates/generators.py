"""Candidate generators: the rules that add wrong labels to the true one, one entry of GENERATORS each.

To add a generator, write its rule and its entry; settings, `list generators` and `candidates.build` read them here.
Torch is imported inside functions only, so that settings and listing need none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from datasets.base import DataError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """Training rows, the input of a generator."""

    labels: Tensor  # (B,) int64, the true ones
    num_classes: int
    superclass: Any = None  # (C,) int64, where the dataset has them
    logits: Any = None  # (B, C) outputs of the annotator, for a rule that needs one


Rule = Callable[[Rows, float], "Tensor"]  # rows, rate -> (B, C) probability that a label is added, 0 for the true one


@dataclass(frozen=True)
class Generator:
    """A way to make candidate sets. Without a rule, the sets are those of the dataset."""

    name: str
    sentence: str  # for `list generators`
    rule: Rule | None
    annotator: bool = False  # needs an annotator's logits, whose temperature can be set to reach a mean set size
    superclasses: bool = False  # needs a dataset with superclasses


def flip_probabilities(logits: Tensor, labels: Tensor, rate: float) -> Tensor:
    """Return VALEN's (NeurIPS 2021) min(1, rate·C·r_j) from annotator logits (B, C) and true labels (B,).

    r is the softmax over the wrong labels. The true label is masked before the softmax, not zeroed after it: a sure
    annotator would leave 0/0.
    """
    wrong_mass = logits.scatter(1, labels[:, None], -math.inf).softmax(1)
    return (rate * logits.shape[1] * wrong_mass).clamp(max=1)


def hierarchical_probabilities(superclass: Tensor, labels: Tensor, rate: float) -> Tensor:
    """Return `rate` for the other classes of the same superclass (C,), else 0: CIFAR-100H, as in PiCO."""
    same = superclass[labels][:, None] == superclass
    return (same.double() * rate).scatter(1, labels[:, None], 0.0)


def uniform_probabilities(labels: Tensor, classes: int, rate: float) -> Tensor:
    """Return `rate` for every other class."""
    import torch

    full = torch.full((len(labels), classes), rate, dtype=torch.float64, device=labels.device)
    return full.scatter(1, labels[:, None], 0.0)


_ENTRIES = (
    Generator(
        "instance",
        "a clean-label annotator's mistakes: p_ij = min(1, rate·C·softmax over wrong labels), VALEN's rule",
        lambda rows, rate: flip_probabilities(rows.logits, rows.labels, rate),
        annotator=True,
    ),
    Generator(
        "hierarchical",
        "every other class of the same superclass with probability `rate`",
        lambda rows, rate: hierarchical_probabilities(rows.superclass, rows.labels, rate),
        superclasses=True,
    ),
    Generator(
        "uniform",
        "every other class with probability `rate`",
        lambda rows, rate: uniform_probabilities(rows.labels, rows.num_classes, rate),
    ),
    Generator("own", "the candidate sets of the dataset", None),
)
GENERATORS = {entry.name: entry for entry in _ENTRIES}


def get(name: str) -> Generator:
    if name not in GENERATORS:
        raise DataError(f"Unknown generator '{name}'; there are {', '.join(GENERATORS)}.")
    return GENERATORS[name]
