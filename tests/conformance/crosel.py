"""Golden ops of CroSel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from methods import crosel
from methods.base import Batch, Clock
from methods.cc import candidate_likelihood_loss
from methods.crosel import CroSel
from tests.conformance import shared
from tests.conformance.shared import Inputs, Params

SWITCHES = ("sharpen", "sharpen_T", "lambda_cr")


class GivenMix(CroSel):
    """Coefficients and partners come from the vector, one of each per step and network."""

    draws: tuple[list[tuple[Tensor, Tensor]], ...]

    def draw_mix(self, k: int, images: Tensor) -> tuple[Tensor, Tensor]:
        return self.draws[k].pop(0)


def warmup_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return shared.with_gradient(lambda z: candidate_likelihood_loss(z, x["candidates"]), x, "logits_plain")


def bank_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    banks, newest = x["bank"].max(2), crosel.top_prediction(x["logits_plain"])
    names = ("top_probability", "top_class")
    return {name: crosel.push(bank, new) for name, bank, new in zip(names, banks, newest, strict=True)}


def select(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    labels = crosel.select(*x["bank"].max(2), x["candidates"], params["threshold"])
    return {
        "labels": labels,
        "selected": (labels != crosel.UNSELECTED).double(),
        "ratio": crosel.selected_share(labels).double(),
    }


def pseudo_targets(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    logits = torch.cat((x["logits_strong"], x["logits_weak"]))
    config = CroSel.Config(sharpen=params["sharpen"], sharpen_T=params["sharpen_T"])
    weak, strong = crosel.crossed_targets(logits, x["candidates"], config.temperature).chunk(2)
    return {"targets_weak": weak, "targets_strong": strong}


def step(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    """Network 1, taught by network 2, answers its three passes with the given logits."""
    config = CroSel.Config(mixup=params["mixup"], **{key: params[key] for key in SWITCHES})
    method, rows = shared.build(GivenMix, config, x["candidates"], 1), len(x["candidates"])
    method.labels[1] = x["labels"]
    method.ratio.fill_(params["selected_ratio"])
    method.draws = ([(x["lam"], x["perm"])],)
    z = shared.leaves(x, *(name for name in x if name.startswith("logits_")))
    answers = (z["logits_label"], torch.cat((z["logits_strong"], z["logits_weak"])), z["logits_mixed"])
    method.networks = nn.ModuleList([shared.Scripted(*answers)])
    empty = torch.zeros(rows, 1, dtype=torch.float64)
    loss, parts = method.network_loss(0, Batch((empty, empty, empty), x["candidates"].bool(), torch.arange(rows)))
    return shared.gradients(loss, z) | {"loss": loss, "loss_label": parts["labelled1"], "loss_mix": parts["comix1"]}


def predict(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    method = shared.build(CroSel, CroSel.Config(), torch.ones_like(x["logits1"]), 1)
    method.networks = nn.ModuleList([shared.Scripted(x["logits1"]), shared.Scripted(x["logits2"])])
    return {"logits": method.predict(torch.zeros(1))}


def linear_training(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    epochs, steps = x["index"].shape[:2]
    config = CroSel.Config(
        warmup=params["warmup_epochs"] / epochs,
        history=params["history"],
        threshold=params["threshold"],
        **{key: params[key] for key in SWITCHES},
    )
    dim = x["x_plain"].shape[1]
    method = shared.build(GivenMix, config, x["candidates"], dim, epochs, steps)
    heads = [network.head for network in method.networks]
    for k, head in enumerate(heads):
        shared.set_head(head, x[f"weight{k + 1}"], x[f"bias{k + 1}"])
    optimizer, data = shared.sgd(method, params), shared.PlainData(x["x_plain"])
    labels, losses = [], []
    for epoch in range(epochs):
        method.on_epoch_start(Clock(epoch, epoch * steps, epochs, steps), data)
        labels.append(method.labels.clone())
        # The vector has a draw for every step, those of the warm-up unused.
        method.draws = tuple(list(zip(x["lam"][k, epoch], x["perm"][k, epoch], strict=True)) for k in range(2))
        for at in range(steps):
            index, clock = x["index"][epoch, at], Clock(epoch, epoch * steps + at, epochs, steps)
            views = (x["x_weak"][epoch, at], x["x_strong"][epoch, at], x["x_plain"][index])
            done = method.update(Batch(views, x["candidates"][index].bool(), index), optimizer, clock)
            losses.append(torch.stack([done.logs["network1"], done.logs["network2"]]))
        method.on_epoch_end(clock, data)
    out: dict[str, Any] = {"losses": torch.stack(losses, 1).view(2, epochs, steps), "labels": torch.stack(labels, 1)}
    for k, head in enumerate(heads):
        out |= {f"weight{k + 1}": head.weight, f"bias{k + 1}": head.bias}
        out |= {f"top_probability{k + 1}": method.top_probability[k], f"top_class{k + 1}": method.top_class[k]}
    return out
