"""Send small tensors from the host to a device without waiting."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_ALIGN = 16  # bytes, so that a part of the buffer can be read as any type


def to_device(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Return the tensors on the device, by one copy from pinned memory; on a CPU they are there already.

    torch keeps pinned memory for later calls, and does not reuse it before the copy is done.
    """
    if device.type != "cuda":
        return [tensor.to(device) for tensor in tensors]
    sizes = [tensor.nelement() * tensor.element_size() for tensor in tensors]
    padded_sizes = [-(-size // _ALIGN) * _ALIGN for size in sizes]
    buffer = torch.empty(max(sum(padded_sizes), _ALIGN), dtype=torch.uint8, pin_memory=True)
    starts = [sum(padded_sizes[:k]) for k in range(len(tensors))]

    def part(of: Tensor, k: int) -> Tensor:
        return of[starts[k] : starts[k] + sizes[k]].view(tensors[k].dtype).view(tensors[k].shape)

    for k, tensor in enumerate(tensors):
        part(buffer, k).copy_(tensor)
    there = buffer.to(device, non_blocking=True)
    return [part(there, k) for k in range(len(tensors))]
