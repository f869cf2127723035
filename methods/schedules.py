"""Learning rates per epoch (0-based). The benchmark's protocol is `cosine`; the others are what single papers released."""

from __future__ import annotations

import math


def cosine(lr: float, epoch: float, epochs: int, lr_min: float | None = None) -> float:
    """lr_min + (lr − lr_min)(1 + cos(π e/E))/2, lr_min = lr/1000 unless given."""
    floor = lr / 1000 if lr_min is None else lr_min
    return floor + (lr - floor) * (1 + math.cos(math.pi * epoch / epochs)) / 2


def step(lr: float, epoch: int, rate: float, every: float) -> float:
    """lr · rate^⌊e/every⌋ (PRODEN's release)."""
    return lr * rate ** math.floor(epoch / every)


def exponential(lr: float, epoch: float, rate: float, every: float) -> float:
    """lr · rate^(e/every) with true division (LWS's release)."""
    return lr * rate ** (epoch / every)
