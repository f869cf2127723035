"""Golden ops of SoLar."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from methods import solar
from methods.base import Batch, Clock
from methods.solar import SoLar, updated_prior
from tests.conformance import shared
from tests.conformance.alim import folded
from tests.conformance.shared import Inputs, Params

FIELDS = ("eta", "rho_start", "rho_end", "tau", "power", "iterations")


class Given(SoLar):
    """Mixes as it is told, and shows what it trusts."""

    mixing: tuple[Tensor, Tensor]
    chosen: Tensor

    def draw_mixing(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return self.mixing

    def refine(self, logits: Tensor, batch: Batch, clock: Clock) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        found = super().refine(logits, batch, clock)
        self.chosen = found[1]
        return found


def build(params: Params, candidates: Tensor, dim: int, epochs: int, rows: int) -> Any:
    """Return the method on `dim` features with a queue of so many rows."""
    config = SoLar.Config(
        warmup=params["warmup_epochs"] / epochs,
        queue_size=rows,
        gamma2=params.get("gamma", 0.01),
        **{key: params[key] for key in FIELDS if key in params},
    )
    return shared.build(Given, config, candidates, dim, epochs, table="label_weights")


def sinkhorn(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    assert params["relaxation"] == 1e-5
    used = torch.ones(len(x["prediction"]), dtype=torch.bool)
    found = solar.sinkhorn(x["prediction"], x["class_prior"], used, params["power"], params["iterations"])
    return {"labels": found[0], "relaxed": found[1].long()}


def prior_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"class_prior": updated_prior(x["class_prior"], x["logits_plain"], x["candidates"], params["gamma"])}


def schedules(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    epochs = len(x["epoch"])
    method = build(params, torch.ones(2, 2), 2, epochs, 0)
    found = torch.tensor([method.eta_rho(Clock(int(e), int(e), epochs, 1)) for e in x["epoch"]], dtype=torch.float64)
    return {"eta": found[:, 0], "rho": found[:, 1]}


def step(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    epochs, (rows, classes) = 10, x["logits_weak"].shape
    method = build(params, torch.ones(x["confidence"].shape), classes, epochs, len(x.get("queue", ())))
    z = shared.leaves(x, "logits_weak", "logits_strong", "logits_mixed")
    in_turn = torch.arange(rows) % max(1, len(x["logits_mixed"]))  # as the trusted; none are mixed in the first epoch
    mixed = [z["logits_mixed"][in_turn]] if params["epoch"] > 0 else []
    method.network = shared.Scripted(z["logits_weak"], z["logits_strong"], *mixed)
    method.label_weights.copy_(x["confidence"])
    method.class_prior.copy_(x["class_prior"])
    if "queue" in x:
        method.queue.copy_(x["queue"])
    order = torch.zeros(rows, dtype=torch.int64)
    order[: len(x["perm"])] = x["perm"].argsort()
    method.mixing = folded(x["lam"]), order
    batch = Batch((x["logits_weak"], x["logits_strong"]), x["candidates"].bool(), x["index"])
    done = method.update(batch, shared.NoStep(), Clock(params["epoch"], params["epoch"], epochs, 1))
    return shared.gradients(done.loss, z) | {
        "loss": done.loss,
        "chosen": method.chosen.double() * (params["epoch"] > 0),
        "confidence": method.label_weights,
        "queue": method.queue,
    }


def linear_training(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    candidates, epochs, size = x["candidates"].bool(), params["epochs"], x["index"].shape[2]
    method = build(params, x["candidates"], x["x_plain"].shape[1], epochs, params["queue_batches"] * size)
    shared.set_head(method.network.head, x["weight"], x["bias"])
    optimizer, data = shared.sgd(method, params), shared.PlainData(x["x_plain"])
    losses, priors = [], []
    for epoch, steps in enumerate(x["index"]):
        clock = Clock(epoch, epoch, epochs, 1)
        method.on_epoch_start(clock, data)
        for k, index in enumerate(steps):
            method.mixing = folded(x["lam"][epoch, k]), x["mix_order"][epoch, k]
            batch = Batch((x["x_weak"][epoch, k], x["x_strong"][epoch, k]), candidates[index], index)
            losses.append(method.update(batch, optimizer, clock).loss.detach())
        method.on_epoch_end(clock, data)
        priors.append(method.class_prior.clone())
    return {
        "losses": torch.stack(losses).view(epochs, -1),
        "class_prior": torch.stack(priors),
        "confidence": method.confidence(),
        "weight": method.network.head.weight,
        "bias": method.network.head.bias,
        "queue": method.queue,
    }
