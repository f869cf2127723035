"""SGD as the trainer uses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from methods.base import Method


class SGD(torch.optim.SGD):
    """Torch's fused SGD without what torch does around it, which takes longer than a small network's weights do.

    Torch's own also stops at a parameter whose first gradient comes later than that of others.
    """

    def clear(self) -> None:
        """Forget the gradients, as `zero_grad` does in ten times the time."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    @torch.no_grad()
    def advance(self) -> None:
        """One step: every parameter that has a gradient moves."""
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            moving = [p for p in weights if "momentum_buffer" in self.state[p]]
            self._move(group, moving)
            if len(moving) < len(weights):
                self._move(group, [p for p in weights if "momentum_buffer" not in self.state[p]])

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # what gradient scaling calls
        self.advance()

    def _move(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        if not weights:
            return
        momenta: list[Tensor | None] = [self.state[p].get("momentum_buffer") for p in weights]
        first = momenta[0] is None
        settings = {
            name: group[name] for name in ("lr", "momentum", "weight_decay", "dampening", "nesterov", "maximize")
        }
        sgd(weights, [p.grad for p in weights if p.grad is not None], momenta, foreach=False, fused=True, **settings)
        if first and group["momentum"] != 0:
            for weight, momentum in zip(weights, momenta, strict=True):
                self.state[weight]["momentum_buffer"] = momentum


class Optimizer:
    """SGD behind the small interface that methods see, with gradient scaling where the precision needs it."""

    def __init__(self, method: Method, train: Mapping[str, Any], device: torch.device) -> None:
        self.sgd = SGD(
            method.param_groups(), lr=train["lr"], momentum=train["momentum"], weight_decay=train["weight_decay"]
        )
        self.scaler = torch.amp.GradScaler(device.type, enabled=train["amp"] == "float16")

    def set_lr(self, lr: float) -> None:
        for group in self.sgd.param_groups:
            group["lr"] = lr * group.get("lr_scale", 1.0)

    def minimise(self, loss: Tensor) -> None:
        self.sgd.clear()
        with torch.autocast(loss.device.type, enabled=False):  # backward passes keep the precision of their forward
            self.scaler.scale(loss).backward()
        if not self.scaler.is_enabled():
            self.sgd.advance()
            return
        self.scaler.step(self.sgd)
        self.scaler.update()

    def reset_momentum(self) -> None:
        self.sgd.state.clear()

    def state_dict(self) -> dict[str, Any]:
        return {"sgd": self.sgd.state_dict(), "scaler": self.scaler.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.sgd.load_state_dict(state["sgd"])
        self.scaler.load_state_dict(state["scaler"])
