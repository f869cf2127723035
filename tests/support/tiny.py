"""The smallest real task: a few random images, a conv net with batch norm, and a plain optimiser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from benchmark.device.pretend import PretendCuda
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


def assert_resume_changes_nothing(method_class: type[Method], config: Any, task: Task, cut: int, end: int) -> None:
    """Training to `end` in one go and with a stop at `cut`, state loaded into a fresh method, gives the same state."""
    torch.manual_seed(0)
    whole = method_class(config, task)
    optimiser = TinyOptimiser(whole)
    train(whole, task, optimiser, range(cut))
    kept = {key: value.clone() for key, value in whole.state_dict().items()}
    momentum = [b.clone() for b in (optimiser.sgd.state[p]["momentum_buffer"] for p in optimiser.sgd.state)]
    train(whole, task, optimiser, range(cut, end))

    torch.manual_seed(99)  # another initialisation: whatever is not loaded shows
    resumed = method_class(config, task)
    resumed.load_state_dict(kept)
    optimiser = TinyOptimiser(resumed)
    parameters = (p for group in optimiser.sgd.param_groups for p in group["params"])
    for parameter, buffer in zip(parameters, momentum, strict=True):
        optimiser.sgd.state[parameter]["momentum_buffer"] = buffer
    train(resumed, task, optimiser, range(cut, end))
    for key, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[key], value), f"{key} differs after a resume"


def assert_finite(method: Method, loss: Tensor) -> None:
    """Loss, gradients and state hold neither NaN nor infinity."""
    assert torch.isfinite(loss)
    for name, parameter in method.named_parameters():
        assert torch.isfinite(parameter).all(), name
        assert parameter.grad is None or torch.isfinite(parameter.grad).all(), f"gradient of {name}"
    for name, buffer in method.named_buffers():
        assert torch.isfinite(buffer).all(), name


def assert_step_needs_no_value_of_the_device(
    method_class: type[Method], config: Any, task: Task, clock: Clock, waits: int = 0
) -> None:
    """Compute loss and state update on the pretend CUDA device, where the host may wait at most `waits` times."""
    with PretendCuda() as device:
        method = method_class(config, task).train().to("cuda")
        batch = tiny_batch(task, range(5), len(method.views))
        views = tuple(view.to("cuda") for view in batch.views)
        batch = Batch(views, batch.candidates.to("cuda"), batch.index.to("cuda"))
        device.reset()
        step = method.training_step(batch, clock)
        with torch.no_grad():
            method.after_step(batch, step, clock)
        assert step.loss.device.type == "cuda"
        assert sum(device.waits.values()) <= waits, device.waits
