"""ABS-MAE and ABS-GCE beyond their golden numbers: their ends, their bounds, and that they learn."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from methods.abs import AbsGCE, AbsMAE, average_gce, average_mae
from methods.base import Clock
from methods.blocks import soft_cross_entropy, uniform_confidence
from tests.support import tiny

CLOCK = Clock(0, 0, 4, 5)


def some_logits(rows: int = 6, classes: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    candidates = torch.rand(rows, classes, generator=generator) < 0.4
    candidates[:, 0] = True
    return torch.randn(rows, classes, generator=generator, dtype=torch.float64).requires_grad_(), candidates


def test_a_small_q_is_the_average_cross_entropy() -> None:
    logits, candidates = some_logits()
    expected = soft_cross_entropy(logits, uniform_confidence(candidates, torch.float64))
    assert torch.allclose(average_gce(logits, candidates, 1e-7), expected, rtol=1e-5)


def test_mae_is_the_distance_to_the_one_hot_labels() -> None:
    logits, candidates = some_logits()
    distances = (logits.softmax(1)[:, None] - torch.eye(5, dtype=torch.float64)).abs().sum(2)
    expected = (distances * uniform_confidence(candidates, torch.float64)).sum(1).mean()
    assert torch.allclose(average_mae(logits, candidates), expected)


def test_a_full_set_teaches_mae_nothing_and_pulls_gce_to_the_uniform_prediction() -> None:
    logits, candidates = some_logits()
    full = torch.ones_like(candidates)
    (gradient,) = torch.autograd.grad(average_mae(logits, full), logits)
    assert average_mae(logits, full).item() == pytest.approx(2 * (1 - 1 / 5)) and gradient.abs().max() < 1e-15
    assert average_gce(torch.zeros_like(logits), full, 0.7) < average_gce(logits, full, 0.7)


@pytest.mark.parametrize("q", [0.3, 0.7, 1.0])
def test_loss_and_gradient_stay_bounded_where_probabilities_underflow(q: float) -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4]], requires_grad=True)
    loss = average_gce(logits, torch.tensor([[False, True, True], [True, False, False]]), q)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == pytest.approx(1 / q) and not gradient.any()


@pytest.mark.parametrize("method_class", [AbsMAE, AbsGCE])
def test_bfloat16_does_not_lower_the_precision_of_the_loss(method_class: Any) -> None:
    method = method_class(method_class.Config(), tiny.tiny_task())
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    candidates = torch.tensor([[True, True, False]]).expand(4, -1)
    plain = method.loss(logits, candidates)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(method.loss(logits, candidates), plain)
        assert method.loss(logits.bfloat16(), candidates).dtype == torch.float32
