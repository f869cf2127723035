"""Golden ops of NEPLL."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from methods import nepll
from methods.base import Batch, Clock
from methods.blocks import linear_ramp
from methods.nepll import NEPLL
from tests.conformance import shared
from tests.conformance.shared import Inputs, Params

FINE = 1_000_000  # a long training, in which any ramp value falls on an epoch


class GivenMix(NEPLL):
    """Mix-up coefficients and permutations come from the vector; `turn` counts the steps that mix."""

    coefficients: Tensor  # (2·steps,): network 1 and network 2 of each step
    orders: list[Tensor]
    turn = 0

    def draw_mix(self, k: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        at = 2 * self.turn + k
        return self.coefficients[at], self.orders[at][: len(rows)]


def build(candidates: Tensor, dim: int, epochs: int, **config: Any) -> Any:
    """Return the method on `dim` features; schedule values in epochs."""
    for name in {"warmup", "rampup", "expand"} & config.keys():
        config[name] = config[name] / epochs
    return shared.build(GivenMix, NEPLL.Config(**config), candidates, dim, epochs, table="weights")


def both(x: Inputs, name: str) -> Tensor:
    return torch.stack([x[f"{name}1"], x[f"{name}2"]])


def normalized_entropy(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"ne": nepll.normalized_entropy(x["confidence"], x["candidates"])}


def selection(rule: nepll.ClassThreshold) -> Any:
    def op(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for k in (1, 2):
            mask, tau, ne = nepll.select(x[f"logits{k}"], x["candidates"], params["eta"], rule)
            out |= {f"mask{k}": mask.double(), f"class_threshold{k}": tau, f"ne{k}": ne}
        return out

    return op


def step(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    """One step of any phase through the real training step, the networks answering with the given logits."""
    z = shared.leaves(x, *(name for name in x if name.startswith("logits")))
    candidates = x["candidates"].bool()
    rows, warming = len(candidates), "stage" not in params
    epoch = params.get("epoch", 0)
    epochs = 1 + max(epoch, params.get("expand_epoch", 0), params.get("rampup_epoch", 0))
    config = {"warmup": 1, "expand": epochs} if warming else {"warmup": 0, "expand": params["expand_epoch"]}
    config |= {name: params[name] for name in ("T", "lam") if name in params}
    method = build(candidates, 1, epochs, rampup=params.get("rampup_epoch", 0), **config)
    method.weights.copy_(both(x, "confidence"))
    scripts = [
        shared.Scripted(*(z[n] for n in (f"logits{k}1", f"logits{k}2", f"logits_mix{k}") if n in z)) for k in (1, 2)
    ]
    method.networks = nn.ModuleList(scripts)
    views: tuple[Tensor, ...] = (torch.zeros(rows, 1), torch.zeros(rows, 1))
    if not warming:
        method.selected.copy_(both(x, "mask").bool())
        method.tau.copy_(both(x, "class_threshold"))
        method.kappa.copy_(both(x, "ud_threshold"))
        method.coefficients, method.orders = both(x, "lambda"), [x["perm1"], x["perm2"]]
        views = (x["x_weak"], x["x_weak"])
    clock = Clock(epoch, epoch, epochs, 1)
    done = method.update(Batch(views, candidates, torch.arange(rows)), shared.NoStep(), clock)
    out: dict[str, Any] = shared.gradients(done.loss, z)
    out |= {"loss": done.loss, "ramp": method.ramp(clock), **done.logs}
    for k in (1, 2):
        out |= {f"loss{k}": done.logs[f"network{k}"]}
        out |= {f"confidence{k}": method.weights[k - 1], f"ud_threshold{k}": method.kappa[k - 1]}
        if not warming:
            out |= {f"mask{k}": done.carry["selected"][k - 1].double(), f"targets{k}": done.carry["targets"][k - 1]}
            seen = scripts[k - 1].seen
            out |= {f"mix_input{k}": seen[2] if len(seen) > 2 else x["x_weak"][:0]}
    return out


def expand_epoch(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    candidates, masks = x["candidates"].bool(), both(x, "mask").bool()
    method = build(candidates, 1, 1, lam=params["lam"])
    method.tau.copy_(both(x, "class_threshold"))
    method.kappa.fill_(params["ud_threshold_start"])
    kept, kappas = [], []
    for index in torch.arange(len(candidates)).split(params["batch_size"]):
        weak = torch.stack([x["logits1"][index], x["logits2"][index]])
        selected, _, kappa = method.expand_selection(weak, candidates[index], masks[:, index], method.weights[:, index])
        method.kappa.copy_(kappa)
        kept.append(selected.double())
        kappas.append(kappa)
    mask, threshold = torch.cat(kept, 1), torch.stack(kappas, 1)
    return {
        "mask1": mask[0],
        "mask2": mask[1],
        "ud_threshold1": threshold[0],
        "ud_threshold2": threshold[1],
    }


def rampup(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"weight": np.array([linear_ramp(int(e), params["rampup_epoch"]) for e in x["epoch"]])}


def predict(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    rows, classes = x["logits1"].shape
    method = build(torch.ones(rows, classes, dtype=torch.bool), 1, 1)
    method.networks = nn.ModuleList([shared.Scripted(x["logits1"]), shared.Scripted(x["logits2"])])
    prediction = method.predict(torch.zeros(rows, 1)).argmax(1)
    return {"prediction": prediction, "accuracy": (prediction == x["labels"]).double().mean()}


def guard(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    """One network of the selection phase; the other sees the same without gradient."""
    z = shared.leaves(x, *(name for name in ("logits_weak", "logits_strong", "logits_mix") if name in x))
    candidates, epoch = x["candidates"].bool(), round(params["ramp"] * FINE)
    method = build(candidates, 1, 2 * FINE, warmup=0, rampup=FINE, expand=2 * FINE)
    method.weights.copy_(x["confidence"].expand(2, -1, -1))
    method.selected.copy_(x["mask"].bool().expand(2, -1))
    method.networks = nn.ModuleList([shared.Scripted(*z.values()), shared.Scripted(*(t.detach() for t in z.values()))])
    if "perm" in x:
        method.coefficients, method.orders = x["lambda"].expand(2), [x["perm"]] * 2
    images = torch.zeros(len(candidates), 1)
    batch = Batch((images, images), candidates, torch.arange(len(candidates)))
    done = method.update(batch, shared.NoStep(), Clock(epoch, epoch, 2 * FINE, 1))
    return {"loss": done.logs["network1"]} | shared.gradients(done.loss, z)


def linear_training(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    epochs, size, candidates = params["epochs"], params["batch_size"], x["candidates"].bool()
    schedule = {name: params[f"{name}_epoch"] for name in ("warmup", "rampup", "expand")}
    rest = {name: params[name] for name in ("eta", "lam", "T")}
    method = build(candidates, x["x_plain"].shape[1], epochs, **schedule, **rest)
    method.coefficients, method.orders = x["mix_lambda"], list(x["mix_perm"])
    heads = [network.head for network in method.networks]
    for k, head in enumerate(heads):
        shared.set_head(head, x[f"weight{k + 1}"], x[f"bias{k + 1}"])
    optimizer = shared.sgd(method, params)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer.sgd, epochs, params["lr"] * params["eta_min_factor"])
    notes: dict[str, list[Tensor]] = {"loss": []}

    def note(name: str, pair: Any) -> None:
        for k in range(2):
            notes.setdefault(f"{name}{k + 1}", []).append(pair[k].detach().double().clone())

    for epoch, order in enumerate(x["order"]):
        clock = Clock(epoch, epoch, epochs, 1)
        method.on_epoch_start(clock, shared.PlainData(x["x_plain"]))
        warming = method.in_warmup(clock)
        if not warming:
            note("mask", method.selected)
            note("class_threshold", method.tau)
        losses = []
        for index in order.split(size):
            if params["drop_last"] and len(index) < size:
                continue
            views = (x["x_weak"][epoch][index], x["x_strong"][epoch][index])
            losses.append(method.update(Batch(views, candidates[index], index), optimizer, clock).loss.detach())
            method.turn += not warming
        cosine.step()
        notes["loss"].append(torch.stack(losses))
        note("confidence", method.weights)
        note("weight", [head.weight for head in heads])
        note("bias", [head.bias for head in heads])
    return {name: torch.stack(values) for name, values in notes.items()}


select = selection("selected_mean")
class_threshold_mean = selection("class_mean")
step_warmup = step_select = step_expand = step
expand_epoch_guard = expand_epoch
guard_all_selected = guard_none_selected = guard
