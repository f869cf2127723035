"""Images and features during training: on the device if they fit, otherwise sent to it batch by batch.

Pictures of many sizes lie one after the other, as in their file, and a batch is unpacked on the device: a batch that is
padded on the host takes ten times as long to prepare and two to three times the bytes to send.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from datasets.base import Split
from datasets.views.upload import to_device

RESIDENT_SHARE = 0.35  # of a card's free memory that pictures may take for good


# Rows (B,) of the host -> images (B, 3, H, W) uint8 or features (B, d) on the device, and valid sizes on the host.
Fetch = Callable[[Tensor], tuple[Tensor, Tensor | None]]


class InMemory:
    """Images of one size, or features: one tensor on the device."""

    def __init__(self, split: Split, device: torch.device) -> None:
        self.images, self.sizes = split.images.to(device), split.sizes

    def fetch(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        (index,) = to_device((rows,), self.images.device)
        return self.images.index_select(0, index), None if self.sizes is None else self.sizes[rows]


class OnDevice:
    """Pictures of many sizes, all their pixels on the device."""

    def __init__(self, split: Split, flat: Tensor) -> None:
        assert split.sizes is not None and split.offsets is not None
        self.flat, self.sizes, self.offsets = flat, split.sizes, split.offsets

    def fetch(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        sizes = self.sizes[rows]
        return unpacked(self.flat, self.offsets[rows], sizes), sizes


class Streamed:
    """Pictures of many sizes that stay in their mapped file: a batch goes through one of two pinned buffers.

    The copy has a stream of its own, so it goes on beside the step before; a buffer is filled again when the copy from
    it, two batches ago, is done.
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
        """The buffer of the batch before the last, or a larger one."""
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

    starts (B,) and sizes (B, 2) are of the host. A row of a picture is read as W bytes from its first, whatever its own
    width; what belongs to the next row is then blotted out. So `flat` must go on for W bytes behind the last picture.
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
    """Return how to get batches of training and test part, whose pictures may lie in one file."""
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
