"""Set-up that golden ops share: real methods in float64 on given networks and batches, losses with their gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmark.config import optimisation as schedules
from methods.base import Backbone, Batch, Clock, Method, Step, Task
from methods.blocks import uniform_confidence
from methods.networks.backbones import Linear
from tests.support.tiny import TinyOptimiser

Inputs = dict[str, Tensor]
Params = dict[str, Any]


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

    def __init__(self, *outputs: Any) -> None:
        super().__init__()
        self.outputs = iter(outputs)
        self.seen: list[Tensor] = []

    def forward(self, images: Tensor) -> Any:
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


def sgd(method: Method, params: Params, groups: Sequence[dict[str, Any]] = ()) -> TinyOptimiser:
    """Return the optimiser of a golden training."""
    momentum, weight_decay = params.get("momentum", 0.9), params.get("weight_decay", 0.0)
    return TinyOptimiser(method, params["lr"], momentum, weight_decay, groups)


class NoStep:
    """A minimiser that does nothing: ops that compare one step take its gradients themselves."""

    def minimise(self, loss: Tensor) -> None:
        pass


class PlainData:
    """A training set with one un-augmented view, or without images where no pass over them is expected."""

    def __init__(self, images: Tensor | None = None) -> None:
        self.images = images

    def infer(self, fn: Any, view: str = "plain") -> Any:
        assert view == "plain" and self.images is not None
        with torch.no_grad():
            return fn(self.images)

    def reset_momentum(self) -> None:
        raise AssertionError("momentum is to be kept")


def build(
    method_class: type[Method],
    config: Any,
    candidates: Tensor,
    backbone: int | Callable[[], Backbone],
    epochs: int = 1,
    steps: int = 1,
    table: str = "",
) -> Any:
    """Return a method in float64, with weights in `table` that are uniform to the last digit.

    `backbone` builds the encoder, or is the number of features of a linear model.
    """
    backbone = partial(Linear, backbone) if isinstance(backbone, int) else backbone
    method: Any = method_class(config, Task(candidates.shape[1], candidates.bool(), epochs, steps, backbone)).double()
    if table:
        getattr(method, table).copy_(uniform_confidence(candidates, torch.float64))
    return method


def leaves(x: Inputs, *names: str) -> Inputs:
    """Return copies of inputs that take gradients."""
    return {name: x[name].double().clone().requires_grad_() for name in names}


def gradients(loss: Tensor, inputs: Inputs) -> Inputs:
    """Return grad_<name> of every input: 0 where the loss does not depend on it, as a detached input must give."""
    values = torch.autograd.grad(loss, list(inputs.values()), materialize_grads=True)
    return {f"grad_{name}": value for name, value in zip(inputs, values, strict=True)}


def finish(method: Any, step: Step, inputs: Inputs, batch: Batch, clock: Clock) -> dict[str, Any]:
    """Return loss and gradients of a step, then let the method update its state."""
    out = {"loss": step.loss} | gradients(step.loss, inputs)
    with torch.no_grad():
        method.after_step(batch, step, clock)
    return out


def with_gradient(loss_of: Callable[..., Tensor], x: Inputs, *names: str) -> dict[str, Any]:
    """Return a loss of some inputs, of `logits` if none is named, and its gradients."""
    z = leaves(x, *(names or ("logits",)))
    loss = loss_of(*z.values())
    return {"loss": loss} | gradients(loss, z)


def uniform(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    """Return the first confidences of most methods: an op."""
    return {"confidence": uniform_confidence(x["candidates"], torch.float64)}


def cosine_rates(params: Params, epochs: int, at: Iterable[Any]) -> list[float]:
    """Return the rates of given epochs, annealed to `min_ratio` of the first or to three decays of it."""
    ratio = params["min_ratio"] if "min_ratio" in params else params["lr_decay_rate"] ** 3
    return [schedules.cosine(params["lr"], int(epoch), epochs, params["lr"] * ratio) for epoch in at]


def lr_schedule(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    """Return the learning rates of the releases that anneal them along a cosine: an op."""
    epochs = params["epochs"] if "epochs" in params else params["total_epochs"]
    return {"lr": np.array(cosine_rates(params, epochs, x["epoch"]))}


def set_head(head: nn.Linear, weight: Tensor, bias: Tensor | None = None) -> None:
    """Set a linear layer; without a bias to 0."""
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(torch.zeros(len(weight)) if bias is None else bias)


def start(method_class: type[Method], config: Any, params: Params, x: Inputs, table: str = "") -> Any:
    """Return a method whose network starts from given weights: a linear one, or with batch norm if there is `w1`."""
    dim, with_bn, epochs = x["x"].shape[1], "w1" in x, int(params["epochs"])

    def backbone() -> Backbone:
        return BatchNormLayer(dim, x["w1"].shape[0]) if with_bn else Linear(dim)

    method = build(method_class, config, x["candidates"], backbone, epochs, len(x["batches"]) // epochs, table)
    if with_bn:
        method.network.backbone.linear.weight.data.copy_(x["w1"])
    set_head(method.network.head, *((x["w2"], x["b2"]) if with_bn else (x["weight"], x["bias"])))
    return method


def run(method: Any, params: Params, inputs: Inputs) -> dict[str, Any]:
    """Train over `inputs["batches"]`; return losses, weights and what batch norm has seen."""
    x, candidates, batches = inputs["x"].double(), inputs["candidates"].bool(), inputs["batches"].long()
    epochs, network = int(params["epochs"]), method.network
    per_epoch, optimizer, losses = len(batches) // epochs, sgd(method, params), []
    for step, index in enumerate(batches):
        batch = Batch((x[index],), candidates[index], index)
        losses.append(method.update(batch, optimizer, Clock(step // per_epoch, step, epochs, per_epoch)).loss.detach())
    out: dict[str, Any] = {"losses": torch.stack(losses)}
    if "w1" not in inputs:
        return out | {"weight": network.head.weight, "bias": network.head.bias}
    norm = network.backbone.norm
    out |= {"w1": network.backbone.linear.weight, "w2": network.head.weight, "b2": network.head.bias}
    out |= {name: getattr(norm, name) for name in ("running_mean", "running_var", "num_batches_tracked")}
    method.eval()
    return out | {"eval_logits": method.predict(x)}


def run_contrastive(
    method: Any,
    networks: dict[str, Any],
    params: Params,
    x: Inputs,
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
    optimizer = sgd(method, {**params, "momentum": params["sgd_momentum"], "lr": 0.0})
    values: dict[str, list[Tensor]] = {name: [] for name in logs}
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
        method.on_epoch_end(clock, PlainData())
    return {
        **{name: torch.stack(entries).view(epochs, steps) for name, entries in values.items()},
        **{f"{name}_weight": layer.weight for name, (_, layer) in layers.items()},
        **{f"{name}_bias": layer.bias for name, (_, layer) in layers.items()},
    }
