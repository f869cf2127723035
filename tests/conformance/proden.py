"""Golden ops of PRODEN."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmark.config import optimisation as schedules
from methods.blocks import masked_softmax, soft_cross_entropy, uniform_confidence
from methods.proden import Proden, updated_confidence
from tests.conformance import trajectory
from tests.conformance.trajectory import Inputs, Params


def init_confidence(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"confidence": uniform_confidence(x["candidates"], torch.float64)}


def loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return trajectory.with_gradient(lambda z: soft_cross_entropy(z, x["confidence"]), x)


def confidence_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    mask_from = params.get("mask_from", "candidates")
    return {"confidence": updated_confidence(x["logits"], x["candidates"], x["confidence"], mask_from)}


def confidence_extreme(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"confidence": masked_softmax(x["logits"], x["candidates"])}


def train_trajectory(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    exact = uniform_confidence(x["candidates"], torch.float64)
    method, out = trajectory.run(Proden, Proden.Config(), params, x, lambda m: m.label_confidence.copy_(exact))
    return out | {"confidence": method.confidence()}


def lr_schedule(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    rate, every = params["decay_rate"], params["decay_step"]
    return {"lr": np.array([schedules.step_decay(params["lr"], int(e), rate, every) for e in x["epochs"]])}


loss_extreme = loss
confidence_update_zero_weight = confidence_update
train_trajectory_bn = train_trajectory
