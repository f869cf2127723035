"""A virtual clock on the pretend device: when the host launches, when the device works, and how long it stands idle.

A model, not a measurement. The host needs 6 µs per launch and, for its own work, the time that it takes here; the device
takes each operation by its bytes and its multiplications, in order, and a wait holds the host until it is done.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from benchmark.device.pretend import PretendCuda

LAUNCH = 6e-6  # seconds of the host
SHORTEST = 2e-6  # a kernel takes at least so long
PCIE = 22e9  # bytes per second from pinned memory
GATHERING = frozenset({"index_select", "index", "gather", "_embedding_bag", "_embedding_bag_forward_only"})
VIEWS = "datasets/"  # what is launched from there is outside autocast


@dataclass(frozen=True)
class Card:
    """What a card reaches in convolutional networks, not what its data sheet says: operations and bytes per second.

    With the A100's numbers ResNet-50 comes to 1,170 (TF32) and 2,400 (bfloat16) pictures per second, where NVIDIA publishes
    993 and 2,711; the H100's are about twice those. Small pictures reach less than large ones, which is not modelled.
    """

    convolution: dict[str, float]
    product: dict[str, float]
    bandwidth: float


CARDS = {
    "A100": Card({"conv": 60e12, "bfloat16": 130e12}, {"conv": 15.5e12, "bfloat16": 150e12}, 1.3e12),
    "H100": Card({"conv": 120e12, "bfloat16": 260e12}, {"conv": 45e12, "bfloat16": 350e12}, 2.6e12),
}


class VirtualClock(PretendCuda):
    """The pretend device with shapes only, and a clock. `precision`: "conv" (TF32 in convolutions) or "bfloat16"."""

    def __init__(self, card: Card, precision: str = "conv") -> None:
        self.card, self.precision = card, precision
        super().__init__(values=False)

    def reset(self) -> None:
        super().reset()
        self.host = self.device_free = self.copied_until = self.busy = 0.0
        self._side = False

    @property
    def seconds(self) -> float:
        """Until both are done."""
        return max(self.host, self.device_free)

    @property
    def idle_share(self) -> float:
        return 1 - self.busy / self.seconds if self.seconds else 0.0

    def launch(self, func: Any, name: str, args: Any, result: Any) -> None:
        super().launch(func, name, args, result)
        self.host += LAUNCH
        if name == "copy to the device":
            return
        cost = self.cost(func, args, result)
        self.device_free = max(self.device_free, self.host) + cost
        self.busy += cost

    def wait(self, what: str) -> None:
        super().wait(what)
        self.host = max(self.host, self.device_free)

    def copy(self, name: str, size: int) -> None:
        super().copy(name, size)
        # Copies have an engine of their own; what is computed next on the main stream waits for them.
        self.copied_until = max(self.copied_until, self.host) + size / PCIE
        self.device_free = max(self.device_free, self.copied_until)

    def _on_cpu(self, func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        started = time.thread_time()
        try:
            return super()._on_cpu(func, name, args, kwargs)
        finally:
            self.host += time.thread_time() - started

    def cost(self, func: Any, args: Any, result: Any) -> float:
        """Seconds of the device."""
        name = func._schema.name.split("::")[1]
        table = args[0] if name in GATHERING else None  # of which only what is picked is read
        tensors = [one for one in tree_leaves((args, result)) if isinstance(one, Tensor) and one is not table]
        moved = sum(map(self.bytes_of, tensors))
        if table is not None:
            bags = name.startswith("_embedding_bag")
            picked = args[1].nelement() * table.shape[1] if bags else tree_leaves(result)[0].nelement()
            moved += picked * table.element_size()
        seconds = max(moved / self.card.bandwidth, SHORTEST)
        packet = getattr(func, "_overloadpacket", None)
        if packet in flop_registry:
            convolution = "conv" in str(packet)
            rates = self.card.convolution if convolution else self.card.product
            seconds = max(seconds, flop_registry[packet](*args, out_val=result) / rates[self.precision])
        return seconds

    def bytes_of(self, tensor: Tensor) -> float:
        """Read or written once; under mixed precision feature maps are half as large."""
        size = tensor.nelement() * tensor.element_size()
        halved = self.precision == "bfloat16" and tensor.dim() == 4 and tensor.dtype == torch.float32
        return size / 2 if halved and not self.where().startswith(VIEWS) else size
