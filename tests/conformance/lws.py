"""Golden ops of LWS and LWC."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmark.config import optimisation as schedules
from methods.lws import LWS, initial_weights, leveraged_terms, updated_weights
from tests.conformance import shared
from tests.conformance.shared import Inputs, Params


def init_weights(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"weights": initial_weights(x["candidates"], params["init"], torch.float64)}


def loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    weights = x["weights"][x["index"]]
    keys = ("lw", "lw0", "binary_loss", "eps", "zero_gradient_at_zero")
    settings = {k: params[k] for k in keys if k in params}
    out = shared.with_gradient(lambda z: torch.stack(leveraged_terms(z, x["candidates"], weights, **settings)).sum(), x)
    candidate, other = leveraged_terms(x["logits"], x["candidates"], weights, **settings)
    return out | {"candidate_term": candidate, "noncandidate_term": other}


def weight_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    weights = x["weights"].clone()
    weights[x["index"]] = updated_weights(x["logits"], x["candidates"], params["eps"])
    return {"weights": weights}


def train_trajectory(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    config = LWS.Config(**{k: params[k] for k in ("lw", "lw0", "eps", "init", "binary_loss")})
    method = shared.start(LWS, config, params, x)
    method.weights.copy_(initial_weights(x["candidates"], config.init, torch.float64))
    return shared.run(method, params, x) | {"weights": method.weights}


def lr_schedule(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    rate, every = params["decay_rate"], params["decay_step"]
    return {"lr": np.array([schedules.exponential(params["lr"], int(e), rate, every) for e in x["epochs"]])}


lws_loss = lws_loss_extreme = lws_loss_zero_logit = lwc_loss = loss
weight_update_small_mass = weight_update
train_trajectory_bn = train_trajectory
