"""Golden ops of ALIM."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from methods.alim import ALIM, margins_of, prior_at, pulled_targets, weighted_logits
from methods.base import Batch, Clock
from methods.blocks import unit
from tests.conformance import shared
from tests.conformance.shared import Inputs, Params

STEP = ("tau", "temperature", "gamma", "normalise", "contrast_weight", "mixup_weight", "denominator_eps")
STATE = {"targets": "targets", "prototypes": "prototypes", "queue": "queue", "queue_labels": "queue_labels"}


class GivenMixing(ALIM):
    """Mixes as it is told."""

    mixing: tuple[Tensor, Tensor]

    def draw_mixing(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return self.mixing


def folded(share: Tensor) -> Tensor:
    return torch.maximum(share, 1 - share)


def prototype_logits(params: Params, x: Inputs) -> Tensor:
    return x["embed"] @ x["prototypes"].T / params["tau"]


def prior_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    margins = margins_of(torch.softmax(prototype_logits(params, x), dim=1), x["candidates"].bool())
    return {"margin": margins, "prior": prior_at(margins, params["noise_rate"], params["cap"])}


def pseudo_label(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"labels": weighted_logits(x["logits"], x["candidates"], params["prior"]).argmax(1)}


def target_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    table, index = x["targets"].clone(), x["index"]
    pull = weighted_logits(prototype_logits(params, x), x["candidates"], params["prior"])
    table[index] = pulled_targets(table[index], pull, params["phi"], params["normalise"])
    return {"targets": table}


def phi_schedule(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    config = ALIM.Config(**{key: params[key] for key in ("phi_start", "phi_end", "phi_first")}, queue_size=4)
    method = shared.build(ALIM, config, torch.ones(2, 2), lambda: shared.Encoder(2, 2), params["epochs"])
    return {"phi": np.array([method.phi(Clock(int(e), int(e), params["epochs"], 1)) for e in x["epoch"]])}


def step(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    config = ALIM.Config(
        embed_dim=x["feat_q"].shape[1],
        queue_size=len(x["queue"]),
        phi_start=params["phi"],
        phi_end=params["phi"],
        **{key: params[key] for key in STEP},
    )
    method = shared.build(ALIM, config, torch.ones(x["targets"].shape), lambda: shared.Encoder(2, 2))
    for name, buffer in STATE.items():
        getattr(method, buffer).copy_(x[name])
    method.queue_pointer.copy_(x["queue_ptr"])
    method.prior.fill_(params["prior"])
    z = shared.leaves(x, "logits", "feat_q", "logits_mixed")
    batch, clock = Batch((), x["candidates"].bool(), x["index"]), Clock(0, 0, 1, 1)
    done = method.losses(
        z["logits"],
        unit(z["feat_q"]),
        unit(x["feat_k"]),
        z["logits_mixed"],
        (folded(x["lam"]), x["perm"]),
        batch,
        clock,
    )
    return shared.finish(method, done, z, batch, clock) | {
        "loss_cls": done.logs["classification"],
        "loss_cont": done.logs["contrast"],
        "queue_ptr": method.queue_pointer,
        "margin": batch.rows(method.margins),
        **{name: getattr(method, buffer) for name, buffer in STATE.items()},
    }


def trajectory(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    epochs, steps = x["index"].shape[:2]
    same_name = (*STEP, "key_momentum", "phi_start", "phi_end", "phi_first", "noise_rate", "cap", "queue_size")
    config = ALIM.Config(
        embed_dim=x["h2_weight"].shape[0],
        prior_start=params["prior_start_epochs"] / epochs,
        target_start=params["target_start_epochs"] / epochs,
        **{key: params[key] for key in same_name},
    )
    sizes = x["enc_weight"].T.shape
    method = shared.build(
        GivenMixing, config, x["candidates"], lambda: shared.Encoder(*sizes), epochs, steps, "targets"
    )
    method.queue.copy_(x["queue"])
    networks = {"query_": method.query, "key_": method.key}
    priors: list[Tensor] = []

    def before_step(epoch: int, k: int) -> None:
        if k == 0:
            priors.append(method.prior.clone())
        method.mixing = folded(x["lam"][epoch, k]), x["perm"][epoch, k]

    logs = {"loss": "loss", "loss_cls": "classification", "loss_cont": "contrast"}
    out = shared.run_contrastive(
        method, networks, params, x, ("x_weak", "x_strong"), x["lr"].tolist(), logs, before_step
    )
    return out | {"prior": torch.stack(priors), **{name: getattr(method, buffer) for name, buffer in STATE.items()}}
