"""Golden ops of VALEN: the released step, the paper's own terms, and the candidate generator that goes by its name."""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from torch import Tensor

from datasets.candidates import candidate_sets as candidates
from datasets.candidates import generators
from methods import blocks, valen
from methods.base import Batch, Clock
from methods.blocks import masked_softmax, soft_cross_entropy
from methods.controls import valen_paper
from methods.networks import knn
from methods.networks.knn import nearest_neighbours
from tests.conformance import shared
from tests.conformance.shared import Inputs, Params

CLOCK = Clock(epoch=5, step=5, epochs=10, steps_per_epoch=1)  # in the second stage


def partial_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    out = shared.with_gradient(lambda z: soft_cross_entropy(z, x["target"]), x)
    return out | {"new_target": masked_softmax(x["logits"], x["target"] > 0)}


def min_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return shared.with_gradient(lambda z: valen.min_loss(z, x["candidates"]), x)


def dirichlet_concentration(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    z = shared.leaves(x, "enc_logits")
    law = valen.concentration(z["enc_logits"], x["support"], params["floor"], params["detach_normaliser"])
    return {"concentration": law} | shared.gradients((x["upstream"] * law).sum(), z)


def alpha_kl(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    z = shared.leaves(x, "enc_logits")
    alpha = valen.kl_parameters(z["enc_logits"], params["logit_scale"], params["clip_min"], params["clip_max"])
    kl = blocks.dirichlet_kl(alpha, params["prior"])
    return {"alpha": alpha, "kl": kl} | shared.gradients(kl, z)


def dirichlet_kl(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"kl": blocks.dirichlet_kl(x["alpha"], params["prior"])}


def knn_adjacency(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    neighbours = nearest_neighbours(x["features"], params["k"])
    n = len(neighbours)
    if params["normalise"] == "sym":
        return {"adjacency": valen_paper.propagate(torch.eye(n, dtype=torch.float64), neighbours)}
    return {"adjacency": knn.batch_adjacency(neighbours, torch.arange(n)).double()}


def batch_adjacency(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"adjacency": knn.batch_adjacency(x["neighbours"], x["index"])}


def given_decoder(x: Inputs) -> valen.Decoder:
    size, classes = x["dec_weight1"].shape
    decoder = valen.Decoder(classes, size).double()
    names = ("dec_weight1", "dec_bias1", "dec_weight2", "dec_bias2")
    decoder.load_state_dict(dict(zip(decoder.state_dict(), (x[name] for name in names), strict=True)))
    return decoder


def decoder(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"x_hat": given_decoder(x)(x["d"])}


def reconstruction(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    z = shared.leaves(x, "d", "x_hat")
    d = z["d"]
    rec_x = params["weight_x"] * valen.input_error(z["x_hat"], x["x"])
    rec_y = params["weight_y"] * valen.candidate_error(d, x["candidates"])
    rec_graph = params["weight_A"] * valen.graph_error(d, x["adjacency"])
    total = rec_x + rec_y + rec_graph
    out = {"A_hat": valen.sample_graph(d), "rec_x": rec_x, "rec_y": rec_y, "rec_A": rec_graph, "rec": total}
    return out | shared.gradients(total, z)


def label_distribution_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    mixed = valen.label_distribution(x["d"], x["confidence"], x["candidates"], params["correct"])
    return {"label_distribution": mixed}


def second_stage(params: Params, x: Inputs, logits: list[Tensor], encoded: list[Tensor]) -> tuple[Any, Batch]:
    """The real method with the given tables, decoder and network outputs, and the batch that it is to see."""
    every = torch.ones_like(x["confidence"], dtype=torch.bool)
    every[x["index"]] = x["candidates"].bool()
    detach = params.get("detach_normaliser", True)
    names = ("k", "alpha", "beta", "gamma", "theta", "correct", "floor", "prior")
    config = valen.Valen.Config(**{name: params[name] for name in names}, detach_normaliser=detach, recon_side=1)
    form = valen.Valen if len(logits) == 1 else valen.ValenThreeViews
    method = shared.build(form, config, every, x["x"].shape[1], epochs=10)
    method.label_confidence.copy_(x["confidence"])
    method.label_distribution.copy_(x["label_distribution"])
    method.neighbours = x["neighbours"]
    method.decoder = given_decoder(x)
    method.network, method.encoder = shared.Scripted(*logits), shared.Scripted(*encoded)
    return method, Batch((x["x"],) * len(logits), x["candidates"].bool(), x["index"])


def take_step(method: valen.Valen, batch: Batch, sample: Tensor) -> Any:
    """The method's own step with the given draw in place of the library's; its gradient is the library's."""
    with mock.patch("torch._sample_dirichlet", lambda concentration: sample):
        step = method.training_step(batch, CLOCK)
    with torch.no_grad():
        method.after_step(batch, step, CLOCK)
    return step


def train_step(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    u, a, d = shared.leaves(x, "net_logits", "enc_logits", "d").values()
    method, batch = second_stage(params, x, [u], [a])
    fixed = method.objective(method.terms([u], [a], d, batch))
    grad_a_fixed, grad_d = torch.autograd.grad(fixed, (a, d))
    step = take_step(method, batch, x["d"])
    weight2 = method.get_parameter("decoder.2.weight")
    grad_u, grad_a, grad_weight = torch.autograd.grad(step.loss, (u, a, weight2))
    logs = step.logs
    return {
        "rec_x": logs["rec_x"],
        "rec_y": logs["rec_y"],
        "rec_A": logs["rec_graph"],
        "kl": logs["kl"],
        "L_d": logs["compatibility"],
        "L_o": logs["classifier"],
        "loss": step.loss,
        "grad_net_logits": grad_u,
        "grad_enc_logits_fixed_sample": grad_a_fixed,
        "grad_d": grad_d,
        "grad_enc_logits": grad_a,
        "grad_dec_weight2": grad_weight,
        "confidence": method.label_confidence,
        "label_distribution": method.label_distribution,
    }


def train_step_three_views(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    names = [f"{net}_logits_{view}" for net in ("net", "enc") for view in ("plain", "weak", "strong")]
    z = shared.leaves(x, *names)
    method, batch = second_stage(params, x, [z[name] for name in names[:3]], [z[name] for name in names[3:]])
    step = take_step(method, batch, x["d"])
    logs = step.logs
    return shared.gradients(step.loss, z) | {
        "L_d": logs["compatibility"],
        "L_o": logs["classifier"],
        "kl": logs["kl"],
        "rec": logs["rec_x"] + logs["rec_y"] + logs["rec_graph"],
        "loss": step.loss,
        "confidence": method.label_confidence,
        "label_distribution": method.label_distribution,
    }


def risk_estimator(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return shared.with_gradient(lambda z: valen_paper.risk(z, x["d"], x["candidates"]), x)


def compatibility_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return shared.with_gradient(lambda d: valen_paper.compatibility_loss(d, x["target"]), x, "d")


def elbo_likelihood(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    value = valen_paper.log_likelihood(x["d"], torch.logit(x["tau"]), x["candidates"], x["adjacency"])
    return {"value": value}


def gcn_encoder(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    neighbours = nearest_neighbours(x["features"], params["k"])
    (width, hidden), classes = x["weight0"].shape, x["weight1"].shape[1]
    encoder = valen_paper.GraphEncoder(width, classes, hidden).double()
    encoder.load_state_dict({"weight0": x["weight0"], "weight1": x["weight1"]})
    smoothed = valen_paper.propagate(torch.cat([x["features"], x["candidates"]], dim=1), neighbours)
    return {"enc_logits": encoder(smoothed, neighbours)}


def flip_probability(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    logits, labels, rate = x["logits"], x["labels"], params["rate"]
    if rate is None:  # the paper's form: every image has the rate at which its likeliest wrong label is certain
        classes = logits.shape[1]
        wrong = generators.flip_probabilities(logits, labels, 1 / classes)
        rate = 1 / (classes * wrong.amax(1, keepdim=True))
    return {"probability": generators.flip_probabilities(logits, labels, rate)}


def sample_candidates(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    with mock.patch("datasets.views.views.counter.uniforms", lambda *_: x["uniform"]):
        drawn = candidates.draw(x["probability"], x["labels"], seed=0, stream="golden")
    return {"candidates": drawn.double()}


init_confidence = shared.uniform
