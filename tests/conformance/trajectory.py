"""Drives a real method over a fixed sequence of batches in float64, for the golden training trajectories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from methods.base import Backbone, Batch, Clock, Method, Task


class Identity(Backbone):
    """Features as they are: with a linear head, a linear model."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.feature_dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, None, None]


class BatchNormLayer(Backbone):
    """relu(BN(x w1ᵀ)), batch norm without affine parameters."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.feature_dim = hidden
        self.linear = nn.Linear(dim, hidden, bias=False)
        self.norm = nn.BatchNorm1d(hidden, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.linear(x)))[:, :, None, None]


class PlainSGD:
    """The trainer's optimiser without precision handling."""

    def __init__(self, method: Method, params: dict[str, Any]) -> None:
        self.sgd = torch.optim.SGD(
            method.param_groups(),
            lr=params["lr"],
            momentum=params.get("momentum", 0.9),
            weight_decay=params.get("weight_decay", 0.0),
        )

    def minimise(self, loss: Tensor) -> None:
        self.sgd.zero_grad()
        loss.backward()
        self.sgd.step()


def run(
    method_class: type[Method],
    config: Any,
    params: dict[str, Any],
    inputs: dict[str, Tensor],
    start_state: Callable[[Any], Any],
) -> tuple[Method, dict[str, Any]]:
    """Train over `inputs["batches"]`; the network starts from the given weights. Returns the method and common outputs."""
    x, candidates, batches = inputs["x"].double(), inputs["candidates"].bool(), inputs["batches"].long()
    with_bn = "w1" in inputs
    dim = x.shape[1]

    def backbone() -> Backbone:
        return BatchNormLayer(dim, inputs["w1"].shape[0]) if with_bn else Identity(dim)

    epochs = int(params["epochs"])
    per_epoch = len(batches) // epochs
    task = Task(candidates.shape[1], candidates, epochs, per_epoch, backbone)
    method = method_class(config, task).double()
    network: Any = method.network
    with torch.no_grad():
        if with_bn:
            network.backbone.linear.weight.copy_(inputs["w1"])
        network.head.weight.copy_(inputs["w2" if with_bn else "weight"])
        network.head.bias.copy_(inputs["b2" if with_bn else "bias"])
        start_state(method)
    optimizer = PlainSGD(method, params)
    method.train()
    losses = []
    for step, index in enumerate(batches):
        batch = Batch((x[index],), candidates[index], index)
        losses.append(method.update(batch, optimizer, Clock(step // per_epoch, step, epochs, per_epoch)).loss.detach())
    out: dict[str, Any] = {"losses": torch.stack(losses)}
    if with_bn:
        norm = network.backbone.norm
        out |= {"w1": network.backbone.linear.weight, "w2": network.head.weight, "b2": network.head.bias}
        out |= {"running_mean": norm.running_mean, "running_var": norm.running_var}
        out["num_batches_tracked"] = norm.num_batches_tracked
        method.eval()
        out["eval_logits"] = method.predict(x)
    else:
        out |= {"weight": network.head.weight, "bias": network.head.bias}
    return method, out


def with_gradient(loss_of: Callable[[Tensor], Tensor], logits: Tensor) -> dict[str, Tensor]:
    """Loss and its gradient with respect to the logits."""
    logits = logits.clone().requires_grad_()
    loss = loss_of(logits)
    (gradient,) = torch.autograd.grad(loss, logits)
    return {"loss": loss, "grad_logits": gradient}
