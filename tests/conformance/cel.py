"""Golden ops of CEL. `official` numbers come from the released code, so they run with its departures switched on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmark.config import optimisation as schedules
from methods import cel
from methods.base import Batch, Clock, Task
from methods.blocks import masked_softmax, soft_cross_entropy, uniform_confidence, unit
from methods.cel import (
    CEL,
    class_affinities,
    class_associative_loss,
    class_embeddings,
    prototype_discriminative_loss,
    updated_prototypes,
)
from methods.networks.ml_decoder import ClassWiseEncoder
from tests.conformance.trajectory import Identity, Inputs, Params

RELEASED: dict[str, Any] = {
    "cal_variant": "released",
    "pdl_variant": "released",
    "selection": "masked_product",
    "prototype_variant": "released",
    "prototype_before_loss": True,
}


def config_of(variant: str, **fields: Any) -> CEL.Config:
    return CEL.Config(**((RELEASED if variant == "official" else {}) | fields))


def with_gradients(loss: Tensor, x: Inputs, *names: str) -> dict[str, Any]:
    gradients = torch.autograd.grad(loss, [x[name] for name in names], materialize_grads=True)
    return {"loss": loss} | {f"grad_{name}": g for name, g in zip(names, gradients, strict=True)}


def needing_gradient(x: Inputs, *names: str) -> None:
    for name in names:
        x[name].requires_grad_()


def confidence_init(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"confidence": uniform_confidence(x["candidates"], torch.float64)}


def confidence_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    assert params["momentum"] == 0
    confidence = x["confidence"].clone()
    confidence[x["index"]] = masked_softmax(x["logits_w"], x["candidates"])
    return {"confidence": confidence}


def classification_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    needing_gradient(x, "logits_w", "logits_s")
    loss = soft_cross_entropy(x["logits_w"], x["targets"]) + soft_cross_entropy(x["logits_s"], x["targets"])
    return with_gradients(loss, x, "logits_w", "logits_s")


def cal_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    names = ("embeddings_w", "embeddings_s")
    needing_gradient(x, *names)
    form = config_of(variant).cal_variant
    losses = [class_associative_loss(x[name], x["candidates"], params["gamma1"], form) for name in names]
    out = with_gradients(torch.stack(losses).sum(), x, *names)
    for view, name in zip("ws", names, strict=True):
        out[f"s_{view}"], out[f"d_{view}"] = class_affinities(x[name], x["candidates"], form)
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
    names = ("embeddings_w", "embeddings_s")
    needing_gradient(x, *names)
    config = config_of(variant)
    choice = cel.high_confidence_class(x["logits_w"], x["candidates"], config.selection)
    chosen = [class_embeddings(x[name], choice.classes) for name in names]
    given = (choice, x["prototypes"], params["gamma2"], config.pdl_variant)
    return with_gradients(torch.stack([prototype_discriminative_loss(e, *given) for e in chosen]).sum(), x, *names)


class Recorded(nn.Module):
    """Stands for the network: the "image" is the number of the view whose outputs it hands back."""

    def __init__(self, outputs: list[tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, view: Tensor) -> tuple[Tensor, Tensor]:
        return self.outputs[int(view)]


def train_step(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    names = ("embeddings_w", "embeddings_s", "logits_w", "logits_s")
    needing_gradient(x, *names)
    epoch, first_stage = params["epoch"], params["first_stage_epochs"]
    epochs = 2 * max(epoch + 1, first_stage)
    weights = {name: params[name] for name in ("alpha", "beta", "gamma1", "gamma2")}
    mode = {"prototype_mode": params["prototype_mode"]} if "prototype_mode" in params else {}
    length = x["embeddings_w"].shape[2]
    config = config_of(
        variant, **weights, **mode, warmup=first_stage / epochs, embedding_length=length, heads=1, feed_forward=2
    )
    task = Task(x["candidates"].shape[1], x["confidence"] > 0, epochs, 1, lambda: Identity(2))
    method = CEL(config, task).double()
    method.network = Recorded([(x[f"embeddings_{v}"], x[f"logits_{v}"]) for v in "ws"])
    method.label_confidence.copy_(x["confidence"])
    method.prototypes.copy_(x["prototypes"])
    batch = Batch((torch.tensor(0), torch.tensor(1)), x["candidates"].bool(), x["index"])
    clock = Clock(epoch, epoch, epochs, 1)
    step = method.training_step(batch, clock)
    out = with_gradients(step.loss, x, *names)
    with torch.no_grad():
        method.after_step(batch, step, clock)
    return out | {"confidence": method.label_confidence, "prototypes": method.prototypes}


def class_wise_encoder(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    needing_gradient(x, "feature_map")
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
    h, logits = encoder(x["feature_map"])
    embeddings = unit(h)
    total = (embeddings * x["cotangent_embeddings"]).sum() + (logits * x["cotangent_logits"]).sum()
    (gradient,) = torch.autograd.grad(total, x["feature_map"])
    return {"embeddings": embeddings, "logits": logits, "grad_feature_map": gradient}


def lr_schedule(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    lr, epochs = params["lr"], params["epochs"]
    floor = lr * params["min_ratio"]
    return {"lr": np.array([schedules.cosine(lr, int(e), epochs, floor) for e in x["epoch"]])}
