"""Golden ops of CR-DPLL."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from methods import cr_dpll
from methods.base import Batch, Clock
from methods.blocks import uniform_confidence
from tests.conformance import shared
from tests.conformance.shared import Inputs, Params


def conformal_init(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"target": uniform_confidence(x["candidates"], torch.float64)}


def conformal_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"target": cr_dpll.conformal_target(x["logits"], x["candidates"])}


def supervised_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return shared.with_gradient(lambda z: cr_dpll.supervised_loss(z, x["candidates"], params["eps"]), x)


def consistency_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    out = shared.with_gradient(lambda z: cr_dpll.consistency_loss(z, x["target"]).sum(), x)
    return out | {"loss_per_view": cr_dpll.consistency_loss(x["logits"], x["target"])}


def consistency_online(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    out = shared.with_gradient(lambda z: cr_dpll.online_consistency_loss(z, x["candidates"]), x)
    return out | {"target": cr_dpll.conformal_target(x["logits"], x["candidates"])}


def balance_schedule(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    settings = params["ramp_epochs"], params["max_weight"], params["first_epoch_number"]
    return {"weight": np.array([cr_dpll.consistency_weight(int(e), *settings) for e in x["epoch"]])}


def method_of(params: Params, candidates: Tensor, dim: int, epochs: int) -> Any:
    """Return the method on `dim` features; its ramp is a fraction of `epochs`."""
    config = cr_dpll.CrDpll.Config(
        max_weight=params["max_weight"],
        ramp_fraction=params["ramp_epochs"] / epochs,
        target_order=params["target_order"],
        first_epoch_number=params["first_epoch_number"],
        sup_eps=params["eps"],
    )
    return shared.build(cr_dpll.CrDpll, config, candidates, dim, epochs, table="target")


def step(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    z, index, epoch = shared.leaves(x, "logits"), x["index"], int(params["epoch"])
    candidates = torch.ones_like(x["target"], dtype=torch.bool)
    candidates[index] = x["candidates"].bool()
    epochs = max(2 * int(params["ramp_epochs"]), epoch + 1)
    method = method_of(params, candidates, 1, epochs)
    method.target.copy_(x["target"])
    method.network = shared.Scripted(*z["logits"])
    clock = Clock(epoch, epoch, epochs, 1)
    batch = Batch((torch.zeros(len(index), 1),) * len(x["logits"]), candidates[index], index)
    done = method.training_step(batch, clock)
    out = shared.finish(method, done, z, batch, clock)
    weight = cr_dpll.consistency_weight(
        epoch, params["ramp_epochs"], params["max_weight"], params["first_epoch_number"]
    )
    return out | {"weight": weight, "target": method.target}


def trajectory(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    candidates, views, size = x["candidates"].bool(), x["views"], int(params["batch_size"])
    first, last = int(params["first_epoch"]), int(params["first_epoch"]) + int(params["epochs"])
    epochs = max(2 * int(params["ramp_epochs"]), last)
    method = method_of(params, candidates, views.shape[-1], epochs)
    shared.set_head(method.network.head, x["weight"], x["bias"])
    optimizer = shared.sgd(method, params | {"momentum": params["sgd_momentum"]})
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
