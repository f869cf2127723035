"""Golden ops of PaPi."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from methods import papi
from methods.base import Batch, Clock
from methods.blocks import soft_cross_entropy, unit
from methods.papi import PaPi, moved_targets, pseudo_labels
from methods.pico import updated_prototypes
from tests.conformance import shared
from tests.conformance.shared import Inputs, Params

SWITCHES = ("prototype_normalise", "alignment", "tau")
RAMPS = ("alignment_weight", "phi_start", "phi_end", "gamma_start", "gamma_end", "ramp_lag", "before_first")


class GivenMix(PaPi):
    """Coefficients and partners come from the vector, one of each per step."""

    draws: list[tuple[Tensor, Tensor]]

    def draw_mix(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return self.draws.pop(0)


def both(x: Inputs, name: str, end: str = "") -> Tensor:
    return torch.cat((x[f"{name}_weak{end}"], x[f"{name}_strong{end}"]))


def target_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    batch = Batch((), x["candidates"], x["index"])
    rows = moved_targets(batch.rows(x["targets"]), x["logits_weak"], batch.candidates, params["phi"])
    batch.store(x["targets"], rows)
    return {"targets": x["targets"]}


def prototype_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    labels = pseudo_labels(both(x, "logits"), x["candidates"])
    how = (params["gamma"], params["prototype_normalise"])
    weak, strong = labels.chunk(2)
    updated = updated_prototypes(x["prototypes"], both(x, "embed"), labels, *how)
    return {"prototypes": updated, "labels_weak": weak, "labels_strong": strong}


def cls_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return shared.with_gradient(lambda z: soft_cross_entropy(z, x["targets"]), x, "logits_weak")


def alignment_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    given = (x["prototypes"], x["targets"], x["perm"], x["lam"], params["tau"], params["alignment"])

    def loss(*views: Tensor) -> Tensor:
        return papi.alignment_loss(unit(torch.cat(views)), *given)

    return shared.with_gradient(loss, x, "feat_weak_mix", "feat_strong_mix")


def schedules(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    epochs = params["epochs"]
    config = PaPi.Config(rampup=params["rampup_epochs"] / epochs, **{key: params[key] for key in RAMPS})
    method = shared.build(PaPi, config, torch.ones(2, 2), lambda: shared.Encoder(1, 1), epochs)
    clocks = [Clock(int(e), int(e), epochs, 1) for e in x["epoch"]]
    return {name: np.array([getattr(method, name)(clock) for clock in clocks]) for name in ("phi", "gamma", "psi")}


def step(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    """The second of two epochs, in which the weight of the alignment has reached its top."""
    config = PaPi.Config(
        embed_dim=x["feat_weak"].shape[1],
        alignment_weight=params["psi"],
        rampup=0.5,
        ramp_lag=0,
        **{f"{name}_{end}": params[name] for name in ("phi", "gamma") for end in ("start", "end")},
        **{key: params[key] for key in SWITCHES},
    )
    method = shared.build(PaPi, config, x["targets"] > 0, lambda: shared.Encoder(1, 1), epochs=2)
    method.targets.copy_(x["targets"])
    method.prototypes.copy_(x["prototypes"])
    z = shared.leaves(x, *(name for name in x if name.startswith(("logits_", "feat_"))))
    batch, clock = Batch((), x["candidates"].bool(), x["index"]), Clock(1, 1, 2, 1)
    seen, mixed = unit(both(z, "feat")), unit(both(z, "feat", "_mix"))
    done = method.losses(both(z, "logits"), seen, mixed, x["perm"], x["lam"], batch, clock)
    return shared.finish(method, done, z, batch, clock) | {
        "loss_cls": done.logs["classification"],
        "loss_align": done.logs["alignment"],
        "targets": method.targets,
        "prototypes": method.prototypes,
    }


def trajectory(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    epochs, steps = x["index"].shape[:2]
    config = PaPi.Config(
        embed_dim=x["h2_weight"].shape[0],
        rampup=params["rampup_epochs"] / epochs,
        **{key: params[key] for key in SWITCHES + RAMPS},
    )
    sizes = x["enc_weight"].T.shape
    method = shared.build(GivenMix, config, x["candidates"], lambda: shared.Encoder(*sizes), epochs, steps, "targets")
    method.draws = list(zip(x["lam"].flatten(), x["perm"].flatten(0, 1), strict=True))
    rates = shared.cosine_rates(params, epochs, range(epochs))
    logs = {"loss_cls": "classification", "loss_align": "alignment"}
    out = shared.run_contrastive(method, {"": method.network}, params, x, ("x_weak", "x_strong"), rates, logs)
    return out | {"targets": method.targets, "prototypes": method.prototypes}
