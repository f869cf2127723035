"""Golden ops of IDGP."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from methods import idgp
from methods.base import Batch, Clock
from methods.blocks import linear_ramp
from methods.idgp import IDGP
from tests.conformance import shared
from tests.conformance.shared import Inputs, Params

VIEWS = ("o", "w", "s")


def f_prior_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return shared.with_gradient(lambda u: idgp.f_prior_loss(u, x["d"], params["T1"]), x, "f_logits")


def g_prior_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    rest = x["b"], params["T2"], params["reduction"]
    return shared.with_gradient(lambda h: idgp.g_prior_loss(h, *rest), x, "g_logits")


def f_likelihood_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    z = shared.leaves(x, "f_logits", "g_logits")
    rho = idgp.f_weights(z["g_logits"], x["d"], x["candidates"], params["T2"], params["flip_pseudo_label"])
    loss = idgp.f_likelihood_loss(z["f_logits"], rho, params["T1"])
    return {"loss": loss, "weights": rho} | shared.gradients(loss, z)


def likelihood_of_g(form: idgp.GLikelihood) -> Any:
    def op(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
        rest = x["candidates"], params["T1"], params["T2"], params["reduction"], form
        return shared.with_gradient(lambda u, h: idgp.g_likelihood_loss(h, u, *rest), x, "f_logits", "g_logits")

    return op


def marginal_nll(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    z = shared.leaves(x, "f_logits", "g_logits")
    nll = idgp.marginal_nll(z["f_logits"], z["g_logits"], x["candidates"], params["T1"], params["T2"])
    return {"nll": nll, "loss": nll.mean()} | shared.gradients(nll.mean(), z)


def consistency(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    z = shared.leaves(x, "f_logits", "g_logits")
    loss_f = idgp.f_consistency_loss(z["f_logits"], x["d"])
    loss_g = idgp.g_consistency_loss(z["g_logits"], x["b"])
    return {"loss_f": loss_f, "loss_g": loss_g} | shared.gradients(loss_f + loss_g, z)


def state_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {
        "d": idgp.recorded_d(x["f_logits"], x["candidates"], params["T1"]),
        "b": idgp.recorded_b(x["g_logits"], x["candidates"], params["T2"]),
    }


def ramp(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"weight": np.array([linear_ramp(int(e), params["ramp_epochs"]) for e in x["epoch"]])}


def build(params: Params, candidates: Tensor, dim: int, warm_up: int, epochs: int) -> Any:
    """Return the method on `dim` features, with warm-ups one after the other as in the release."""
    given: dict[str, Any] = {k: params[k] for k in ("alpha", "beta", "delta", "gamma", "eta", "T1", "T2")}
    config = IDGP.Config(
        **given,
        theta_w=params["theta"],
        g_reduction=params["reduction"],
        warm_up=warm_up / epochs,
        ramp=params["ramp_epochs"] / epochs,
        joint_warmup=False,
    )
    return shared.build(IDGP, config, candidates, dim, epochs, table="d")


def read_out_logits(method: IDGP, classes: int) -> None:
    """Networks that hand through the logits they are shown: f the left half of an 'image', g the right one."""
    eye, zero = torch.eye(classes), torch.zeros(classes, classes)
    shared.set_head(method.f.head, torch.cat([eye, zero], 1))
    shared.set_head(method.g.head, torch.cat([zero, eye], 1))


def step(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    z = shared.leaves(x, *(f"{network}_logits_{view}" for view in VIEWS for network in "fg"))
    candidates = x["candidates"].bool()
    (rows, classes), epochs = candidates.shape, 1 + max(params["epoch"], params["ramp_epochs"])
    method = build(params, candidates, 2 * classes, 0, epochs)
    read_out_logits(method, classes)
    method.d.copy_(x["d"])
    method.b.copy_(x["b"])
    views = tuple(torch.cat([z[f"f_logits_{v}"], z[f"g_logits_{v}"]], 1) for v in VIEWS)
    clock = Clock(params["epoch"], params["epoch"], epochs, 1)
    done = method.update(Batch(views, candidates, torch.arange(rows)), shared.NoStep(), clock)
    return (
        shared.gradients(done.loss, z)
        | {"d": method.d, "b": method.b, "ramp": method.ramp(clock)}
        | {"loss_f": done.logs["f"], "loss_g": done.logs["g"]}
    )


def train(
    method: IDGP, params: Params, x: Inputs, images: Tensor, optimizer: Any, record: dict[str, Any]
) -> dict[str, Any]:
    """Warm-up of f, of g, then the main phase, on `images` (E, 3, N, d).

    `record` names what is noted after the warm-up and each main epoch.
    """
    warm, candidates = params["warm_up"], x["candidates"].bool()
    warm_orders = [*x["order_warm_f"][:warm], *x["order_warm_g"][:warm]] if warm > 0 else []  # not given without one
    orders = [*warm_orders, *x["order_main"][: params["epochs"]]]
    losses: list[Tensor] = []
    notes: dict[str, list[Tensor]] = {name: [] for name in record}

    def note() -> None:
        for name, tensor in record.items():
            notes[name].append(tensor.detach().clone())

    for epoch, order in enumerate(orders):
        if epoch >= 2 * warm:
            note()
        table = epoch % warm if epoch < 2 * warm else epoch - warm  # both warm-ups see the first tables
        for index in order.split(params["batch_size"]):
            batch = Batch(tuple(images[table][:, index]), candidates[index], index)
            logs = method.update(batch, optimizer, Clock(epoch, epoch, len(orders), 1)).logs
            losses.append(torch.stack([logs.get(name, torch.zeros(())).double() for name in "fg"]))
    note()
    f, g = torch.stack(losses).view(len(orders), -1, 2).unbind(2)
    return {name: torch.stack(values) for name, values in notes.items()} | {
        "warm_loss_f": f[:warm],
        "warm_loss_g": g[warm : 2 * warm],
        "loss_f": f[2 * warm :],
        "loss_g": g[2 * warm :],
    }


def trajectory(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    candidates = x["candidates"].bool()
    classes, total = candidates.shape[1], 2 * params["warm_up"] + params["epochs"]
    method = build(params, candidates, 2 * classes, params["warm_up"], total)
    read_out_logits(method, classes)
    images = torch.cat([x["f_logits"], x["g_logits"]], 3)
    return train(method, params, x, images, shared.NoStep(), {"d": method.d, "b": method.b})


def linear_training(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    candidates, total = x["candidates"].bool(), 2 * params["warm_up"] + params["epochs"]
    method = build(params, candidates, x["x"].shape[2], params["warm_up"], total)
    record = {"d": method.d, "b": method.b}
    for name, network in (("f", method.f), ("g", method.g)):
        shared.set_head(network.head, x[f"{name}_weight"], x[f"{name}_bias"])
        record |= {f"{name}_weight": network.head.weight, f"{name}_bias": network.head.bias}
    # The release's two optimisers as one with two groups; a network without gradient is left alone.
    f = {"params": list(method.f.parameters())}
    g = {"params": list(method.g.parameters()), "lr": params["lr_g"], "weight_decay": params["weight_decay_g"]}
    images = x["x"].expand(total, -1, -1, -1)
    return train(method, params, x, images, shared.sgd(method, params, [f, g]), record)


f_likelihood_loss_noflip = f_likelihood_loss_extreme = f_likelihood_loss
g_likelihood_loss = likelihood_of_g("released")
g_likelihood_loss_jensen = likelihood_of_g("jensen")
