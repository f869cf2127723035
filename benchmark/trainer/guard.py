"""Watch a run: means of logged values, losses that are not finite, tensors that a checkpoint would miss, memory."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

LIBRARIES = ("torch", "torchvision", "timm")  # their modules have private caches that they can rebuild
OF_EVERY_MODULE = frozenset(vars(nn.Module()))  # where parameters and buffers are
GUARD_EVERY = 25  # steps between looks at the losses on an accelerator; on a CPU every step is looked at


class Diverged(Exception):
    """Raised for a loss or weight that is not finite."""


class RunningMeans:
    """Running means of logged values, stored on the accelerator if there is one, so that logging never waits for it."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor | float] = {}
        self.counts: dict[str, int] = {}

    def add(self, name: str, value: Tensor) -> Tensor | float:
        """Add a value; return it as it is stored."""
        # On a CPU nothing waits, and adding numbers is cheaper than adding tensors.
        number = value.item() if value.device.type == "cpu" else value.detach().double()
        self.sums[name] = self.sums[name] + number if name in self.sums else number
        self.counts[name] = self.counts.get(name, 0) + 1
        return number

    def read(self) -> dict[str, float]:
        return {name: float(total) / self.counts[name] for name, total in self.sums.items()}

    def state(self) -> dict[str, Any]:
        return {"sums": dict(self.sums), "counts": dict(self.counts)}

    def restore(self, state: Mapping[str, Any], device: torch.device) -> None:
        sums = state["sums"].items()
        self.sums = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in sums}
        self.counts = dict(state["counts"])


@dataclass
class Guard:
    """Raise Diverged with the step and the rows when a loss is not finite."""

    every: int
    recent: list[tuple[int, Tensor | float, Tensor]] = field(default_factory=list)

    def watch(self, step: int, loss: Tensor | float, rows: Tensor) -> None:
        if self.every == 1 and math.isfinite(loss):
            return
        self.recent.append((step, loss, rows))
        if len(self.recent) >= self.every:
            self.check()

    def check(self) -> None:
        if not self.recent:
            return
        losses = [loss for _, loss, _ in self.recent]
        tensors = [loss for loss in losses if isinstance(loss, Tensor)]
        values = torch.stack(tensors).tolist() if tensors else losses  # one wait for all losses
        for value, (step, _, rows) in zip(values, self.recent, strict=True):
            if not math.isfinite(value):
                first = ", ".join(str(row) for row in rows.tolist()[:8])
                more = f" and {len(rows) - 8} more" if len(rows) > 8 else ""
                raise Diverged(f"the loss became {value} at step {step} (training rows {first}{more})")
        self.recent.clear()


def stray_tensors(method: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield attribute and sentence for each tensor outside parameters and persistent buffers."""
    for path, module in method.named_modules():
        prefix = f"{path}." if path else ""
        for name in sorted(module._non_persistent_buffers_set):
            text = f"buffer '{prefix}{name}' is not persistent, so it is lost on resume"
            yield name, f"{text}; register it without persistent=False"
        of_library = type(module).__module__.split(".")[0] in LIBRARIES
        for name, value in vars(module).items():
            internal = name.startswith("_") and (of_library or name in OF_EVERY_MODULE)
            if not internal and holds_tensor(value):
                text = (
                    f"attribute '{prefix}{name}' holds a tensor outside parameters and buffers, so it is lost on resume"
                )
                yield name, f"{text}; use register_buffer('{name}', …)"


def holds_tensor(value: Any, depth: int = 2) -> bool:
    """Return whether a value is a tensor, or a container with one inside."""
    if isinstance(value, Tensor):
        return True
    if depth > 0 and isinstance(value, dict | list | tuple | set | deque):
        items = value.values() if isinstance(value, dict) else value
        return any(holds_tensor(item, depth - 1) for item in items)
    return False


def reset_peak_memory(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        with open("/proc/self/clear_refs", "w") as handle:  # Linux: forget the high-water mark of earlier runs
            handle.write("5")
    except OSError:
        pass


def peak_memory_mb(device: torch.device) -> float:
    """Return the peak memory of the device, or of this process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    try:
        with open("/proc/self/status") as handle:
            for line in handle:
                if line.startswith("VmHWM"):
                    return int(line.split()[1]) / 1024
    except OSError:
        pass
    return math.nan
