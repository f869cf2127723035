"""Golden ops of ABS-MAE and ABS-GCE."""

from __future__ import annotations

from typing import Any

from methods.abs import AbsGCE, AbsMAE, average_gce, average_mae
from tests.conformance import trajectory
from tests.conformance.trajectory import Inputs, Params


def loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    if params["loss"] == "mae":
        return trajectory.with_gradient(lambda z: average_mae(z, x["candidates"]), x)
    return trajectory.with_gradient(lambda z: average_gce(z, x["candidates"], params["q"]), x)


def train_trajectory(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    if params["loss"] == "mae":
        return trajectory.run(AbsMAE, AbsMAE.Config(), params, x, lambda method: None)[1]
    return trajectory.run(AbsGCE, AbsGCE.Config(params["q"]), params, x, lambda method: None)[1]


loss_extreme = loss
