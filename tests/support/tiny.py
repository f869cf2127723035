"""The smallest real task: a few random images, a conv net with batch norm, a plain optimiser, and whole epochs of it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from methods.base import Backbone, Batch, Clock, Method, Step, Task

SIDE = 6


class TinyConv(Backbone):
    """One strided convolution with batch norm: (B, 3, 6, 6) -> (B, 8, 3, 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.feature_dim = 8
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU())

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


def tiny_task(samples: int = 20, classes: int = 3, epochs: int = 4, steps: int = 5, seed: int = 0) -> Task:
    """Row 0 has one candidate, row 1 all of them, the others a random set."""
    generator = torch.Generator().manual_seed(seed)
    candidates = torch.rand(samples, classes, generator=generator) < 0.5
    candidates[torch.arange(samples), torch.randint(classes, (samples,), generator=generator)] = True
    candidates[0] = torch.arange(classes) == classes - 1
    candidates[1:2] = True
    return Task(classes, candidates, epochs, steps, TinyConv)


def tiny_batch(task: Task, index: Sequence[int], views: int = 2) -> Batch:
    """Images that depend on the row and the view only."""
    rows = torch.tensor(index)
    images = torch.randn(task.num_samples, views, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))[rows]
    return Batch(tuple(images.unbind(1)), task.candidates[rows], rows)


class TinyOptimiser:
    """The trainer's SGD without schedule and precision handling."""

    def __init__(
        self,
        method: Method,
        lr: float = 0.05,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        groups: Sequence[dict[str, Any]] = (),
    ) -> None:
        self.sgd = torch.optim.SGD(groups or method.param_groups(), lr, momentum, weight_decay=weight_decay)

    def minimise(self, loss: Tensor) -> None:
        self.sgd.zero_grad()
        loss.backward()
        self.sgd.step()


def assert_finite(method: Method, loss: Tensor) -> None:
    """Loss, gradients and state hold neither NaN nor infinity."""
    assert torch.isfinite(loss)
    for name, parameter in method.named_parameters():
        assert torch.isfinite(parameter).all(), name
        assert parameter.grad is None or torch.isfinite(parameter.grad).all(), f"gradient of {name}"
    for name, buffer in method.named_buffers():
        assert torch.isfinite(buffer).all(), name


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


def train(method: Method, task: Task, optimiser: TinyOptimiser, steps: range, size: int = 5) -> list[Step]:
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
        (done,) = train(whole, task, optimiser, range(step, step + 1))
        assert_finite(whole, done.loss)
    for cut in range(1, total):
        resumed, optimiser = start(method_class, config, task, seed=99)  # what is not loaded shows
        resumed.load_state_dict(saved[cut][0])
        optimiser.sgd.load_state_dict(copy.deepcopy(saved[cut][1]))
        train(resumed, task, optimiser, range(cut, total))
        for key, value in whole.state_dict().items():
            assert torch.equal(resumed.state_dict()[key], value), f"{key} differs after a stop before step {cut}"
    return whole


def all_steps(task: Task) -> range:
    return range(task.epochs * task.steps_per_epoch)
