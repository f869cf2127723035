"""Golden ops of CR-DPLL."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from methods import cr_dpll
from methods.base import Batch, Clock, Task
from methods.blocks import uniform_confidence
from tests.conformance.trajectory import Identity, Inputs, Params, PlainSGD, Scripted, with_gradient


def conformal_init(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"target": uniform_confidence(x["candidates"], torch.float64)}


def conformal_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"target": cr_dpll.conformal_target(x["logits"], x["candidates"])}


def supervised_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return with_gradient(lambda z: cr_dpll.supervised_loss(z, x["candidates"], params["eps"]), x)


def consistency_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    out = with_gradient(lambda z: cr_dpll.consistency_loss(z, x["target"]).sum(), x)
    return out | {"loss_per_view": cr_dpll.consistency_loss(x["logits"], x["target"])}


def consistency_online(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    out = with_gradient(lambda z: cr_dpll.online_consistency_loss(z, x["candidates"]), x)
    return out | {"target": cr_dpll.conformal_target(x["logits"], x["candidates"])}


def balance_schedule(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    settings = params["ramp_epochs"], params["max_weight"], params["first_epoch_number"]
    return {"weight": np.array([cr_dpll.consistency_weight(int(e), *settings) for e in x["epoch"]])}


def build(params: Params, candidates: Tensor, dim: int, epochs: int) -> cr_dpll.CrDpll:
    """The real method in float64; its ramp is a fraction of `epochs`."""
    config = cr_dpll.CrDpll.Config(
        max_weight=params["max_weight"],
        ramp_fraction=params["ramp_epochs"] / epochs,
        target_order=params["target_order"],
        first_epoch_number=params["first_epoch_number"],
        sup_eps=params["eps"],
    )
    method = cr_dpll.CrDpll(config, Task(candidates.shape[1], candidates, epochs, 1, lambda: Identity(dim))).double()
    method.target = uniform_confidence(candidates, torch.float64)  # 1/3 in float64, not rounded through float32
    return method


def step(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    logits, index, epoch = x["logits"].clone().requires_grad_(), x["index"], int(params["epoch"])
    candidates = torch.ones_like(x["target"], dtype=torch.bool)
    candidates[index] = x["candidates"].bool()
    epochs = max(2 * int(params["ramp_epochs"]), epoch + 1)
    method = build(params, candidates, 1, epochs)
    method.target.copy_(x["target"])
    method.network = Scripted(*logits)  # type: ignore[assignment]
    clock = Clock(epoch, epoch, epochs, 1)
    batch = Batch((torch.zeros(len(index), 1),) * len(logits), candidates[index], index)
    done = method.training_step(batch, clock)
    with torch.no_grad():
        method.after_step(batch, done, clock)
    weight = cr_dpll.consistency_weight(
        epoch, params["ramp_epochs"], params["max_weight"], params["first_epoch_number"]
    )
    (gradient,) = torch.autograd.grad(done.loss, logits)
    return {"loss": done.loss, "weight": weight, "grad_logits": gradient, "target": method.target}


def trajectory(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    candidates, views, size = x["candidates"].bool(), x["views"], int(params["batch_size"])
    first, last = int(params["first_epoch"]), int(params["first_epoch"]) + int(params["epochs"])
    epochs = max(2 * int(params["ramp_epochs"]), last)
    method = build(params, candidates, views.shape[-1], epochs).train()
    with torch.no_grad():
        method.network.head.weight.copy_(x["weight"])
        method.network.head.bias.copy_(x["bias"])
    optimizer = PlainSGD(method, params | {"momentum": params["sgd_momentum"]})
    losses = []
    for epoch in range(first, last):
        shown, order = views[epoch - first], x["order"][epoch - first]
        total = 0.0
        for index in order.split(size):
            batch = Batch(tuple(view[index] for view in shown), candidates[index], index)
            total += method.update(batch, optimizer, Clock(epoch, epoch, epochs, 1)).loss.item() * len(index)
        losses.append(total / len(order))
    head = method.network.head
    return {"epoch_loss": np.array(losses), "weight": head.weight, "bias": head.bias, "target": method.target}
