"""The smallest real task: a few random images, a conv net with batch norm, and a plain optimiser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from methods.base import Backbone, Batch, Clock, Method, Task

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

    def __init__(self, method: Method) -> None:
        self.sgd = torch.optim.SGD(method.param_groups(), lr=0.05, momentum=0.9)

    def minimise(self, loss: Tensor) -> None:
        self.sgd.zero_grad()
        loss.backward()
        self.sgd.step()


def train(method: Method, task: Task, optimiser: TinyOptimiser, steps: range, size: int = 5) -> list[Any]:
    """The steps of that range over shuffled rows; the rows of a step depend on its number only. Returns the steps."""
    method.train()
    done = []
    for step in steps:
        order = torch.randperm(task.num_samples, generator=torch.Generator().manual_seed(step))
        clock = Clock(step // task.steps_per_epoch, step, task.epochs, task.steps_per_epoch)
        batch = tiny_batch(task, order[:size].tolist(), len(method.views))
        torch.manual_seed(step)  # as the trainer does: dropout of a step depends on its number only
        done.append(method.update(batch, optimiser, clock))
    return done


def assert_finite(method: Method, loss: Tensor) -> None:
    """Loss, gradients and state hold neither NaN nor infinity."""
    assert torch.isfinite(loss)
    for name, parameter in method.named_parameters():
        assert torch.isfinite(parameter).all(), name
        assert parameter.grad is None or torch.isfinite(parameter.grad).all(), f"gradient of {name}"
    for name, buffer in method.named_buffers():
        assert torch.isfinite(buffer).all(), name
