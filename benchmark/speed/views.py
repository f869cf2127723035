"""How fast the batched views are, against the same recipes one image at a time with Pillow, in the same run.

Small images are made as many at once as in training. The form with Pillow is the fastest common one: v2 of the transforms
adds about half a millisecond of bookkeeping per view, torchvision's own RandAugment 120 µs.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from torch import Tensor
from torchvision import transforms

from benchmark.speed.timing import compare
from benchmark.train.inputs import TOGETHER
from datasets.views.recipes import CIFAR, FINE_GRAINED, Recipe
from datasets.views.views import Views

GOALS = {"32 px": 12.0, "224 px": 1.8}
LARGE_BATCH = 32
AFFINE = Image.Transform.AFFINE
CUTOUT_FILL = (125, 123, 114)
Load = Callable[[], Image.Image]
View = Callable[[Image.Image], Tensor]


# name -> (operation, lowest magnitude, highest magnitude)
OPERATIONS: dict[str, tuple[Callable[[Image.Image, float], Image.Image], float, float]] = {
    "autocontrast": (lambda image, _: ImageOps.autocontrast(image), 0, 1),
    "brightness": (lambda image, v: ImageEnhance.Brightness(image).enhance(v), 0.05, 0.95),
    "color": (lambda image, v: ImageEnhance.Color(image).enhance(v), 0.05, 0.95),
    "contrast": (lambda image, v: ImageEnhance.Contrast(image).enhance(v), 0.05, 0.95),
    "equalize": (lambda image, _: ImageOps.equalize(image), 0, 1),
    "identity": (lambda image, _: image, 0, 1),
    "posterize": (lambda image, v: ImageOps.posterize(image, int(v)), 4, 8),
    "rotate": (lambda image, v: image.rotate(v), -30, 30),
    "sharpness": (lambda image, v: ImageEnhance.Sharpness(image).enhance(v), 0.05, 0.95),
    "shear_x": (lambda image, v: image.transform(image.size, AFFINE, (1, v, 0, 0, 1, 0)), -0.3, 0.3),
    "shear_y": (lambda image, v: image.transform(image.size, AFFINE, (1, 0, 0, v, 1, 0)), -0.3, 0.3),
    "solarize": (lambda image, v: ImageOps.solarize(image, int(v)), 0, 256),
    "translate_x": (lambda image, v: image.transform(image.size, AFFINE, (1, 0, v * image.width, 0, 1, 0)), -0.3, 0.3),
    "translate_y": (lambda image, v: image.transform(image.size, AFFINE, (1, 0, 0, 0, 1, v * image.height)), -0.3, 0.3),
}


def strong_operations(image: Image.Image) -> Image.Image:
    """Three operations with replacement, each with its own magnitude, then a grey square of up to half the width."""
    for operation, low, high in random.choices(list(OPERATIONS.values()), k=3):
        image = operation(image, random.uniform(low, high))
    width, height = image.size
    side = random.uniform(0, 0.5) * width
    left = int(max(0.0, random.uniform(0, width) - side / 2))
    top = int(max(0.0, random.uniform(0, height) - side / 2))
    image = image.copy()
    ImageDraw.Draw(image).rectangle((left, top, min(width, left + side), min(height, top + side)), CUTOUT_FILL)
    return image


def pillow_views(recipe: Recipe) -> tuple[View, View]:
    """The weak and the strong view of one Pillow image, (3, size, size) float32 each."""
    flip = transforms.RandomHorizontalFlip(0.5 if recipe.flip else 0.0)
    crop = [transforms.RandomResizedCrop(recipe.size, recipe.scale, recipe.ratio), flip]
    jitter = transforms.RandomApply([transforms.ColorJitter(*recipe.jitter)], recipe.jitter_probability)
    colours = [jitter, transforms.RandomGrayscale(recipe.gray)]
    finish = [transforms.ToTensor(), transforms.Normalize(recipe.mean, recipe.std)]
    return transforms.Compose([*crop, *colours, *finish]), transforms.Compose([*crop, strong_operations, *finish])


def natural_like(height: int, width: int, seed: int) -> np.ndarray:
    """(height, width, 3) uint8 with the falling spectrum of photographs, so that JPEG has honest work to do."""
    noise = np.random.default_rng(seed).standard_normal((height, width, 3))
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None]) + 1 / max(height, width)
    field = np.fft.ifft2(np.fft.fft2(noise, axes=(0, 1)) / frequency[..., None], axes=(0, 1)).real
    field = field @ np.array([[1, 0.8, 0.7], [0.8, 1, 0.8], [0.7, 0.8, 1]])  # channels of photographs go together
    field = (field - field.mean()) / field.std()
    return np.clip(128 + 50 * field, 0, 255).astype(np.uint8)


def _row(size: str, recipe: Recipe, load: Sequence[Load], arrays: Sequence[np.ndarray], rounds: int) -> dict[str, Any]:
    """Both views of each image, loaded and made one by one, and made at once from the images in memory."""
    images = torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).contiguous()
    views, index, count = Views(recipe, seed=0), torch.arange(len(images)), len(images)
    weak, strong = pillow_views(recipe)

    def one_by_one() -> None:
        for image in (one() for one in load):
            weak(image), strong(image)

    slow, fast, ratio = compare(one_by_one, lambda: views(images, index, ("weak", "strong"), epoch=0), rounds)
    times = {"one_by_one_us": slow / count * 1e6, "batched_us": fast / count * 1e6, "times_faster": ratio}
    return {"size": size, **times, "goal": GOALS[size], "met": ratio >= GOALS[size]}


def measure(rounds: int) -> list[dict[str, Any]]:
    """32 px from memory, and 224 px from JPEG files against the cache of decoded images with a shorter side of 256."""
    small = [natural_like(32, 32, seed) for seed in range(TOGETHER // 32**2)]
    files = [io.BytesIO() for _ in range(LARGE_BATCH)]
    for seed, file in enumerate(files):
        Image.fromarray(natural_like(375, 500, seed)).save(file, "JPEG", quality=90)
    large = [natural_like(256, 341, seed) for seed in range(LARGE_BATCH)]
    return [
        _row("32 px", CIFAR, [partial(Image.fromarray, array) for array in small], small, rounds),
        _row("224 px", FINE_GRAINED, [partial(Image.open, file) for file in files], large, rounds),
    ]
