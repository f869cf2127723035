"""Golden ops of CAVL."""

from __future__ import annotations

from typing import Any

from methods.base import Batch
from methods.blocks import soft_cross_entropy
from methods.cavl import CAVL, class_activation_label, label_weights
from tests.conformance import shared
from tests.conformance.shared import Inputs, Params


def label(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"label": class_activation_label(x["logits"], x["candidates"], params["outside"])}


def loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    weights = x["confidence"][x["index"]]
    return shared.with_gradient(lambda z: soft_cross_entropy(z, weights), x)


def confidence_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    labels = class_activation_label(x["logits"], x["candidates"], params["outside"])
    rows = label_weights(labels, x["logits"].shape[1], params.get("smoothing", 0.0))
    Batch((), x["candidates"], x["index"]).store(x["confidence"], rows)
    return {"confidence": x["confidence"]}


def train_trajectory(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    config = CAVL.Config(params["outside"], params.get("smoothing", 0.0))
    method = shared.start(CAVL, config, params, x, "label_confidence")
    return shared.run(method, params, x) | {"confidence": method.confidence()}


train_trajectory_bn = train_trajectory
