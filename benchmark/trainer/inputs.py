"""From rows of a data set to views on the training device: one path for images in memory, on disk, and features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from benchmark.config.sections import Views as ViewSettings
from benchmark.trainer.pixels import fetchers
from datasets.base import Dataset
from datasets.views.features import feature_views
from datasets.views.recipes import with_normalisation
from datasets.views.upload import to_device
from datasets.views.views import Views

TEST_BATCH = 256
TOGETHER = 1024 * 32 * 32  # pixels of one view that are made at once: 12 MB of results
FEATURES_TOGETHER = 2**15  # features of one view that are made at once: 0.8 MB of draws, which a CPU's cache holds
TOGETHER_ON_A_CARD = 8 * TOGETHER  # its launches cost the same for few and for many
CACHE_LIMIT = 2**30  # bytes of prepared test images that are kept instead of being made anew at every evaluation
CARD_CACHE_LIMIT = 2**31  # where they are kept as uint8; the largest set has 1.3 GB of them


class Inputs(Protocol):
    """Source of the views of training rows and test set."""

    device: torch.device

    def train_views(self, rows: Tensor, names: Sequence[str], epoch: int) -> tuple[Tensor, ...]: ...

    def batches_at_once(self, batch: int) -> int: ...

    def test_batches(self) -> Iterator[Tensor]: ...


class ViewLoader:
    """Views of the training rows and the prepared test set of one data set."""

    def __init__(self, dataset: Dataset, seed: int, device: torch.device, channels_last: bool = False) -> None:
        self.device = device
        self.seed = seed
        self.noise = dataset.noise
        self.views = None if dataset.recipe is None else Views(dataset.recipe, seed)
        self.format = torch.channels_last if channels_last else torch.contiguous_format
        self.fetch_train, self.fetch_test = fetchers((dataset.train, dataset.test), device)
        self.features = None if self.views else dataset.train.images.shape[1]
        self.test_rows = len(dataset.test)
        self._test_cache: list[Tensor] | None = None  # on a CPU as networks take them, on a card as whole levels

    def train_views(self, rows: Tensor, names: Sequence[str], epoch: int) -> tuple[Tensor, ...]:
        """One normalised tensor per name for the training rows (B,)."""
        images, sizes = self.fetch_train(rows)
        if self.views is None:
            (rows,) = to_device((rows,), self.device)
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
        """Return the number of batches whose views are made together: small images are cheap, their fixed cost is not."""
        if self.views is None:
            return max(1, FEATURES_TOGETHER // (batch * (self.features or 1)))
        together = TOGETHER if self.device.type == "cpu" else TOGETHER_ON_A_CARD
        return max(1, together // (batch * self.views.recipe.size**2))

    def test_batches(self) -> Iterator[Tensor]:
        """The whole test set, prepared, in order."""
        if self._test_cache is not None:
            yield from map(self._finished, self._test_cache)
            return
        prepared: list[Tensor] = []
        size, limit = 0, CACHE_LIMIT if self.device.type == "cpu" else CARD_CACHE_LIMIT
        for start in range(0, self.test_rows, TEST_BATCH):
            images = self._prepared(torch.arange(start, min(start + TEST_BATCH, self.test_rows)))
            size += images.nelement() * images.element_size()
            if size <= limit:
                prepared.append(images)
            else:
                prepared.clear()
            yield self._finished(images)
        if size <= limit:
            self._test_cache = prepared

    def _prepared(self, rows: Tensor) -> Tensor:
        """Test rows as they are kept. A card has no memory for float32 of large pictures, and makes it in no time."""
        images, sizes = self.fetch_test(rows)
        if self.views is None:
            return images
        if self.device.type == "cpu":
            return self.views.test(images, sizes).contiguous(memory_format=self.format)
        return self.views.test_levels(images, sizes)

    def _finished(self, images: Tensor) -> Tensor:
        """As networks take them."""
        if self.views is None or images.dtype != torch.uint8:
            return images
        return self.views.normalised(images).contiguous(memory_format=self.format)


def with_views(dataset: Dataset, views: ViewSettings, normalisation: str = "") -> Dataset:
    """The data set with the views that a run asks for, normalised as its weights want; its annotator knows nothing of them."""
    if dataset.recipe is None:
        return dataset
    recipe = replace(with_normalisation(dataset.recipe, normalisation), weak=views.weak, strong=views.strong)
    return replace(dataset, recipe=recipe)
