"""Drives a real method over a fixed sequence of batches in float64, for the golden training trajectories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from methods.base import Backbone, Batch, Clock, Method, Task
from methods.blocks import uniform_confidence

Inputs = dict[str, Tensor]
Params = dict[str, Any]


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


class Scripted(nn.Module):
    """Answer calls with given outputs, in order, and remember the images."""

    def __init__(self, *outputs: Tensor) -> None:
        super().__init__()
        self.outputs = iter(outputs)
        self.seen: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        self.seen.append(images)
        return next(self.outputs)


class Encoder(Backbone):
    """relu(x Wᵀ + b) as a 1×1 feature map."""

    def __init__(self, dim_in: int, dim_out: int) -> None:
        super().__init__()
        self.feature_dim = dim_out
        self.linear = nn.Linear(dim_in, dim_out)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x))[:, :, None, None]


class PlainSGD:
    """The trainer's optimiser without precision handling."""

    def __init__(self, method: Method, params: dict[str, Any], groups: Sequence[dict[str, Any]] = ()) -> None:
        self.sgd = torch.optim.SGD(
            groups or method.param_groups(),
            lr=params["lr"],
            momentum=params.get("momentum", 0.9),
            weight_decay=params.get("weight_decay", 0.0),
        )

    def minimise(self, loss: Tensor) -> None:
        self.sgd.zero_grad()
        loss.backward()
        self.sgd.step()


class Backward:
    """A minimiser that takes no step."""

    def minimise(self, loss: Tensor) -> None:
        loss.backward()


def set_head(head: nn.Linear, weight: Tensor, bias: Tensor | None = None) -> None:
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(torch.zeros(len(weight)) if bias is None else bias)


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


class NoData:
    """The training set for methods that ask for no pass over it."""

    def infer(self, fn: Any, view: str = "plain") -> Any:
        raise AssertionError("no inference is expected")

    def reset_momentum(self) -> None:
        raise AssertionError("momentum is to be kept")


def build(
    method_class: type[Method], config: Any, candidates: Tensor, sizes: tuple[int, ...], epochs: int, steps: int
) -> Any:
    """A method in float64 on an `Encoder` of these sizes, with uniform targets."""
    task = Task(candidates.shape[1], candidates.bool(), epochs, steps, lambda: Encoder(*sizes))
    method: Any = method_class(config, task).double()
    method.targets.copy_(uniform_confidence(candidates, torch.float64))
    return method


def run_contrastive(
    method: Any,
    networks: dict[str, Any],
    params: dict[str, Any],
    x: dict[str, Tensor],
    views: tuple[str, str],
    rates: Sequence[float],
    logs: dict[str, str],
    before_step: Callable[[int, int], None] = lambda epoch, k: None,
) -> dict[str, Tensor]:
    """Train networks of encoder, projection and head from the given weights with one rate per epoch.

    Returns what `logs` names by its name in a step ("loss" for the loss itself), and all weights behind their prefix.
    """
    epochs, steps = x["index"].shape[:2]
    layers: dict[str, tuple[str, Any]] = {}
    for prefix, net in networks.items():
        parts = {"enc": net.backbone.linear, "fc": net.head, "h1": net.projection[0], "h2": net.projection[2]}
        layers |= {f"{prefix}{name}": (name, layer) for name, layer in parts.items()}
    for name, layer in layers.values():
        set_head(layer, x[f"{name}_weight"], x[f"{name}_bias"])
    optimizer = PlainSGD(method, {**params, "momentum": params["sgd_momentum"], "lr": 0.0})
    values: dict[str, list[Tensor]] = {name: [] for name in logs}
    method.train()
    for epoch in range(epochs):
        for group in optimizer.sgd.param_groups:
            group["lr"] = float(rates[epoch])
        for k in range(steps):
            before_step(epoch, k)
            index, clock = x["index"][epoch, k], Clock(epoch, epoch * steps + k, epochs, steps)
            batch = Batch(tuple(x[view][epoch, k] for view in views), x["candidates"][index].bool(), index)
            done = method.update(batch, optimizer, clock)
            for name, key in logs.items():
                values[name].append(done.loss.detach() if key == "loss" else done.logs[key])
        method.on_epoch_end(clock, NoData())
    return {
        **{name: torch.stack(entries).view(epochs, steps) for name, entries in values.items()},
        **{f"{name}_weight": layer.weight for name, (_, layer) in layers.items()},
        **{f"{name}_bias": layer.bias for name, (_, layer) in layers.items()},
    }


def with_gradient(loss_of: Callable[[Tensor], Tensor], x: Inputs, name: str = "logits") -> dict[str, Any]:
    """Return a loss of one input and its gradient."""
    value = x[name].clone().requires_grad_()
    loss = loss_of(value)
    return {"loss": loss, f"grad_{name}": torch.autograd.grad(loss, value)[0]}
