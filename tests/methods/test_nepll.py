"""NEPLL beyond its golden numbers and the contract."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from methods import nepll
from methods.base import Backbone, Batch, Clock, Task
from methods.nepll import NEPLL
from tests.support import tiny
from tests.support.tiny import TinyData, start, tiny_batch, tiny_task

CONFIG = NEPLL.Config(warmup=0.2, rampup=0.4, expand=0.6)
READINGS = replace(CONFIG, class_threshold="class_mean", ud_ema="persistent", lam=0.5)
WARM, SELECT, EXPAND = Clock(0, 0, 5, 2), Clock(2, 4, 5, 2), Clock(4, 8, 5, 2)


class OnePixel(Backbone):
    """Batch norm over maps of one pixel, which cannot normalise a single sample."""

    def __init__(self, norm: bool = True) -> None:
        super().__init__()
        self.feature_dim = 4
        self.layers = nn.Sequential(nn.Conv2d(3, 4, tiny.SIDE), nn.BatchNorm2d(4) if norm else nn.Identity(), nn.ReLU())

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


def selecting(count: int, task: Task, batch: Batch, config: NEPLL.Config = CONFIG) -> tuple[NEPLL, list[int]]:
    """A method of which `count` rows of the batch are selected, and a list that collects the rows of each forward."""
    method, _ = start(NEPLL, config, task)
    method.train()
    method.selected.zero_()
    method.selected[:, batch.index[:count]] = True
    seen: list[int] = []
    method.networks[0].register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    return method, seen


@pytest.mark.parametrize("norm", [True, False])
def test_a_single_selected_row_is_mixed_only_where_no_batch_norm_stands(norm: bool) -> None:
    task = replace(tiny_task(), backbone=lambda: OnePixel(norm))
    batch = tiny_batch(task, range(6))
    method, seen = selecting(1, task, batch)
    step = method.training_step(batch, SELECT)
    assert seen == ([6, 6] if norm else [6, 6, 1])
    step.loss.backward()
    tiny.assert_finite(method, step.loss)


def test_ties_are_selected_in_row_order() -> None:
    only_one = torch.eye(3, dtype=torch.bool).repeat(4, 1)
    selected, tau, _ = nepll.select(torch.randn(12, 3), only_one, 0.3, "class_mean")
    assert selected.tolist() == [True] * 4 + [False] * 8
    assert not tau.any()


def test_a_certain_wrong_answer_costs_no_more_than_the_floor_of_the_complementary_loss() -> None:
    candidates, row = torch.tensor([[False, True, True]]), torch.tensor([True])
    for certain in (30.0, 1e4):
        logits = torch.tensor([[certain, 0.0, 0.0]], requires_grad=True)
        loss = nepll.complementary_loss(logits, candidates, row)
        torch.testing.assert_close(loss, -torch.tensor(1e-7).log())
        assert torch.isfinite(torch.autograd.grad(loss, logits)[0]).all()
    assert nepll.complementary_loss(torch.tensor([[-1e4, 0.0, 0.0]]), candidates, row).abs() < 1e-6


def test_mix_up_draws_are_beta_and_at_least_a_half() -> None:
    method, _ = start(NEPLL, CONFIG, tiny_task())
    torch.manual_seed(0)
    draws = torch.stack([method.draw_mix(0, torch.arange(3))[0] for _ in range(4000)])
    assert (draws >= 0.5).all()
    # Var of Beta(4, 4) is 1/36, and l ↦ max(l, 1 − l) keeps the distance from ½.
    assert (draws - 0.5).square().mean().item() == pytest.approx(1 / 36, rel=0.1)


@pytest.mark.parametrize(("ud_ema", "kept"), [("per_epoch", 0.0), ("persistent", 0.4)])
def test_the_running_mean_restarts_each_epoch_only_if_asked(ud_ema: Any, kept: float) -> None:
    task = tiny_task(epochs=5, steps=2)
    method, _ = start(NEPLL, replace(CONFIG, ud_ema=ud_ema), task)
    method.kappa.fill_(0.4)
    method.on_epoch_start(EXPAND, TinyData(task))
    assert method.diagnostics() == pytest.approx({"ud_threshold1": kept, "ud_threshold2": kept})


def test_the_training_set_is_passed_once_per_epoch_and_not_in_warm_up() -> None:
    task = tiny_task(epochs=5, steps=2)
    method, _ = start(NEPLL, CONFIG, task)
    data = TinyData(task)
    norms = {k: v.clone() for k, v in method.named_buffers() if "running" in k}
    method.on_epoch_start(WARM, data)
    assert data.passes == 0
    method.on_epoch_start(SELECT, data)
    assert data.passes == 1 and method.training
    assert method.selected.sum(1).tolist() == [12, 12]
    assert all(torch.equal(v, dict(method.named_buffers())[k]) for k, v in norms.items())  # evaluated, not trained


def test_the_phases_fall_where_the_released_run_has_them() -> None:
    config, clock = NEPLL.Config(), Clock(0, 0, 500, 1)
    assert [clock.epochs_of(f) for f in (config.warmup, config.rampup, config.expand)] == [67, 111, 333]
    short = NEPLL(config, tiny_task())
    assert short.in_warmup(Clock(0, 0, 3, 1)) and not short.in_warmup(Clock(1, 1, 3, 1))
