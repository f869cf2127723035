"""Golden ops of RC."""

from __future__ import annotations

from typing import Any

import torch

from methods.blocks import masked_softmax, uniform_confidence
from methods.rc import RC, risk
from tests.conformance import trajectory
from tests.conformance.proden import confidence_extreme as confidence_extreme
from tests.conformance.proden import init_confidence as init_confidence
from tests.conformance.trajectory import Inputs, Params


def loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    confidence = x["confidence"][x["index"]] if "index" in x else x["confidence"]
    return trajectory.with_gradient(lambda z: risk(z, confidence, params.get("risk_scale", 1.0)), x)


def confidence_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    confidence = x["confidence"].clone()
    confidence[x["index"]] = masked_softmax(x["logits"], x["candidates"])
    return {"confidence": confidence}


def train_trajectory(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    exact = uniform_confidence(x["candidates"], torch.float64)
    method, out = trajectory.run(RC, RC.Config(), params, x, lambda m: m.label_confidence.copy_(exact))
    return out | {"confidence": method.confidence()}


loss_half_scale = loss_extreme = loss
train_trajectory_bn = train_trajectory
