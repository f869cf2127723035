"""Golden ops of PRODEN."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmark.config import optimisation as schedules
from methods.blocks import masked_softmax, soft_cross_entropy
from methods.proden import Proden, updated_confidence
from tests.conformance import shared
from tests.conformance.shared import Inputs, Params


def loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return shared.with_gradient(lambda z: soft_cross_entropy(z, x["confidence"]), x)


def confidence_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    mask_from = params.get("mask_from", "candidates")
    return {"confidence": updated_confidence(x["logits"], x["candidates"], x["confidence"], mask_from)}


def confidence_extreme(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"confidence": masked_softmax(x["logits"], x["candidates"])}


def train_trajectory(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    method = shared.start(Proden, Proden.Config(), params, x, "label_confidence")
    return shared.run(method, params, x) | {"confidence": method.confidence()}


def lr_schedule(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    rate, every = params["decay_rate"], params["decay_step"]
    return {"lr": np.array([schedules.step_decay(params["lr"], int(e), rate, every) for e in x["epochs"]])}


init_confidence = shared.uniform
loss_extreme = loss
confidence_update_zero_weight = confidence_update
train_trajectory_bn = train_trajectory
