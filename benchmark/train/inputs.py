"""From rows of a data set to views on the training device: one path for images in memory, on disk, and features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from benchmark.plan.sections import Views as ViewSettings
from datasets.base import Dataset, Split
from datasets.views.features import feature_views
from datasets.views.recipes import normalised
from datasets.views.views import Views

TEST_BATCH = 256
TOGETHER = 1024 * 32 * 32  # pixels of one view that are made at once: 12 MB of results
FEATURES_TOGETHER = 2**15  # features of one view that are made at once: 0.8 MB of draws, which a CPU's cache holds
CACHE_LIMIT = 2**30  # bytes of prepared test images that are kept instead of being made anew at every evaluation


class Inputs(Protocol):
    """Where the trainer gets views of the training rows and the test set from."""

    device: torch.device

    def train_views(self, rows: Tensor, names: Sequence[str], epoch: int) -> tuple[Tensor, ...]: ...

    def batches_at_once(self, batch: int) -> int: ...

    def test_batches(self) -> Iterator[Tensor]: ...


class ViewLoader:
    """Views of the training rows and the prepared test set of one data set.

    A training set that is one tensor moves to the device once; images of many sizes stay in their memory-mapped file
    and travel batch by batch.
    """

    def __init__(self, dataset: Dataset, seed: int, device: torch.device, channels_last: bool = False) -> None:
        self.device = device
        self.seed = seed
        self.noise = dataset.noise
        self.views = None if dataset.recipe is None else Views(dataset.recipe, seed)
        self.format = torch.channels_last if channels_last else torch.contiguous_format
        self.train = _on_device(dataset.train, device)
        self.test = _on_device(dataset.test, device)
        self._test_cache: list[Tensor] | None = None

    def train_views(self, rows: Tensor, names: Sequence[str], epoch: int) -> tuple[Tensor, ...]:
        """One normalised tensor per name for the training rows (B,)."""
        images, sizes = self._fetch(self.train, rows)
        rows = rows.to(self.device)
        if self.views is None:
            return tuple(
                feature_views(
                    images, name, seed=self.seed + names[:k].count(name), epoch=epoch, index=rows, strong=self.noise
                )
                for k, name in enumerate(names)
            )
        return tuple(
            view.contiguous(memory_format=self.format) for view in self.views(images, rows, tuple(names), epoch, sizes)
        )

    def batches_at_once(self, batch: int) -> int:
        """How many batches to make views of together: small images are cheap, their fixed cost is not."""
        if self.views is None:
            return max(1, FEATURES_TOGETHER // (batch * self.train.images.shape[1]))
        return max(1, TOGETHER // (batch * self.views.recipe.size**2))

    def test_batches(self) -> Iterator[Tensor]:
        """The whole test set, prepared, in order."""
        if self._test_cache is not None:
            yield from self._test_cache
            return
        kept: list[Tensor] = []
        size = 0
        for start in range(0, len(self.test), TEST_BATCH):
            rows = torch.arange(start, min(start + TEST_BATCH, len(self.test)))
            images, sizes = self._fetch(self.test, rows)
            if self.views is not None:
                images = self.views.test(images, sizes).contiguous(memory_format=self.format)
            size += images.nelement() * images.element_size()
            if size <= CACHE_LIMIT:
                kept.append(images)
            yield images
        if size <= CACHE_LIMIT:
            self._test_cache = kept

    def _fetch(self, split: Split, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        images, sizes = split.batch(rows)
        if images.device.type != self.device.type:
            images = images.pin_memory() if self.device.type == "cuda" else images
            images = images.to(self.device, non_blocking=True)
        return images, None if sizes is None else sizes.to(self.device)


def with_views(dataset: Dataset, views: ViewSettings, normalisation: str = "") -> Dataset:
    """The data set with the views that a run asks for, normalised as its weights want; its annotator knows nothing of them."""
    if dataset.recipe is None:
        return dataset
    recipe = replace(normalised(dataset.recipe, normalisation), weak=views.weak, strong=views.strong)
    return replace(dataset, recipe=recipe)


def _on_device(split: Split, device: torch.device) -> Split:
    if split.offsets is not None:
        return split
    return Split(split.images.to(device), split.labels, split.sizes)
