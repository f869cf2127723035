"""CR-DPLL beyond its golden numbers and the contract."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch

from methods import cr_dpll
from methods.base import Clock

CLOCK = Clock(epoch=2, step=10, epochs=4, steps_per_epoch=5)
ORDERS: tuple[Literal["stored", "online"], ...] = ("stored", "online")


def test_the_supervised_loss_keeps_its_gradient_where_a_wrong_label_has_all_the_probability() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    loss = cr_dpll.supervised_loss(logits, torch.tensor([[False, True, True]]))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == pytest.approx(1e4)
    assert torch.allclose(gradient, torch.tensor([[1.0, 0.0, -1.0]]))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_losses_and_gradients_are_finite_for_any_logits(order: str, scale: float) -> None:
    torch.manual_seed(0)
    logits = (scale * (2 * torch.randint(0, 2, (3, 6, 5)) - 1.0)).requires_grad_()
    candidates = torch.rand(6, 5) < 0.4
    candidates[:, 0] = True
    loss = cr_dpll.supervised_loss(logits[0], candidates)
    target = cr_dpll.conformal_target(logits.detach(), candidates)
    stored = cr_dpll.consistency_loss(logits, target).sum()
    loss = loss + (cr_dpll.online_consistency_loss(logits, candidates) if order == "online" else stored)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert math.isfinite(loss.item()) and torch.isfinite(gradient).all()
    assert torch.allclose(target.sum(1), torch.ones(6))
