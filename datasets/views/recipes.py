"""Settings of the augmentation of images and feature rows. Needs no torch: a dataset's file may define its own recipe."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

RGB = tuple[float, float, float]
# Choices for the weak and the strong view; the first of each is CEL's and the default.
WEAK = ("simclr", "crop-flip", "plain")
STRONG = ("randaugment", "autoaugment")


@dataclass(frozen=True)
class Recipe:
    """Augmentation of the images of one kind of data."""

    size: int  # side of the result
    scale: tuple[float, float]  # share of the area that a crop covers
    flip: bool
    mean: RGB
    std: RGB
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # width : height of a crop
    jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1)  # brightness, contrast, saturation, hue
    jitter_probability: float = 0.8
    gray: float = 0.2
    distill: Literal["cifar", "imagenet", "strong"] = "cifar"  # AutoAugment's policy, or the operations of `strong`
    test_resize: int | None = None  # shorter side before the centre crop; None: the whole image becomes size × size
    autoaugment: Literal["v2", "extended"] = "v2"
    weak: str = WEAK[0]  # operations of the view of this name; see views.py
    strong: str = STRONG[0]


def with_normalisation(recipe: Recipe, how: str) -> Recipe:
    """Return the recipe with the mean and deviation of "mean/std", one number or three each; empty: unchanged."""
    if not how:
        return recipe
    mean, std = (_rgb(part) for part in how.split("/"))
    return replace(recipe, mean=mean, std=std)


def is_normalisation(how: str) -> bool:
    """Return whether `with_normalisation` can read the text."""
    try:
        return not how or all(value > 0 for value in [_rgb(part) for part in how.split("/", 1)][1])
    except (ValueError, IndexError):
        return False


def _rgb(text: str) -> RGB:
    values = [float(word) for word in text.split(",")]
    if len(values) not in (1, 3) or not all(math.isfinite(value) for value in values):
        raise ValueError(f"{text} is neither one number nor three")
    red, green, blue = values * (3 // len(values))
    return red, green, blue


CIFAR = Recipe(size=32, scale=(0.2, 1.0), flip=True, mean=(0.5071, 0.4867, 0.4408), std=(0.2675, 0.2565, 0.2761))
FINE_GRAINED = Recipe(
    size=224,
    scale=(0.08, 1.0),
    flip=True,
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
    distill="imagenet",
    test_resize=256,
)
# Digits change their meaning when mirrored, and half of one is no longer readable: AutoAugment's shifts of up to 45 % of
# the side push them out of the image, so DIRK's student would never see some of them.
DIGITS = Recipe(
    size=16,
    scale=(0.8, 1.0),
    flip=False,
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
    jitter_probability=0.5,
    distill="strong",
)


@dataclass(frozen=True)
class Noise:
    """Noise that a view adds to feature rows."""

    deviation: float  # of the Gaussian noise added, in units of the scaled feature
    dropped: float  # share of features set to 0, their mean
    fixed: bool = False  # one noisy copy for the whole training instead of one per epoch


# Our choice, because no augmentation is published for feature tables. Other views are the unchanged features.
NOISE = {"strong": Noise(0.1, 0.2), "distill": Noise(0.2, 0.0)}
