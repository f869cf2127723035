"""The optimiser of a run, behind the small interface that methods see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from benchmark.config.optimisation import OPTIMIZERS, SCHEDULES
from benchmark.config.sections import Train
from benchmark.trainer.checkpoint import DamagedCheckpoint
from methods.base import Method


class Optimizer:
    """Optimiser of `train.optimizer` with its schedule, and gradient scaling for float16."""

    def __init__(self, method: Method, train: Train, device: torch.device) -> None:
        self.train = train
        self.schedule = SCHEDULES[train.schedule]
        name, arguments = OPTIMIZERS[train.optimizer](train)
        self.torch: torch.optim.Optimizer = getattr(torch.optim, name)(
            method.param_groups(),
            lr=train.lr,
            weight_decay=train.weight_decay,
            foreach=True,
            **arguments,
        )
        self.scaler = torch.amp.GradScaler(device.type, enabled=train.amp == "float16")

    @property
    def lr(self) -> float:
        return float(self.torch.param_groups[0]["lr"])

    def schedule_to(self, step: int, steps_per_epoch: int) -> None:
        """Set learning rate and momentum for a step, counted from the start of training."""
        rates = self.schedule(self.train, step, steps_per_epoch)
        for group in self.torch.param_groups:
            group["lr"] = rates.lr * group.get("lr_scale", 1.0)
            if rates.momentum is not None and "betas" in group:
                group["betas"] = (rates.momentum, group["betas"][1])
            elif rates.momentum is not None:
                group["momentum"] = rates.momentum

    def minimise(self, loss: Tensor) -> None:
        self.torch.zero_grad()
        with torch.autocast(loss.device.type, enabled=False):  # backward passes keep the precision of their forward
            self.scaler.scale(loss).backward()  # without scaling, the loss and the optimiser's own step
        self.scaler.step(self.torch)
        self.scaler.update()
        torch.clear_autocast_cache()  # it holds lowered copies of the weights before this step

    def reset_momentum(self) -> None:
        self.torch.state.clear()

    def state_dict(self) -> dict[str, Any]:
        return {"torch": self.torch.state_dict(), "scaler": self.scaler.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.torch.load_state_dict(state["torch"])
        self.scaler.load_state_dict(state["scaler"])

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise DamagedCheckpoint unless a saved state fits this optimiser and these weights."""
        groups = [[group["params"] for group in d["param_groups"]] for d in (state["torch"], self.torch.state_dict())]
        if groups[0] != groups[1]:
            raise DamagedCheckpoint("its parameter groups are not those of this method")
        weights = [weight for group in self.torch.param_groups for weight in group["params"]]
        for key, slot in state["torch"]["state"].items():
            for name, value in slot.items():
                if isinstance(value, Tensor) and value.dim() and value.shape != weights[key].shape:
                    raise DamagedCheckpoint(f"its {name} does not fit this method")
