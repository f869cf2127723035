"""CR-DPLL beyond its golden numbers: extreme inputs, smallest shapes, mixed precision, resuming."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch

from methods import cr_dpll
from methods.base import Clock
from methods.cr_dpll import CrDpll
from tests.support import tiny

CLOCK = Clock(epoch=2, step=10, epochs=4, steps_per_epoch=5)
ORDERS: tuple[Literal["stored", "online"], ...] = ("stored", "online")


def test_the_supervised_loss_keeps_its_gradient_where_a_wrong_label_has_all_the_probability() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    loss = cr_dpll.supervised_loss(logits, torch.tensor([[False, True, True]]))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == pytest.approx(1e4)
    assert torch.allclose(gradient, torch.tensor([[1.0, 0.0, -1.0]]))


def test_log_complement_is_exact_at_ties_and_in_the_middle() -> None:
    logits = torch.tensor([[0.0, 0.0, -50.0], [1.0, 2.0, 3.0]], dtype=torch.float64)
    assert torch.allclose(cr_dpll.log_complement(logits), torch.log(1 - torch.softmax(logits, 1)), rtol=1e-12)


def test_all_classes_as_candidates_leave_nothing_to_supervise() -> None:
    logits = torch.randn(1, 3, requires_grad=True)
    loss = cr_dpll.supervised_loss(logits, torch.ones(1, 3, dtype=torch.bool))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == 0.0 and not gradient.any()


def test_one_candidate_turns_consistency_into_cross_entropy() -> None:
    logits = torch.randn(3, 1, 3)
    one = torch.tensor([[False, True, False]])
    target = cr_dpll.conformal_target(logits, one)
    assert torch.equal(target, one.float())
    expected = -torch.log_softmax(logits, 2)[:, 0, 1]
    assert torch.allclose(cr_dpll.consistency_loss(logits, target), expected)
    assert torch.allclose(cr_dpll.online_consistency_loss(logits, one), expected.sum())


def test_the_target_minimises_the_consistency_loss() -> None:
    torch.manual_seed(0)
    logits, candidates = torch.randn(3, 1, 4), torch.tensor([[True, True, False, True]])
    target = cr_dpll.conformal_target(logits, candidates)
    best = cr_dpll.consistency_loss(logits, target).sum()
    for _ in range(20):
        other = (target + 0.05 * torch.rand(1, 4)) * candidates
        assert cr_dpll.consistency_loss(logits, other / other.sum()).sum() > best


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


def test_the_loss_reads_the_stored_target_and_replaces_only_the_rows_of_the_batch() -> None:
    task = tiny.tiny_task()
    method = CrDpll(CrDpll.Config(), task).train()
    before = method.target.clone()
    batch = tiny.tiny_batch(task, [3, 7, 1, 0], views=3)
    method.update(batch, tiny.TinyOptimiser(method), CLOCK)
    changed = (method.target != before).any(1)
    assert set(changed.nonzero().flatten().tolist()) <= {1, 3, 7}  # row 0 has one candidate and stays one-hot
    assert changed[1]
    assert not method.target[~task.candidates].any()


def test_two_strong_views_are_separate_forward_passes() -> None:
    task = tiny.tiny_task()
    method = CrDpll(CrDpll.Config(), task).train()
    method.training_step(tiny.tiny_batch(task, range(4), views=3), CLOCK)
    assert method.state_dict()["network.backbone.layers.1.num_batches_tracked"] == 3


def test_the_consistency_weight_is_zero_in_the_first_epoch_and_full_after_half_of_training() -> None:
    weights = [cr_dpll.consistency_weight(epoch, 5, 2.0) for epoch in range(10)]
    assert weights[0] == 0.0 and weights[5:] == [2.0] * 5 and weights[1] == pytest.approx(0.4)
