"""What several methods share: the contrastive loss at its limits, unit vectors, warm-ups."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from methods.base import Clock
from methods.blocks import contrastive_loss, unit


def test_large_similarities_do_not_overflow() -> None:
    anchors = F.normalize(torch.randn(4, 8), dim=1).requires_grad_()
    weights = torch.full((4, 4), 0.25).fill_diagonal_(0.0)
    loss = contrastive_loss(anchors, anchors[:0], weights, 1e-3)
    (gradient,) = torch.autograd.grad(loss, anchors)
    assert math.isfinite(loss.item()) and torch.isfinite(gradient).all()


def test_zero_vectors_stay_zero_with_a_finite_gradient() -> None:
    rows = torch.zeros(2, 3, requires_grad=True)
    assert torch.equal(unit(rows), rows)
    (gradient,) = torch.autograd.grad(unit(rows).sum(), rows)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize(("fraction", "epochs", "expected"), [(0.02, 500, 10), (0.02, 7, 1), (0.0, 500, 0)])
def test_a_warm_up_lasts_an_epoch_or_more_unless_it_is_switched_off(
    fraction: float, epochs: int, expected: int
) -> None:
    assert Clock(0, 0, epochs, 1).warmup_epochs(fraction) == expected
