"""What several methods share: the contrastive loss against its equation, unit vectors, warm-ups."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from methods.base import Clock
from methods.blocks import contrastive_loss, unit


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def looped_contrast(
    anchors: Tensor, others: Tensor, weights: Tensor, tau: float, filled: Tensor | None, eps: float
) -> Tensor:
    """The docstring's equation, a row at a time."""
    columns = torch.cat((anchors, others))
    rows = []
    for a in range(len(anchors)):
        logits = columns @ anchors[a] / tau
        exists = torch.ones(len(columns), dtype=torch.bool) if filled is None else filled.clone()
        exists[a] = False
        top = logits.max().detach()
        total = (logits[exists] - top).exp().sum() + eps
        rows.append(-(weights[a] * (logits - top - total.log()))[exists].sum())
    return torch.stack(rows).mean()


@pytest.mark.parametrize("eps", [0.0, 1e-3])
@pytest.mark.parametrize("with_others", [False, True])
@pytest.mark.parametrize("with_empty", [False, True])
def test_the_contrastive_loss_is_its_equation(with_others: bool, with_empty: bool, eps: float) -> None:
    anchors = F.normalize(numbers(5, 4), dim=1).requires_grad_()
    others = F.normalize(numbers(6 if with_others else 0, 4, seed=1), dim=1)
    size = 5 + len(others)
    weights = numbers(5, size, seed=2).abs().fill_diagonal_(0.0)  # rows need not sum to 1
    filled = None
    if with_empty:
        filled = torch.ones(size, dtype=torch.bool)
        filled[size - 1] = False
        weights[:, size - 1] = 0.0
    given = (others, weights, 0.3, filled, eps)
    looped, ours = looped_contrast(anchors, *given), contrastive_loss(anchors, *given)
    torch.testing.assert_close(ours, looped)
    torch.testing.assert_close(torch.autograd.grad(ours, anchors), torch.autograd.grad(looped, anchors))


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
