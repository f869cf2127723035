"""Golden ops of ABLE."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmark.config import optimisation as schedules
from datasets.candidates.generators import flip_probabilities
from methods import able
from methods.able import ABLE, ambiguity_loss, anchor_confidence
from methods.base import Batch, Clock, Task
from methods.blocks import masked_argmax, masked_softmax, soft_cross_entropy, uniform_confidence, unit
from tests.conformance.trajectory import Identity, Inputs, Params, with_gradient


def stacked(features: Tensor) -> Tensor:
    """(B, 2, d), two views of each image -> (2B, d), weak half first."""
    return features.transpose(0, 1).flatten(0, 1)


def build(config: ABLE.Config, candidates: Tensor, feature_dim: int) -> ABLE:
    return ABLE(config, Task(candidates.shape[1], candidates, 1, 1, lambda: Identity(feature_dim))).double()


def init_confidence(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"confidence": uniform_confidence(x["candidates"], torch.float64)}


def cls_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    targets = x["confidence"][x["index"]]
    return with_gradient(lambda z: soft_cross_entropy(z, targets), x, "logits_weak")


def positive_weights(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    assigned = masked_argmax(x["logits_weak"], x["candidates"])
    anchors = anchor_confidence(x["confidence"], x["index"], params["confidence_lookup"])
    weights = able.positive_weights(assigned, x["candidates"], anchors, params["positive_norm"])
    return {"predicted": assigned, "weights": weights}


def con_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    rest = (positive_weights(params, x, variant)["weights"], params["temperature"], params["base_temperature"])
    return with_gradient(lambda features: ambiguity_loss(stacked(features), *rest), x, "features")


def confidence_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"confidence": masked_softmax(x["logits_weak"], x["candidates"])}


def train_step(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    method = build(ABLE.Config(**params), x["confidence"] > 0, 2)
    method.table.copy_(x["confidence"])
    logits, features = x["logits"].requires_grad_(), x["features"].requires_grad_()
    batch = Batch((), x["candidates"].bool(), x["index"])
    done = method.losses(logits, stacked(features), batch)
    grad_logits, grad_features = torch.autograd.grad(done.loss, (logits, features))
    with torch.no_grad():
        method.after_step(batch, done, Clock(0, 0, 1, 1))
    return {
        "loss": done.loss,
        "cls_loss": done.logs["classification"],
        "con_loss": done.logs["contrast"],
        "grad_logits": grad_logits,
        "grad_features": grad_features,
        "confidence": method.confidence(),
    }


def heads_forward(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    classes, dim = x["fc_weight"].shape
    config = ABLE.Config(embed_dim=x["head_weight2"].shape[0])
    network: Any = build(config, torch.ones(1, classes, dtype=torch.bool), dim).network
    layers = {
        "fc_weight": network.head.weight,
        "fc_bias": network.head.bias,
        "head_weight1": network.projection[0].weight,
        "head_bias1": network.projection[0].bias,
        "head_weight2": network.projection[2].weight,
        "head_bias2": network.projection[2].bias,
    }
    with torch.no_grad():
        for name, parameter in layers.items():
            parameter.copy_(x[name])
    logits, projections = network.both(x["feature"])
    return {"logits": logits, "embedding": unit(projections)}


def flip_probability(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"probability": flip_probabilities(x["logits"], x["labels"], params["rate"])}


def lr_schedule(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    lr, floor = params["lr"], params["lr"] * params["lr_decay_rate"] ** 3
    return {"lr": np.array([schedules.cosine(lr, int(e), params["epochs"], floor) for e in x["epoch"]])}
