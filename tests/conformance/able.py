"""Golden ops of ABLE."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from datasets.candidates.generators import flip_probabilities
from methods import able
from methods.able import ABLE, ambiguity_loss, anchor_confidence
from methods.base import Batch, Clock
from methods.blocks import masked_argmax, masked_softmax, soft_cross_entropy, unit
from tests.conformance import shared
from tests.conformance.shared import Inputs, Params


def stacked(features: Tensor) -> Tensor:
    """(B, 2, d), two views of each image -> (2B, d), weak half first."""
    return features.transpose(0, 1).flatten(0, 1)


def cls_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    targets = x["confidence"][x["index"]]
    return shared.with_gradient(lambda z: soft_cross_entropy(z, targets), x, "logits_weak")


def positive_weights(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    assigned = masked_argmax(x["logits_weak"], x["candidates"])
    anchors = anchor_confidence(x["confidence"], x["index"], params["confidence_lookup"])
    weights = able.positive_weights(assigned, x["candidates"], anchors, params["positive_norm"])
    return {"predicted": assigned, "weights": weights}


def con_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    rest = (positive_weights(params, x, variant)["weights"], params["temperature"], params["base_temperature"])
    return shared.with_gradient(lambda features: ambiguity_loss(stacked(features), *rest), x, "features")


def confidence_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"confidence": masked_softmax(x["logits_weak"], x["candidates"])}


def train_step(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    method = shared.build(ABLE, ABLE.Config(**params), x["confidence"] > 0, 2)
    method.table.copy_(x["confidence"])
    z = shared.leaves(x, "logits", "features")
    batch = Batch((), x["candidates"].bool(), x["index"])
    done = method.losses(z["logits"], stacked(z["features"]), batch)
    return shared.finish(method, done, z, batch, Clock(0, 0, 1, 1)) | {
        "cls_loss": done.logs["classification"],
        "con_loss": done.logs["contrast"],
        "confidence": method.confidence(),
    }


def heads_forward(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    classes, dim = x["fc_weight"].shape
    config = ABLE.Config(embed_dim=x["head_weight2"].shape[0])
    network = shared.build(ABLE, config, torch.ones(1, classes), dim).network
    shared.set_head(network.head, x["fc_weight"], x["fc_bias"])
    for k, layer in ((1, network.projection[0]), (2, network.projection[2])):
        shared.set_head(layer, x[f"head_weight{k}"], x[f"head_bias{k}"])
    logits, projections = network.both(x["feature"])
    return {"logits": logits, "embedding": unit(projections)}


def flip_probability(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"probability": flip_probabilities(x["logits"], x["labels"], params["rate"])}


init_confidence = shared.uniform
lr_schedule = shared.lr_schedule
