"""Golden ops of POP."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from methods.base import Batch, Clock
from methods.pop import POP, purify_by_difference
from tests.conformance import shared
from tests.conformance.shared import Inputs, Params


def build(params: Params, candidates: Tensor, dim: int, epochs: int) -> Any:
    """Return the method on `dim` features."""
    given = {k: params[k] for k in ("theta", "inc", "theta_max", "change_tolerance", "roll_window") if k in params}
    config = POP.Config(warm_up=params.get("warm_up", 0) / epochs, short_run=0, **given)
    return shared.build(POP, config, candidates, dim, epochs, table="label_weights")


def step(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    z = shared.leaves(x, *(f"logits{v}" for v in range(params["views"])))
    candidates = x["confidence"] > 0
    rows, classes = candidates.shape
    method = build(params, candidates, classes, 100)
    shared.set_head(method.network.head, torch.eye(classes))
    method.label_weights.copy_(x["confidence"])
    done = method.update(Batch(tuple(z.values()), candidates, torch.arange(rows)), shared.NoStep(), Clock(0, 0, 100, 1))
    return {"loss": done.loss, "confidence": method.confidence()} | shared.gradients(done.loss, z)


def purify(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    epochs = 1000
    method = build(params, x["candidates"].bool(), 1, epochs)
    method.label_weights.copy_(x["confidence"])
    method.window.copy_(x["window"].sum(0) - x["confidence"])  # the last snapshot is taken at the end of the epoch
    method.on_epoch_end(Clock(params["epoch"], params["epoch"], epochs, 1), shared.PlainData())
    found = {"candidates": method.candidate_sets().double(), "confidence": method.confidence()}
    return found | {"theta": method.diagnostics()["threshold"], "num_changed": method.diagnostics()["removed"]}


def purify_difference(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"candidates": purify_by_difference(x["prob"], x["candidates"], params["e"]).double()}


def train(method: POP, params: Params, x: Inputs, views: Tensor, optimizer: Any) -> dict[str, Any]:
    """The whole loop; `views` (E, 3, N, d)."""
    candidates, epochs, head = x["candidates"].bool(), params["epochs"], method.network.head
    notes: dict[str, list[Tensor]] = {n: [] for n in ("loss", "confidence", "candidates", "theta", "weight", "bias")}
    for epoch, order in enumerate(x["order"]):
        clock = Clock(epoch, epoch, epochs, 1)
        losses = []
        for index in order.split(params["batch_size"]):
            batch = Batch(tuple(view[index] for view in views[epoch]), candidates[index], index)
            losses.append(method.update(batch, optimizer, clock).loss.detach())
        method.on_epoch_end(clock, shared.PlainData())
        notes["loss"].append(torch.stack(losses))
        notes["confidence"].append(method.confidence().clone())
        notes["candidates"].append(method.candidate_sets().double())
        notes["theta"].append(torch.tensor(method.diagnostics()["threshold"], dtype=torch.float64))
        notes["weight"].append(head.weight.detach().clone())
        notes["bias"].append(head.bias.detach().clone())
    return {name: torch.stack(values) for name, values in notes.items()}


def trajectory(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    classes = x["candidates"].shape[1]
    method = build(params, x["candidates"].bool(), classes, params["epochs"])
    shared.set_head(method.network.head, torch.eye(classes))
    return train(method, params, x, x["logits"], shared.NoStep())


def linear_training(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    method = build(params, x["candidates"].bool(), x["x"].shape[3], params["epochs"])
    shared.set_head(method.network.head, x["weight"], x["bias"])
    return train(method, params, x, x["x"], shared.sgd(method, params))
