"""The weak and strong views one picture at a time, with Pillow and torchvision: the yardstick for `views.py`.

Nothing trains with this file. It states the recipes in the most common form, so that the speed of the batched views
can be measured against it in the same run. The v1 transforms are the faster ones on Pillow pictures (v2 adds about half
a millisecond of bookkeeping per view), hence the fair opponent.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from torch import Tensor
from torchvision import transforms

if TYPE_CHECKING:
    from datasets.views.recipes import Recipe

Picture = Image.Image
CUTOUT_FILL = (125, 123, 114)


def _affine(image: Picture, matrix: tuple[float, float, float, float, float, float]) -> Picture:
    return image.transform(image.size, Image.Transform.AFFINE, matrix)


# name -> (operation, lowest magnitude, highest magnitude)
OPERATIONS: dict[str, tuple[Callable[[Picture, float], Picture], float, float]] = {
    "autocontrast": (lambda image, _: ImageOps.autocontrast(image), 0, 1),
    "brightness": (lambda image, v: ImageEnhance.Brightness(image).enhance(v), 0.05, 0.95),
    "color": (lambda image, v: ImageEnhance.Color(image).enhance(v), 0.05, 0.95),
    "contrast": (lambda image, v: ImageEnhance.Contrast(image).enhance(v), 0.05, 0.95),
    "equalize": (lambda image, _: ImageOps.equalize(image), 0, 1),
    "identity": (lambda image, _: image, 0, 1),
    "posterize": (lambda image, v: ImageOps.posterize(image, int(v)), 4, 8),
    "rotate": (lambda image, v: image.rotate(v), -30, 30),
    "sharpness": (lambda image, v: ImageEnhance.Sharpness(image).enhance(v), 0.05, 0.95),
    "shear_x": (lambda image, v: _affine(image, (1, v, 0, 0, 1, 0)), -0.3, 0.3),
    "shear_y": (lambda image, v: _affine(image, (1, 0, 0, v, 1, 0)), -0.3, 0.3),
    "solarize": (lambda image, v: ImageOps.solarize(image, math.ceil(v)), 0, 256),
    "translate_x": (lambda image, v: _affine(image, (1, 0, v * image.width, 0, 1, 0)), -0.3, 0.3),
    "translate_y": (lambda image, v: _affine(image, (1, 0, 0, 0, 1, v * image.height)), -0.3, 0.3),
}


def cutout(image: Picture, fraction: float) -> Picture:
    """One grey square with a side of `fraction` of the width, centred anywhere in the picture."""
    width, height = image.size
    side = fraction * width
    left = int(max(0.0, random.uniform(0, width) - side / 2))
    top = int(max(0.0, random.uniform(0, height) - side / 2))
    image = image.copy()
    box = (left, top, min(width, left + side), min(height, top + side))
    ImageDraw.Draw(image).rectangle(box, CUTOUT_FILL)
    return image


class RandAugment:
    """Three operations with replacement, each with its own magnitude, then one cutout."""

    def __call__(self, image: Picture) -> Picture:
        for operation, low, high in random.choices(list(OPERATIONS.values()), k=3):
            image = operation(image, random.uniform(low, high))
        return cutout(image, random.uniform(0, 0.5))


class ReferenceViews:
    """`weak` and `strong` of one Pillow picture, (3, size, size) float32 each."""

    def __init__(self, recipe: Recipe) -> None:
        crop = [
            transforms.RandomResizedCrop(recipe.size, recipe.scale, recipe.ratio),
            transforms.RandomHorizontalFlip(0.5 if recipe.flip else 0.0),
        ]
        finish = [transforms.ToTensor(), transforms.Normalize(recipe.mean, recipe.std)]
        jitter = transforms.RandomApply([transforms.ColorJitter(*recipe.jitter)], recipe.jitter_probability)
        self.weak: Callable[[Picture], Tensor] = transforms.Compose(
            [*crop, jitter, transforms.RandomGrayscale(recipe.gray), *finish]
        )
        self.strong: Callable[[Picture], Tensor] = transforms.Compose([*crop, RandAugment(), *finish])
