"""Augmented views of feature rows, the counterpart of `views.py` for data other than images."""

from __future__ import annotations

import torch
from torch import Tensor

from datasets.views.counter import uniforms
from datasets.views.recipes import NOISE, Noise
from datasets.views.views import check_name


def feature_views(
    features: Tensor, view: str, *, seed: int, epoch: int, index: Tensor, strong: Noise | None = None
) -> Tensor:
    """Return one view of features (B, d) of the rows `index` (B,): a function of (seed, epoch, index, view) alone.

    `strong` replaces the noise of that view.
    """
    check_name(view)
    noise = strong if view == "strong" and strong else NOISE.get(view)
    if noise is None or noise.deviation == noise.dropped == 0:
        return features
    width = features.shape[1]
    draws = uniforms(seed, 0 if noise.fixed else epoch, f"features/{view}", index.to(features.device), 3 * width)
    radius, angle, keep = draws.split(width, dim=1)
    normal = (-2 * torch.log1p(-radius)).sqrt() * (2 * torch.pi * angle).cos()  # Box–Muller
    noisy = features + noise.deviation * normal.to(features.dtype)
    return noisy.masked_fill(keep < noise.dropped, 0.0)
