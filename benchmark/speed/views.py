"""How fast the batched views are, against the same recipes one picture at a time with Pillow, in the same run.

Small pictures are made as many at once as in training. Both sides take turns, so that a busy machine slows both; times
are CPU seconds of this process on one thread.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benchmark.speed.pillow_views import ReferenceViews
from benchmark.speed.timing import one_thread, seconds
from benchmark.train.inputs import TOGETHER
from datasets.views.recipes import CIFAR, FINE_GRAINED, Recipe
from datasets.views.views import Views

GOALS = {"32px": 12.0, "224px": 1.8}
NAMES = ("weak", "strong")
CACHE_SHORT_SIDE = 256


def natural_like(height: int, width: int, seed: int) -> np.ndarray:
    """(height, width, 3) uint8 with the falling spectrum of photographs, so that JPEG has honest work to do."""
    noise = np.random.default_rng(seed).standard_normal((height, width, 3))
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None]) + 1 / max(height, width)
    field = np.fft.ifft2(np.fft.fft2(noise, axes=(0, 1)) / frequency[..., None], axes=(0, 1)).real
    field = field @ np.array([[1, 0.8, 0.7], [0.8, 1, 0.8], [0.7, 0.8, 1]])  # channels of photographs go together
    field = (field - field.mean()) / field.std()
    return np.clip(128 + 50 * field, 0, 255).astype(np.uint8)


def _compare(rounds: int, samples: int, goal: float, per_sample: Callable[[], Any], batched: Callable[[], Any]) -> dict:
    per_sample()
    batched()
    cpu = torch.device("cpu")
    times = [(seconds(per_sample, cpu), seconds(batched, cpu)) for _ in range(rounds)]
    slow, fast = (median(column) / samples * 1e6 for column in zip(*times, strict=True))
    ratio = median(a / b for a, b in times)
    return {"per_sample_us": slow, "batched_us": fast, "ratio": ratio, "goal": goal, "met": ratio >= goal}


def _small(rounds: int, batch: int) -> dict:
    """A pair of 32 px views from pictures in memory."""
    arrays = [natural_like(32, 32, seed) for seed in range(batch)]
    pictures = [Image.fromarray(array) for array in arrays]
    images = torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).contiguous()
    reference = ReferenceViews(CIFAR)
    return _compare(
        rounds,
        batch,
        GOALS["32px"],
        lambda: [(reference.weak(p), reference.strong(p)) for p in pictures],
        _batched(CIFAR, images, None),
    )


def _large(rounds: int, batch: int) -> dict:
    """A pair of 224 px views: JPEG files against the cache of decoded pictures with a shorter side of 256."""
    files, sizes = [], []
    images = torch.zeros(batch, 3, CACHE_SHORT_SIDE, 384, dtype=torch.uint8)
    for row in range(batch):
        picture = Image.fromarray(natural_like(375, 500 - 20 * (row % 4), row))
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=90)
        files.append(buffer.getvalue())
        width = round(picture.width * CACHE_SHORT_SIDE / picture.height)
        small = torch.from_numpy(np.array(picture.resize((width, CACHE_SHORT_SIDE), Image.Resampling.BILINEAR)))
        images[row, :, :, :width] = small.permute(2, 0, 1)
        sizes.append((CACHE_SHORT_SIDE, width))
    reference = ReferenceViews(FINE_GRAINED)

    def per_sample() -> None:
        for file in files:
            picture = Image.open(io.BytesIO(file)).convert("RGB")
            reference.weak(picture), reference.strong(picture)

    return _compare(rounds, batch, GOALS["224px"], per_sample, _batched(FINE_GRAINED, images, torch.tensor(sizes)))


def _batched(recipe: Recipe, images: Tensor, sizes: Tensor | None) -> Callable[[], Any]:
    views, index = Views(recipe, seed=0), torch.arange(len(images))
    return lambda: views(images, index, NAMES, epoch=0, sizes=sizes)


def measure(rounds: int = 5) -> dict[str, dict[str, Any]]:
    """Microseconds per picture for the weak and strong pair on both sides, their ratio, and the goal, by size."""
    with one_thread():
        return {"32px": _small(rounds, batch=TOGETHER // 32**2), "224px": _large(rounds, batch=32)}
