"""Golden ops of POP."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from methods.base import Batch, Clock, Task
from methods.pop import POP, purify_by_difference
from tests.conformance.trajectory import Backward, Identity, Inputs, NoData, Params, PlainSGD, set_head


def build(params: Params, candidates: Tensor, dim: int, epochs: int) -> POP:
    """The method in float64 on `dim` features."""
    given = {k: params[k] for k in ("theta", "inc", "theta_max", "change_tolerance", "roll_window") if k in params}
    config = POP.Config(warm_up=params.get("warm_up", 0) / epochs, short_run=0, **given)
    method = POP(config, Task(candidates.shape[1], candidates, epochs, 1, lambda: Identity(dim))).double()
    method.label_weights.copy_(candidates.double() / candidates.sum(1, keepdim=True))
    return method.train()


def read_out_logits(method: POP, classes: int) -> None:
    """A network that hands through the logits it is shown as 'images'."""
    set_head(method.network.head, torch.eye(classes))


def step(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    views = tuple(x[f"logits{v}"].double().requires_grad_() for v in range(params["views"]))
    candidates = x["confidence"] > 0
    rows, classes = candidates.shape
    method = build(params, candidates, classes, 100)
    read_out_logits(method, classes)
    method.label_weights.copy_(x["confidence"])
    done = method.update(Batch(views, candidates, torch.arange(rows)), Backward(), Clock(0, 0, 100, 1))
    grads = {f"grad_logits{v}": view.grad for v, view in enumerate(views)}
    return {"loss": done.loss, "confidence": method.confidence()} | grads


def purify(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    epochs = 1000
    method = build(params, x["candidates"].bool(), 1, epochs)
    method.label_weights.copy_(x["confidence"])
    method.window.copy_(x["window"].sum(0) - x["confidence"])  # the last snapshot is taken at the end of the epoch
    method.on_epoch_end(Clock(params["epoch"], params["epoch"], epochs, 1), NoData())
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
        method.on_epoch_end(clock, NoData())
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
    read_out_logits(method, classes)
    return train(method, params, x, x["logits"], Backward())


def linear_training(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    method = build(params, x["candidates"].bool(), x["x"].shape[3], params["epochs"])
    set_head(method.network.head, x["weight"], x["bias"])
    return train(method, params, x, x["x"], PlainSGD(method, params))
