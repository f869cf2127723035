"""The bare loop of a method: forward and backward passes of its networks, optimiser steps, and nothing else.

It is recorded, not written, so it is right for any method, plug-ins included: some steps of the real trainer are
watched, and every outermost call of a network is noted with its inputs, whether it was made for gradients, and the
gradient that came back. The loop repeats these calls on the tensors it has kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from benchmark.train.optimizers import Optimizer
from benchmark.train.trainer import Trainer
from methods.base import Batch


@dataclass
class Call:
    """One call of a network that no other network makes."""

    module: nn.Module
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    with_gradient: bool
    gradients: list[Tensor | None]  # one per tensor that it returned; None: nothing came back


Recording = list[Call | None]  # of one step; None: the optimiser took a step


@contextmanager
def watching(recording: Recording) -> Iterator[None]:
    """Note the outermost calls of networks in here."""
    depth = 0

    def before(*_: Any) -> None:
        nonlocal depth
        depth += 1

    def after(module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        nonlocal depth
        depth -= 1
        if depth > 0:
            return
        outputs = tensors_of(output)
        gradients: list[Tensor | None] = [None] * len(outputs)
        for k, tensor in enumerate(outputs):
            if tensor.requires_grad:
                tensor.register_hook(lambda gradient, k=k: gradients.__setitem__(k, gradient.detach().clone()))
        named = {name: _kept(a) for name, a in keywords.items()}
        recording.append(Call(module, tuple(map(_kept, arguments)), named, torch.is_grad_enabled(), gradients))

    hooks = (
        register_module_forward_pre_hook(before),
        register_module_forward_hook(after, with_kwargs=True),  # type: ignore[arg-type]
    )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def tensors_of(output: Any) -> list[Tensor]:
    """The tensors that a network returned."""
    if isinstance(output, Tensor):
        return [output]
    return [t for part in output for t in tensors_of(part)] if isinstance(output, tuple | list) else []


def _kept(argument: Any) -> Any:
    """A ready tensor with the same values that asks for a gradient if the original did."""
    if not isinstance(argument, Tensor):
        return argument
    return argument.detach().clone().requires_grad_(argument.requires_grad)


class BareLoop:
    """What networks and optimiser did in some steps of the trainer, again and again."""

    def __init__(self, trainer: Trainer, batches: Sequence[Batch]) -> None:
        self.autocast = trainer.autocast
        recordings: list[Recording] = []
        hook = trainer.optimizer.torch.register_step_post_hook(lambda *_: recordings[-1].append(None))
        for batch in batches:
            recordings.append([])
            # A compiled step calls no network that one can watch.
            with watching(recordings[-1]), torch.compiler.set_stance("force_eager"):
                trainer.step(batch)
        hook.remove()
        self.recordings = itertools.cycle(recordings)
        # lr 0 costs the same and leaves the weights alone, so that the trainer can go on with them
        self.optimizer = Optimizer(trainer.method, replace(trainer.settings, lr=0.0), trainer.device).torch

    def steps(self, batches: Sequence[Batch]) -> None:
        """As many as there are batches; the tensors are its own."""
        for _ in batches:
            self.repeat(next(self.recordings))

    def repeat(self, recording: Recording) -> None:
        outputs: list[Tensor] = []
        gradients: list[Tensor] = []
        for call in recording:
            if call is None:
                self.optimizer.zero_grad()
                if outputs:
                    torch.autograd.backward(outputs, gradients)
                self.optimizer.step()
                outputs, gradients = [], []
                continue
            with torch.set_grad_enabled(call.with_gradient), self.autocast():
                returned = tensors_of(call.module(*call.arguments, **call.keywords))
            for tensor, gradient in zip(returned, call.gradients, strict=True):
                if gradient is not None:
                    outputs.append(tensor)
                    gradients.append(gradient)
        for call in filter(None, recording):
            for tensor in tensors_of([*call.arguments, *call.keywords.values()]):
                tensor.grad = None
