"""Golden ops of CEL. `official` numbers come from the released code, so they run with its departures switched on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from methods import cel
from methods.base import Batch, Clock
from methods.blocks import masked_softmax, soft_cross_entropy, unit
from methods.cel import (
    CEL,
    class_affinities,
    class_associative_loss,
    class_embeddings,
    prototype_discriminative_loss,
    updated_prototypes,
)
from methods.networks.ml_decoder import ClassWiseEncoder
from tests.conformance import shared
from tests.conformance.shared import Inputs, Params

RELEASED: dict[str, Any] = {
    "cal_variant": "released",
    "pdl_variant": "released",
    "selection": "masked_product",
    "prototype_variant": "released",
    "prototype_before_loss": True,
}


def config_of(variant: str, **fields: Any) -> CEL.Config:
    return CEL.Config(**((RELEASED if variant == "official" else {}) | fields))


def confidence_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    assert params["momentum"] == 0
    confidence = x["confidence"].clone()
    confidence[x["index"]] = masked_softmax(x["logits_w"], x["candidates"])
    return {"confidence": confidence}


def classification_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    def loss(*views: Tensor) -> Tensor:
        return torch.stack([soft_cross_entropy(logits, x["targets"]) for logits in views]).sum()

    return shared.with_gradient(loss, x, "logits_w", "logits_s")


def cal_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    form = config_of(variant).cal_variant

    def loss(*views: Tensor) -> Tensor:
        return torch.stack([class_associative_loss(h, x["candidates"], params["gamma1"], form) for h in views]).sum()

    out = shared.with_gradient(loss, x, "embeddings_w", "embeddings_s")
    for view in "ws":
        out[f"s_{view}"], out[f"d_{view}"] = class_affinities(x[f"embeddings_{view}"], x["candidates"], form)
    return out


def high_confidence_class(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"index": cel.high_confidence_class(x["logits_w"], x["candidates"], config_of(variant).selection).classes}


def prototype_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    config = config_of(variant)
    choice = cel.high_confidence_class(x["logits_w"], x["candidates"], config.selection)
    chosen = class_embeddings(x["embeddings_w"], choice.classes)
    mode = params.get("mode", config.prototype_mode)
    return {"prototypes": updated_prototypes(x["prototypes"], chosen, choice, config.prototype_variant, mode)}


def pdl_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    config = config_of(variant)
    choice = cel.high_confidence_class(x["logits_w"], x["candidates"], config.selection)
    given = (choice, x["prototypes"], params["gamma2"], config.pdl_variant)

    def loss(*views: Tensor) -> Tensor:
        chosen = [class_embeddings(h, choice.classes) for h in views]
        return torch.stack([prototype_discriminative_loss(e, *given) for e in chosen]).sum()

    return shared.with_gradient(loss, x, "embeddings_w", "embeddings_s")


def train_step(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    z = shared.leaves(x, "embeddings_w", "embeddings_s", "logits_w", "logits_s")
    epoch, first_stage = params["epoch"], params["first_stage_epochs"]
    epochs = 2 * max(epoch + 1, first_stage)
    weights = {name: params[name] for name in ("alpha", "beta", "gamma1", "gamma2")}
    mode = {"prototype_mode": params["prototype_mode"]} if "prototype_mode" in params else {}
    length = x["embeddings_w"].shape[2]
    config = config_of(
        variant, **weights, **mode, warmup=first_stage / epochs, embedding_length=length, heads=1, feed_forward=2
    )
    method = shared.build(CEL, config, x["confidence"] > 0, 2, epochs)
    method.network = shared.Scripted(*((z[f"embeddings_{v}"], z[f"logits_{v}"]) for v in "ws"))
    method.label_confidence.copy_(x["confidence"])
    method.prototypes.copy_(x["prototypes"])
    batch = Batch((torch.zeros(1), torch.zeros(1)), x["candidates"].bool(), x["index"])
    clock = Clock(epoch, epoch, epochs, 1)
    step = method.training_step(batch, clock)
    out = shared.finish(method, step, z, batch, clock)
    return out | {"confidence": method.label_confidence, "prototypes": method.prototypes}


def class_wise_encoder(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    z = shared.leaves(x, "feature_map")
    classes, length = x["query"].shape
    sizes = (x["feature_map"].shape[1], classes, length, params["heads"], params["feedforward"])
    encoder = ClassWiseEncoder(*sizes, dropout=0.1).double().eval()
    state = {
        "queries": x["query"],
        "embed.0.weight": x["embed_weight"],
        "embed.0.bias": x["embed_bias"],
        "attention.in_proj_weight": x["attn_in_weight"],
        "attention.in_proj_bias": x["attn_in_bias"],
        "attention.out_proj.weight": x["attn_out_weight"],
        "attention.out_proj.bias": x["attn_out_bias"],
        "widen.0.weight": x["ffn1_weight"],
        "widen.0.bias": x["ffn1_bias"],
        "narrow.weight": x["ffn2_weight"],
        "narrow.bias": x["ffn2_bias"],
        "group_weight": x["group_weight"][..., 0],
        "group_bias": x["group_bias"],
    }
    for k in (1, 2, 3):
        state |= {f"norm{k}.weight": x[f"norm{k}_weight"], f"norm{k}.bias": x[f"norm{k}_bias"]}
    encoder.load_state_dict(state)
    h, logits = encoder(z["feature_map"])
    embeddings = unit(h)
    total = (embeddings * x["cotangent_embeddings"]).sum() + (logits * x["cotangent_logits"]).sum()
    return {"embeddings": embeddings, "logits": logits} | shared.gradients(total, z)


confidence_init = shared.uniform
lr_schedule = shared.lr_schedule
