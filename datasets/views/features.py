"""Augmented views of feature rows, the counterpart of `views.py` for data that are no images."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from datasets.views.counter import uniforms
from datasets.views.views import check_name


@dataclass(frozen=True)
class Noise:
    deviation: float  # of the Gaussian noise added, in units of the scaled feature
    dropped: float  # share of features set to 0, their mean


# Our choice: no augmentation is published for feature tables. Every other view is the features themselves.
NOISE = {"strong": Noise(0.1, 0.2), "distill": Noise(0.2, 0.0)}


def feature_views(features: Tensor, view: str, *, seed: int, epoch: int, index: Tensor) -> Tensor:
    """One view of features (B, d) of the rows `index` (B,): a function of (seed, epoch, index, view) alone."""
    check_name(view)
    if view not in NOISE:
        return features
    width = features.shape[1]
    draws = uniforms(seed, epoch, f"features/{view}", index.to(features.device), 3 * width)
    radius, angle, keep = draws.split(width, dim=1)
    normal = (-2 * torch.log1p(-radius)).sqrt() * (2 * torch.pi * angle).cos()  # Box–Muller
    noisy = features + NOISE[view].deviation * normal.to(features.dtype)
    return noisy.masked_fill(keep < NOISE[view].dropped, 0.0)
