"""Golden ops of FREDIS."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from methods.base import Batch, Clock
from methods.fredis import FREDIS
from tests.conformance import shared
from tests.conformance.shared import Inputs, Params

FIELDS = ("T", "lam", "alpha", "log_eps", "theta", "delta", "inc", "dec", "times", "eligible")


class GivenPriorities(FREDIS):
    """Draws what it is told."""

    priorities: tuple[Tensor, Tensor]

    def draw_priorities(self) -> tuple[Tensor, Tensor]:
        return self.priorities


def build(params: Params, sets: Tensor, dim: int, epochs: int = 1) -> Any:
    """Return the method on `dim` features."""
    config = FREDIS.Config(
        change_size=params.get("change_size", 0) / len(sets),
        warmup=params.get("warmup_epochs", 0) / epochs,
        update_interval=params.get("update_interval", 1) / epochs,
        **{key: params[key] for key in FIELDS if key in params},
    )
    method = shared.build(GivenPriorities, config, sets, dim, epochs, table="label_weights")
    method.posterior.fill_(1 / sets.shape[1])
    return method


def step(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    z = shared.leaves(x, "logits0", "logits1", "logits2")
    classes = x["confidence"].shape[1]
    method = build(params, torch.ones(x["confidence"].shape), classes)
    shared.set_head(method.network.head, torch.eye(classes), torch.zeros(classes))
    method.sets[x["index"]] = x["candidates"].bool()
    method.label_weights.copy_(x["confidence"])
    method.posterior.copy_(x["posterior"])
    batch = Batch(tuple(z.values()), torch.ones(x["candidates"].shape, dtype=torch.bool), x["index"])
    done = method.update(batch, shared.NoStep(), Clock(0, 0, 1, 1))
    tables = {"confidence": method.label_weights, "posterior": method.posterior}
    return {"loss": done.loss} | tables | shared.gradients(done.loss, z)


def refine(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    method = build(params, x["candidates"], 1)
    method.posterior.copy_(x["posterior"])
    method.visited.fill_(True)
    method.priorities = x["add_priority"], x["remove_priority"]
    method.on_epoch_end(Clock(0, 0, 1, 1), shared.PlainData())
    return {
        "candidates": method.candidate_sets().double(),
        "confidence": method.confidence(),
        "theta": method.diagnostics()["theta"],
        "delta": method.diagnostics()["delta"],
    }


def linear_training(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    candidates, epochs = x["candidates"].bool(), params["epochs"]
    method = build(params, x["candidates"], x["x0"].shape[3], epochs)
    shared.set_head(method.network.head, x["weight"], x["bias"])
    optimizer = shared.sgd(method, params)
    losses, thresholds = [], []
    for epoch, steps in enumerate(x["index"]):
        clock = Clock(epoch, epoch, epochs, 1)
        method.priorities = x["add_priority"][epoch], x["remove_priority"][epoch]
        for k, index in enumerate(steps):
            batch = Batch(tuple(x[f"x{v}"][epoch, k] for v in range(3)), candidates[index], index)
            losses.append(method.update(batch, optimizer, clock).loss.detach())
        method.on_epoch_end(clock, shared.PlainData())
        thresholds.append(method.thresholds.clone())
    return {
        "losses": torch.stack(losses).view(epochs, -1),
        "thresholds": torch.stack(thresholds),
        "candidates": method.candidate_sets().double(),
        "confidence": method.confidence(),
        "posterior": method.posterior,
        "weight": method.network.head.weight,
        "bias": method.network.head.bias,
    }
