"""What a method must not do with its memory: keep tensors where a checkpoint cannot see them."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor, nn

from benchmark.errors import CandidError
from methods.base import Method


class MethodDefect(CandidError):
    """A method that breaks the contract; the text names what and where."""


def lint(method: Method) -> None:
    """Refuse tensors outside parameters and persistent buffers: they would be lost on resume."""
    where = location(type(method))
    for path, module in method.named_modules():
        prefix = f"{path}." if path else ""
        for name in sorted(module._non_persistent_buffers_set):
            raise MethodDefect(
                f"{where}: buffer '{prefix}{name}' is not persistent, so it is lost on resume; "
                f"register it without persistent=False."
            )
        for name, value in vars(module).items():
            if not name.startswith("_") and holds_tensor(value):
                raise MethodDefect(
                    f"{where}: attribute '{prefix}{name}' holds a tensor outside parameters and buffers, so it is lost "
                    f"on resume; use register_buffer('{name}', …)."
                )


def holds_tensor(value: Any, depth: int = 2) -> bool:
    """A tensor, or a container with one inside."""
    if isinstance(value, Tensor):
        return True
    if isinstance(value, nn.Module) or depth == 0:
        return False
    if isinstance(value, dict):
        return any(holds_tensor(item, depth - 1) for item in value.values())
    if isinstance(value, list | tuple | set):
        return any(holds_tensor(item, depth - 1) for item in value)
    return False


def location(cls: type) -> str:
    """'file:line' of a class, as far as it can be told."""
    try:
        return f"{inspect.getsourcefile(cls)}:{inspect.getsourcelines(cls)[1]}"
    except (OSError, TypeError):
        return cls.__qualname__
