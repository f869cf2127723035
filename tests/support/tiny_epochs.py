"""Whole epochs of the tiny task, hooks included, for methods whose state changes between epochs."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from methods.base import Batch, Clock, Method, Step, Task
from tests.support.tiny import TinyOptimiser, assert_finite, tiny_batch


class TinyData:
    """The training set as the epoch hooks see it."""

    def __init__(self, task: Task, optimiser: TinyOptimiser | None = None) -> None:
        self.images = tiny_batch(task, range(task.num_samples), views=1).views[0]
        self.optimiser, self.passes, self.resets = optimiser, 0, 0

    def infer(self, fn: Any, view: str = "plain") -> Any:
        self.passes += 1
        with torch.no_grad():
            return fn(self.images)

    def reset_momentum(self) -> None:
        self.resets += 1
        if self.optimiser is not None:
            self.optimiser.sgd.state.clear()


def run(method: Method, task: Task, optimiser: TinyOptimiser, steps: range, size: int = 5) -> list[Step]:
    """The steps of that range with the epoch hooks around them; randomness depends on the step's number only."""
    data, done, per_epoch = TinyData(task, optimiser), [], task.steps_per_epoch
    for step in steps:
        clock = Clock(step // per_epoch, step, task.epochs, per_epoch)
        torch.manual_seed(step)
        order = torch.randperm(task.num_samples)[:size]
        method.train()
        if step % per_epoch == 0:
            method.on_epoch_start(clock, data)
            assert method.training
        done.append(method.update(tiny_batch(task, order.tolist(), len(method.views)), optimiser, clock))
        if (step + 1) % per_epoch == 0:
            method.on_epoch_end(clock, data)
    return done


def start(method_class: type[Method], config: Any, task: Task, seed: int = 0) -> tuple[Any, TinyOptimiser]:
    torch.manual_seed(seed)
    method = method_class(config, task)
    return method, TinyOptimiser(method)


def assert_stopping_changes_nothing(method_class: type[Method], config: Any, task: Task) -> Any:
    """Stopping after any step and going on from the saved state ends in the very state of an unbroken training.

    Every number of that training must be finite. Returns its method.
    """
    total = task.epochs * task.steps_per_epoch
    whole, optimiser = start(method_class, config, task)
    saved = []
    for step in range(total):
        saved.append(copy.deepcopy((whole.state_dict(), optimiser.sgd.state_dict())))
        (done,) = run(whole, task, optimiser, range(step, step + 1))
        assert_finite(whole, done.loss)
    for cut in range(1, total):
        resumed, optimiser = start(method_class, config, task, seed=99)  # what is not loaded shows
        resumed.load_state_dict(saved[cut][0])
        optimiser.sgd.load_state_dict(copy.deepcopy(saved[cut][1]))
        run(resumed, task, optimiser, range(cut, total))
        for key, value in whole.state_dict().items():
            assert torch.equal(resumed.state_dict()[key], value), f"{key} differs after a stop before step {cut}"
    return whole


def huge_head(head: Any) -> None:
    """Logits of about ±1e4."""
    with torch.no_grad():
        head.weight.normal_(0, 1e4)
        head.bias.copy_(1e4 * (-1.0) ** torch.arange(len(head.bias)))


def all_steps(task: Task) -> range:
    return range(task.epochs * task.steps_per_epoch)


def stays_finite_with_huge_logits(
    method: Any, heads: Iterable[Any], batch: Batch, clocks: list[Clock], data: TinyData | None = None
) -> None:
    """Take steps at these times with logits of about ±1e4; with `data` an epoch ends after each."""
    for head in heads:
        huge_head(head)
    for clock in clocks:
        step = method.training_step(batch, clock)
        loss_and_gradients_are_finite(method, step.loss)
        with torch.no_grad():
            method.after_step(batch, step, clock)
        if data is not None:
            method.on_epoch_end(clock, data)


def loss_and_gradients_are_finite(method: Method, loss: Tensor) -> None:
    method.zero_grad()
    loss.backward()
    assert_finite(method, loss)
