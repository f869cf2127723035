"""Golden ops of ABS-MAE and ABS-GCE."""

from __future__ import annotations

from typing import Any

from methods.abs import AbsGCE, AbsMAE, average_gce, average_mae
from tests.conformance import shared
from tests.conformance.shared import Inputs, Params


def loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    if params["loss"] == "mae":
        return shared.with_gradient(lambda z: average_mae(z, x["candidates"]), x)
    return shared.with_gradient(lambda z: average_gce(z, x["candidates"], params["q"]), x)


def train_trajectory(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    form, config = (AbsMAE, AbsMAE.Config()) if params["loss"] == "mae" else (AbsGCE, AbsGCE.Config(params["q"]))
    return shared.run(shared.start(form, config, params, x), params, x)


loss_extreme = loss
