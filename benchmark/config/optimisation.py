"""Optimisers and learning-rate schedules by name: adding one is one entry. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmark.config.sections import Train


@dataclass(frozen=True)
class Rates:
    """Learning rate and momentum of a step. `momentum` is None where it does not change."""

    lr: float
    momentum: float | None = None


def cosine(lr: float, epoch: float, epochs: int, lr_min: float | None = None) -> float:
    """Return lr_min + (lr − lr_min)(1 + cos(π e/E))/2, with lr_min = lr/1000 unless given."""
    floor = lr / 1000 if lr_min is None else lr_min
    return floor + (lr - floor) * (1 + math.cos(math.pi * epoch / epochs)) / 2


def step_decay(lr: float, epoch: int, rate: float, every: float) -> float:
    """Return lr · rate^⌊e/every⌋, as PRODEN's release."""
    return lr * rate ** math.floor(epoch / every)


def exponential(lr: float, epoch: float, rate: float, every: float) -> float:
    """Return lr · rate^(e/every) with true division, as LWS's release."""
    return lr * rate ** (epoch / every)


def one_cycle(lr: float, step: int, steps: int) -> Rates:
    """Return the rates of torch's OneCycleLR at its defaults.

    The learning rate rises from lr/25 in 30 % of the steps and falls to lr/250,000; momentum goes .95 → .85 → .95.
    """
    top = 0.3 * steps - 1  # the step of the highest rate; torch counts it as a float
    start, end = lr / 25, lr / 25 / 1e4

    def anneal(first: float, last: float, share: float) -> float:
        return last + (first - last) / 2 * (1 + math.cos(math.pi * share))

    if step <= top:
        share = step / top
        return Rates(anneal(start, lr, share), anneal(0.95, 0.85, share))
    share = (step - top) / (steps - 1 - top)
    return Rates(anneal(lr, end, share), anneal(0.85, 0.95, share))


# By name: learning rate and momentum of a step, from the settings, the step counted from the start of training, and the
# number of steps in an epoch.
SCHEDULES: dict[str, Callable[[Train, int, int], Rates]] = {
    "cosine": lambda train, step, per_epoch: Rates(cosine(train.lr, step // per_epoch, train.epochs)),
    "constant": lambda train, step, per_epoch: Rates(train.lr),
    "step": lambda train, step, per_epoch: Rates(
        step_decay(train.lr, step // per_epoch, train.decay, train.decay_every)
    ),
    "exponential": lambda train, step, per_epoch: Rates(
        exponential(train.lr, step // per_epoch, train.decay, train.decay_every)
    ),
    "one-cycle": lambda train, step, per_epoch: one_cycle(train.lr, step, train.epochs * per_epoch),
}

# By name: a class of torch.optim and its arguments beside lr and weight decay.
OPTIMIZERS: dict[str, Callable[[Train], tuple[str, dict[str, Any]]]] = {
    "sgd": lambda train: ("SGD", {"momentum": train.momentum}),
    "adam": lambda train: ("Adam", {}),  # weight decay in the gradient
    "adamw": lambda train: ("AdamW", {}),  # weight decay apart from the gradient
}
