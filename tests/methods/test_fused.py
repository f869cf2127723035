"""Losses with gradients written by hand, against autograd on their equations and against finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Dirichlet, kl_divergence

from methods import fused


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def plain_contrast(
    anchors: Tensor, others: tuple[Tensor, ...], weights: Tensor, tau: float, filled: Tensor | None, eps: float
) -> Tensor:
    """The docstring's equation, a row at a time."""
    columns = torch.cat((anchors, *others))
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
    anchors = F.normalize(numbers(5, 4).detach(), dim=1).requires_grad_()
    others = F.normalize(numbers(6, 4, seed=1).detach(), dim=1).split(2) if with_others else ()
    size = 11 if with_others else 5
    weights = numbers(5, size, seed=2).detach().abs()  # rows need not sum to 1
    weights.fill_diagonal_(0.0)
    filled = None
    if with_empty:
        filled = torch.ones(size, dtype=torch.bool)
        filled[size - 1] = False
        weights[:, size - 1] = 0.0
    given = (others, weights, 0.3, filled, eps)
    plain, fast = plain_contrast(anchors, *given), fused.contrastive_loss(anchors, *given)
    torch.testing.assert_close(fast, plain)
    torch.testing.assert_close(torch.autograd.grad(fast, anchors), torch.autograd.grad(plain, anchors))


def test_gradients_agree_with_finite_differences() -> None:
    assert torch.autograd.gradcheck(fused.unit, numbers(3, 4))
    weights = (numbers(3, 2, 5, seed=1) > 0).double()
    assert torch.autograd.gradcheck(lambda h: fused.unit_sums(h, weights), numbers(3, 5, 4))
    inner = numbers(4, 4, seed=2).detach().abs().fill_diagonal_(0.0)
    assert torch.autograd.gradcheck(lambda z: fused.contrastive_loss(z, (), inner, 0.5), numbers(4, 3))
    alpha = numbers(3, 4).detach().exp().requires_grad_()
    assert torch.autograd.gradcheck(lambda a: fused.dirichlet_kl(a, 0.7), alpha)


@pytest.mark.parametrize("prior", [1.0, 0.3])
def test_the_divergence_of_dirichlets_is_that_of_torch(prior: float) -> None:
    alpha = numbers(5, 7).detach().exp().requires_grad_()
    known = kl_divergence(Dirichlet(alpha), Dirichlet(torch.full_like(alpha, prior))).mean()
    torch.testing.assert_close(fused.dirichlet_kl(alpha, prior), known)
    torch.testing.assert_close(
        torch.autograd.grad(fused.dirichlet_kl(alpha, prior), alpha), torch.autograd.grad(known, alpha)
    )


def test_a_draw_is_that_of_torch_but_for_numbers_whose_squares_underflow() -> None:
    parameters = numbers(50, 8).detach().float().exp().sub_(0.2).clamp_min_(0.01).requires_grad_()
    pull = numbers(50, 8, seed=1).detach().float()
    results = []
    for draw in (lambda p: Dirichlet(p).rsample(), fused.dirichlet_draw):
        torch.manual_seed(0)
        sample = draw(parameters)
        results.append((sample, *torch.autograd.grad((sample * pull).sum(), parameters)))
    (known, known_gradient), (ours, gradient) = results
    smallest = torch.finfo(torch.float32).tiny ** 0.5
    assert known.min() < smallest <= ours.min()
    assert torch.equal(ours, known.clamp_min(smallest))
    torch.testing.assert_close(gradient, known_gradient, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("name", ["unit", "unit_sums", "contrastive_loss"])
def test_mixed_precision_does_not_reach_the_gradients(name: str) -> None:
    """The forward pass is guarded by the caller; the trainer's backward pass happens inside autocast."""
    x = numbers(4, 6).detach().float().requires_grad_()
    calls: dict[str, Callable[[], Tensor]] = {
        "unit": lambda: fused.unit(x),
        "unit_sums": lambda: fused.unit_sums(x[:, :, None].expand(-1, -1, 3), torch.ones(4, 2, 6)),
        "contrastive_loss": lambda: fused.contrastive_loss(x, (), 1 - torch.eye(4), 0.5),
    }
    value = calls[name]().square().sum()
    (plain,) = torch.autograd.grad(value, x, retain_graph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (mixed,) = torch.autograd.grad(value, x)
    assert torch.equal(plain, mixed)


def test_zero_rows_stay_zero_and_gradients_of_empty_classes_are_finite() -> None:
    rows = torch.zeros(2, 3, requires_grad=True)
    assert torch.equal(fused.unit(rows), rows)
    vectors = torch.zeros(1, 2, 3, requires_grad=True)
    summed = fused.unit_sums(vectors, torch.ones(1, 1, 2))
    assert torch.equal(summed, torch.zeros(1, 1, 3))
    (gradient,) = torch.autograd.grad(summed.sum(), vectors)
    assert torch.isfinite(gradient).all()


def test_large_similarities_do_not_overflow() -> None:
    anchors = F.normalize(torch.randn(4, 8), dim=1).requires_grad_()
    weights = torch.full((4, 4), 0.25).fill_diagonal_(0.0)
    loss = fused.contrastive_loss(anchors, (), weights, 1e-3)
    (gradient,) = torch.autograd.grad(loss, anchors)
    assert math.isfinite(loss.item()) and torch.isfinite(gradient).all()


def test_a_second_derivative_is_refused_rather_than_wrong() -> None:
    x = numbers(2, 3)
    (first,) = torch.autograd.grad(fused.unit(x).sum() ** 2, x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
