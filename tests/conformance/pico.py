"""Golden ops of PiCO."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn

from methods import blocks
from methods.base import Batch, Clock
from methods.blocks import ema_update, masked_argmax, ring_write, soft_cross_entropy, unit
from methods.pico import (
    PiCO,
    moved_targets,
    nearest_candidate,
    phi_at,
    positive_pairs,
    supervised_contrastive_loss,
    updated_prototypes,
)
from tests.conformance import shared
from tests.conformance.shared import Inputs, Params

SWITCHES = ("prototype_normalise", "target_prototypes", "denominator_eps", "warmup_contrast")
WEIGHTS = ("gamma", "contrast_weight", "tau", "queue_size")


def state_of(method: PiCO) -> dict[str, Tensor]:
    return {
        "confidence": method.targets,
        "prototypes": method.prototypes,
        "queue": method.queue,
        "queue_labels": method.queue_labels,
        "queue_ptr": method.queue_pointer,
    }


def pseudo_label(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"labels": masked_argmax(x["logits"], x["candidates"])}


def prototype_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    updated = updated_prototypes(x["prototypes"], x["embed_q"], x["labels"], params["gamma"], params["normalise"])
    return {"prototypes": updated}


def confidence_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    table, index = x["confidence"].clone(), x["index"]
    nearest = nearest_candidate(x["embed_q"], x["prototypes"], x["candidates"])
    table[index] = moved_targets(table[index], nearest, params["phi"])
    return {"confidence": table, "target": nearest}


def cls_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return shared.with_gradient(lambda z: soft_cross_entropy(z, x["confidence"]), x)


def supcon_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    positives = positive_pairs(x["labels"], x["queue_labels"])
    rest = (x["embed_k"], x["queue"], positives, params["tau"], params["denominator_eps"])
    out = shared.with_gradient(lambda queries: supervised_contrastive_loss(queries, *rest), x, "embed_q")
    return out | {"positives": positives.double()}


def moco_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return shared.with_gradient(lambda q: blocks.moco_loss(q, x["embed_k"], x["queue"], params["tau"]), x, "embed_q")


def queue_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    ring_write(x["queue_ptr"], (x["queue"], x["embed_k"]), (x["queue_labels"], x["labels"]))
    return {key: x[key] for key in ("queue", "queue_labels", "queue_ptr")}


def momentum_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    key, query = (nn.ParameterList([x[name]]) for name in ("key_params", "query_params"))
    ema_update(key, query, params["key_momentum"])
    return {"key_params": key[0]}


def phi_schedule(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    ramp = (params["total_epochs"], params["phi_start"], params["phi_end"], params["lag"], params["phi_before_first"])
    return {"phi": np.array([phi_at(int(e), *ramp) for e in x["epoch"]])}


def step(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    config = PiCO.Config(
        embed_dim=x["feat_q"].shape[1],
        warmup=float(params["warmup"]),
        phi_start=params["phi"],
        phi_end=params["phi"],
        **{key: params[key] for key in SWITCHES + WEIGHTS},
    )
    method = shared.build(PiCO, config, x["confidence"] > 0, lambda: shared.Encoder(2, 2))
    for name, value in state_of(method).items():
        value.copy_(x[name])
    z = shared.leaves(x, "logits", "feat_q")
    batch, clock = Batch((), x["candidates"].bool(), x["index"]), Clock(0, 0, 1, 1)
    done = method.losses(z["logits"], unit(z["feat_q"]), unit(x["feat_k"]), batch, clock)
    out = shared.finish(method, done, z, batch, clock)
    logs = {"loss_cls": done.logs["classification"], "loss_cont": done.logs["contrast"]}
    return out | logs | state_of(method) | {"labels": done.carry[1]}


def trajectory(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    epochs, steps = x["index"].shape[:2]
    same_name = SWITCHES + WEIGHTS + ("key_momentum", "phi_start", "phi_end", "phi_lag", "phi_before_first")
    config = PiCO.Config(
        embed_dim=x["h2_weight"].shape[0],
        warmup=params["warmup_epochs"] / epochs,
        **{key: params[key] for key in same_name},
    )
    sizes = x["enc_weight"].T.shape
    method = shared.build(PiCO, config, x["candidates"], lambda: shared.Encoder(*sizes), epochs, steps, "targets")
    method.queue.copy_(x["queue"])
    networks = {"query_": method.query, "key_": method.key}
    rates = shared.cosine_rates(params, epochs, range(epochs))
    logs = {"loss_cls": "classification", "loss_cont": "contrast"}
    out = shared.run_contrastive(method, networks, params, x, ("x_query", "x_key"), rates, logs)
    return state_of(method) | out


confidence_init = shared.uniform
lr_schedule = shared.lr_schedule
