"""Rows of a dataset as views on the training device: images in memory or on disk, and features.

On a GPU, images stay on the device if they fit; otherwise they are sent to it batch by batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from benchmark.config.sections import Views as ViewSettings
from datasets.base import Dataset, Split
from datasets.views.features import feature_views
from datasets.views.recipes import with_normalisation
from datasets.views.upload import to_device
from datasets.views.views import Views

TEST_BATCH = 256
TOGETHER = 1024 * 32 * 32  # pixels of one view that are made at once: 12 MB of results
FEATURES_TOGETHER = 2**15  # features of one view that are made at once: 0.8 MB of draws, which a CPU's cache holds
TOGETHER_ON_GPU = 8 * TOGETHER  # its launches cost the same for few and for many
CACHE_LIMIT = 2**30  # bytes of prepared test images that stay in memory between evaluations
GPU_CACHE_LIMIT = 2**31  # for images in uint8; the largest set has 1.3 GB of them
RESIDENT_SHARE = 0.35  # of a GPU's free memory that images may take for a whole run


class Inputs(Protocol):
    """Source of the views of training rows and test set."""

    device: torch.device

    def train_views(self, rows: Tensor, names: Sequence[str], epoch: int) -> tuple[Tensor, ...]: ...

    def batches_at_once(self, batch: int) -> int: ...

    def test_batches(self) -> Iterator[Tensor]: ...


class ViewLoader:
    """Make views of the training rows and the prepared test set of one dataset."""

    def __init__(self, dataset: Dataset, seed: int, device: torch.device, channels_last: bool = False) -> None:
        self.device = device
        self.seed = seed
        self.noise = dataset.noise
        self.views = None if dataset.recipe is None else Views(dataset.recipe, seed)
        self.format = torch.channels_last if channels_last else torch.contiguous_format
        self.fetch_train, self.fetch_test = fetchers((dataset.train, dataset.test), device)
        self.features = None if self.views else dataset.train.images.shape[1]
        self.test_rows = len(dataset.test)
        self._test_cache: list[Tensor] | None = None  # on a CPU as networks take them, on a GPU as uint8

    def train_views(self, rows: Tensor, names: Sequence[str], epoch: int) -> tuple[Tensor, ...]:
        """Return one normalised tensor per name for the training rows (B,)."""
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
        together = TOGETHER if self.device.type == "cpu" else TOGETHER_ON_GPU
        return max(1, together // (batch * self.views.recipe.size**2))

    def test_batches(self) -> Iterator[Tensor]:
        """Yield the whole test set, prepared, in order."""
        if self._test_cache is not None:
            yield from map(self._finished, self._test_cache)
            return
        prepared: list[Tensor] = []
        size, limit = 0, CACHE_LIMIT if self.device.type == "cpu" else GPU_CACHE_LIMIT
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
        """Return test rows as the cache stores them: on a GPU as uint8, because float32 takes too much of its memory."""
        images, sizes = self.fetch_test(rows)
        if self.views is None:
            return images
        if self.device.type == "cpu":
            return self.views.test(images, sizes).contiguous(memory_format=self.format)
        return self.views.test_levels(images, sizes)

    def _finished(self, images: Tensor) -> Tensor:
        """Return test images as networks take them."""
        if self.views is None or images.dtype != torch.uint8:
            return images
        return self.views.normalised(images).contiguous(memory_format=self.format)


def with_views(dataset: Dataset, views: ViewSettings, normalisation: str = "") -> Dataset:
    """Return the dataset with the views of a run, normalised for its weights; annotators do not use these."""
    if dataset.recipe is None:
        return dataset
    recipe = replace(with_normalisation(dataset.recipe, normalisation), weak=views.weak, strong=views.strong)
    return replace(dataset, recipe=recipe)


# Pixels -----------------------------------------------------------------------------------------------------------------
# Rows (B,) on the host -> images (B, 3, H, W) uint8 or features (B, d) on the device, and valid sizes on the host.
Fetch = Callable[[Tensor], tuple[Tensor, Tensor | None]]


class InMemory:
    """Images of one size, or features: one tensor on the device."""

    def __init__(self, split: Split, device: torch.device) -> None:
        self.images, self.sizes = split.images.to(device), split.sizes

    def fetch(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        (index,) = to_device((rows,), self.images.device)
        return self.images.index_select(0, index), None if self.sizes is None else self.sizes[rows]


class OnDevice:
    """Images of many sizes, one after the other as in their file, with all pixels on the device.

    A batch is unpacked there: padding on the host takes ten times as long and two to three times the bytes to send.
    """

    def __init__(self, split: Split, flat: Tensor) -> None:
        assert split.sizes is not None and split.offsets is not None
        self.flat, self.sizes, self.offsets = flat, split.sizes, split.offsets

    def fetch(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        sizes = self.sizes[rows]
        return unpacked(self.flat, self.offsets[rows], sizes), sizes


class Streamed:
    """Images of many sizes that stay in their mapped file: a batch goes through one of two pinned buffers.

    The copy has its own stream and overlaps with the step before; a buffer is refilled when the copy from it, two batches
    ago, is done.
    """

    def __init__(self, split: Split, device: torch.device) -> None:
        assert split.sizes is not None and split.offsets is not None
        self.pixels, self.sizes, self.offsets, self.device = split.images, split.sizes, split.offsets, device
        self.stream = torch.cuda.Stream(device)
        self.buffers: list[tuple[Tensor, torch.cuda.Event] | None] = [None, None]

    def fetch(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        sizes = self.sizes[rows]
        lengths = 3 * sizes.prod(1)
        starts = lengths.cumsum(0) - lengths
        buffer, copied = self._buffer(int(lengths.sum()) + largest_width(sizes))
        stored, packed = self.pixels.numpy(), buffer.numpy()  # 0.3 µs per slice, where torch takes 2
        for start, length, at in zip(self.offsets[rows].tolist(), lengths.tolist(), starts.tolist(), strict=True):
            packed[at : at + length] = stored[start : start + length]
        main = torch.cuda.current_stream(self.device)
        with torch.cuda.stream(self.stream):
            flat = buffer.to(self.device, non_blocking=True)
            copied.record(self.stream)
        main.wait_stream(self.stream)
        flat.record_stream(main)
        return unpacked(flat, starts, sizes), sizes

    def _buffer(self, size: int) -> tuple[Tensor, torch.cuda.Event]:
        """Return the buffer of the batch before the last, or a larger one."""
        oldest = self.buffers.pop(0)
        if oldest is None or len(oldest[0]) < size:
            memory = torch.empty(size + size // 4, dtype=torch.uint8, pin_memory=True)
            oldest = memory, torch.cuda.Event()
        elif not oldest[1].query():
            oldest[1].synchronize()
        self.buffers.append(oldest)
        return oldest[0][:size], oldest[1]


def largest_width(sizes: Tensor) -> int:
    return int(sizes[:, 1].max())


def unpacked(flat: Tensor, starts: Tensor, sizes: Tensor) -> Tensor:
    """Return the images of `Split.batch` from flat pixels on a device: (B, 3, H, W) uint8, padded with 0.

    starts (B,) and sizes (B, 2) are on the host. Each row of an image is read as W bytes from its first, whatever its own
    width, and the bytes of the next row are then set to 0; so `flat` needs W more bytes after the last image.
    """
    height, width = sizes.amax(0).tolist()
    starts, sizes = to_device((starts, sizes), flat.device)
    heights, widths = sizes.view(-1, 2, 1, 1).unbind(1)  # (B, 1, 1) each
    channel = torch.arange(3, device=flat.device).view(1, 3, 1)
    row, column = torch.arange(height, device=flat.device), torch.arange(width, device=flat.device)
    inside = row < heights  # (B, 1, H)
    first = starts.view(-1, 1, 1) + (channel * heights + row) * widths
    first = torch.where(inside, first, 0)
    windows = flat.as_strided((len(flat) - width + 1, width), (1, 1))
    images = windows.index_select(0, first.view(-1)).view(-1, 3, height, width)
    valid = inside.unsqueeze(3) & (column < widths.unsqueeze(3))  # (B, 1, H, W)
    return images.mul_(valid)


def fetchers(splits: tuple[Split, ...], device: torch.device) -> list[Fetch]:
    """Return functions that fetch batches of the training and the test part, whose images may be in one file."""
    if device.type != "cuda":
        return [Split(s.images.to(device), s.labels, s.sizes, s.offsets).batch for s in splits]
    packed = {s.images.data_ptr(): s.images for s in splits if s.offsets is not None}
    free, _ = torch.cuda.mem_get_info(device)
    fits = sum(len(images) for images in packed.values()) <= RESIDENT_SHARE * free
    margin = max((largest_width(s.sizes) for s in splits if s.sizes is not None), default=0)  # see `unpacked`
    copies: dict[int, Tensor] = {}
    for address, images in packed.items() if fits else ():
        copies[address] = torch.zeros(len(images) + margin, dtype=torch.uint8, device=device)
        copies[address][: len(images)].copy_(images)
    result: list[Fetch] = []
    for split in splits:
        if split.offsets is None:
            result.append(InMemory(split, device).fetch)
        elif fits:
            result.append(OnDevice(split, copies[split.images.data_ptr()]).fetch)
        else:
            result.append(Streamed(split, device).fetch)
    return result
