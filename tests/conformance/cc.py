"""Golden ops of CC."""

from __future__ import annotations

from typing import Any

from methods.cc import CC, candidate_likelihood_loss
from tests.conformance import shared
from tests.conformance.shared import Inputs, Params


def loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    constant = params.get("include_constant", False)
    return shared.with_gradient(lambda z: candidate_likelihood_loss(z, x["candidates"], constant), x)


def train_trajectory(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return shared.run(shared.start(CC, CC.Config(), params, x), params, x)


loss_with_constant = loss_extreme = loss
train_trajectory_bn = train_trajectory
