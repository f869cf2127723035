"""Losses and draws at their limits: what methods share, and ABLE, CAVL, CR-DPLL and PaPi beyond their golden numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from methods import cr_dpll
from methods.able import ABLE
from methods.base import Clock
from methods.blocks import contrastive_loss, draw_mixing, unit
from methods.cavl import class_activation_label, label_weights
from methods.papi import PaPi
from tests.support.tiny import TinyOptimiser, tiny_batch, tiny_task, train


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


def test_look_ups_of_able_agree_on_the_first_rows_and_only_there() -> None:
    task = tiny_task()
    torch.manual_seed(0)
    config = ABLE.Config(embed_dim=4)
    method = ABLE(config, task)
    train(method, task, TinyOptimiser(method), range(8))

    def contrast(lookup: Any, rows: range) -> float:
        method.config = replace(config, confidence_lookup=lookup)
        return method.training_step(tiny_batch(task, rows), Clock(0, 0, 4, 5)).logs["contrast"].item()

    assert contrast("sample", range(6)) == contrast("batch_position", range(6))
    assert contrast("sample", range(10, 16)) != pytest.approx(contrast("batch_position", range(10, 16)))


def test_cavl_reads_labels_in_float32_from_half_precision_logits() -> None:
    logits = torch.tensor([[300.0, 301.0]]).half()  # 300² is too large for float16, where both would be infinite
    assert class_activation_label(logits, torch.ones(1, 2, dtype=torch.bool)).item() == 1


def test_smoothing_of_cavl_spreads_a_share_over_all_classes() -> None:
    assert torch.allclose(label_weights(torch.tensor([1]), 4, 0.1), torch.tensor([[0.025, 0.925, 0.025, 0.025]]))


def test_the_supervised_loss_of_cr_dpll_keeps_its_gradient_where_a_wrong_label_has_all_the_probability() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    loss = cr_dpll.supervised_loss(logits, torch.tensor([[False, True, True]]))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == pytest.approx(1e4)
    assert torch.allclose(gradient, torch.tensor([[1.0, 0.0, -1.0]]))


def test_the_alignment_of_papi_has_no_weight_in_the_first_epoch_however_short_the_ramp() -> None:
    method = PaPi(PaPi.Config(embed_dim=4, rampup=0.0), tiny_task())
    assert method.psi(Clock(0, 0, 4, 5)) == 0.0 and method.psi(Clock(1, 5, 4, 5)) == 1.0


@pytest.mark.parametrize("alpha", [0.05, 0.75, 8.0])
def test_mixing_coefficients_are_beta_distributed(alpha: float) -> None:
    torch.manual_seed(0)
    draws = torch.stack([draw_mixing(torch.zeros(2, 1), alpha)[0] for _ in range(4000)])
    assert torch.isfinite(draws).all() and draws.mean().item() == pytest.approx(0.5, abs=0.03)
    assert draws.var().item() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.1)
