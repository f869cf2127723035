"""Golden ops of RC."""

from __future__ import annotations

from typing import Any

from methods.blocks import masked_softmax
from methods.rc import RC, risk
from tests.conformance import shared
from tests.conformance.proden import confidence_extreme as confidence_extreme
from tests.conformance.shared import Inputs, Params


def loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    confidence = x["confidence"][x["index"]] if "index" in x else x["confidence"]
    return shared.with_gradient(lambda z: risk(z, confidence, params.get("risk_scale", 1.0)), x)


def confidence_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    confidence = x["confidence"].clone()
    confidence[x["index"]] = masked_softmax(x["logits"], x["candidates"])
    return {"confidence": confidence}


def train_trajectory(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    method = shared.start(RC, RC.Config(), params, x, "label_confidence")
    return shared.run(method, params, x) | {"confidence": method.confidence()}


init_confidence = shared.uniform
loss_half_scale = loss_extreme = loss
train_trajectory_bn = train_trajectory
