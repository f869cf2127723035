"""What a method must not do with its memory: keep tensors where a checkpoint cannot see them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from benchmark.errors import MethodDefect
from methods.base import Method

LIBRARIES = ("torch", "torchvision", "timm")  # their modules have private caches that they can rebuild


def check_no_stray_tensors(method: Method) -> None:
    """Refuse tensors outside parameters and persistent buffers: they would be lost on resume."""
    for _, text in stray_tensors(method):
        raise MethodDefect(type(method), f"{text}.")


def stray_tensors(method: Method) -> Iterator[tuple[str, str]]:
    """Name and sentence for each tensor that a checkpoint would not hold."""
    for path, module in method.named_modules():
        prefix = f"{path}." if path else ""
        for name in sorted(module._non_persistent_buffers_set):
            yield (
                name,
                f"buffer '{prefix}{name}' is not persistent, so it is lost on resume; "
                f"register it without persistent=False",
            )
        for name, value in vars(module).items():
            if not _is_internal(module, name) and holds_tensor(value):
                yield (
                    name,
                    f"attribute '{prefix}{name}' holds a tensor outside parameters and buffers, so it is lost on "
                    f"resume; use register_buffer('{name}', …)",
                )


def _is_internal(module: nn.Module, name: str) -> bool:
    """Private attributes of a library's module, and those in which every module keeps its parameters and buffers."""
    if not name.startswith("_"):
        return False
    return type(module).__module__.split(".")[0] in LIBRARIES or name in _OF_EVERY_MODULE


_OF_EVERY_MODULE = frozenset(vars(nn.Module()))


def holds_tensor(value: Any, depth: int = 2) -> bool:
    """A tensor, or a container with one inside."""
    if isinstance(value, Tensor):
        return True
    if isinstance(value, nn.Module) or depth == 0:
        return False
    if isinstance(value, dict):
        return any(holds_tensor(item, depth - 1) for item in value.values())
    if isinstance(value, list | tuple | set | deque):
        return any(holds_tensor(item, depth - 1) for item in value)
    return False
