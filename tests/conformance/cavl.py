"""Golden ops of CAVL."""

from __future__ import annotations

from typing import Any

import torch

from methods.base import Batch
from methods.blocks import soft_cross_entropy, uniform_confidence
from methods.cavl import CAVL, class_activation_label, label_weights
from tests.conformance import trajectory
from tests.conformance.trajectory import Inputs, Params


def label(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"label": class_activation_label(x["logits"], x["candidates"], params["outside"])}


def loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    weights = x["confidence"][x["index"]]
    return trajectory.with_gradient(lambda z: soft_cross_entropy(z, weights), x)


def confidence_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    labels = class_activation_label(x["logits"], x["candidates"], params["outside"])
    rows = label_weights(labels, x["logits"].shape[1], params.get("smoothing", 0.0))
    Batch((), x["candidates"], x["index"]).store(x["confidence"], rows)
    return {"confidence": x["confidence"]}


def train_trajectory(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    exact = uniform_confidence(x["candidates"], torch.float64)
    config = CAVL.Config(params["outside"], params.get("smoothing", 0.0))
    method, out = trajectory.run(CAVL, config, params, x, lambda m: m.label_confidence.copy_(exact))
    return out | {"confidence": method.confidence()}


train_trajectory_bn = train_trajectory
