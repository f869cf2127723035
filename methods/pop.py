"""POP — progressive purification.

N. Xu, B. Liu, J. Lv, C. Qiao, X. Geng: Progressive Purification for Instance-Dependent Partial Label Learning, ICML
2023.

PRODEN's weighted loss on three views while the candidate sets S themselves shrink:

    L = (1/3) Σ_v −(1/B) Σ_i Σ_j C_ij log softmax(z^v_i)_j,   C_i ← softmax of z^0_i over S_i after every step.

Every R epochs from the warm-up on, the weights are averaged over the last R epochs to P, and a label leaves S_i for
good when P_ij / max_k P_ik < θ. C becomes P on what is left. When a round removes next to nothing, θ ← θ·(1 + inc).

This is the released rule, whose θ hardly moves with its own `inc`: 96 rounds of 500 epochs end at 1.1e-3, so the growth
is kept as released and its value recorded after every epoch. The paper's margin form is `purify_rule="difference"`: a
candidate leaves when its probability is e or more below that of the best candidate, and e falls after a round without
removals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from methods.base import About, Batch, Clock, Method, Step, Task, TrainingData, ViewName
from methods.blocks import Classifier, at_least_float32, candidate_softmax, soft_cross_entropy, uniform_confidence
from methods.registry import register


def purify_by_ratio(weights: Tensor, candidates: Tensor, theta: float | Tensor) -> Tensor:
    """Drop the labels whose weight is below θ times that of the sample's best. (N, C), (N, C) bool -> bool.

    The best label has ratio 1 and θ counts as at most 1, so no set is emptied.
    """
    ratio = weights / weights.amax(1, keepdim=True)
    below = ratio < torch.as_tensor(theta, device=weights.device).clamp(max=1.0)
    return candidates.bool() & ~below


def purify_by_difference(probabilities: Tensor, candidates: Tensor, e: float | Tensor) -> Tensor:
    """Drop the labels that are e > 0 or more below the best candidate. (N, C), (N, C) bool -> (N, C) bool."""
    candidates = candidates.bool()
    best = probabilities.masked_fill(~candidates, 0.0).amax(1, keepdim=True)
    return candidates & ~(best - probabilities >= e)


def purified_weights(weights: Tensor, candidates: Tensor) -> Tensor:
    """Average the weights on the remaining labels, rows summing to 1; uniform where there are none. (N, C) -> same."""
    weights_inside = weights * candidates.to(weights.dtype)
    total = weights_inside.sum(1, keepdim=True)
    return torch.where(total > 0, weights_inside / total, uniform_confidence(candidates, weights.dtype))


class Purification(Method):
    """Candidate sets that shrink in rounds, whatever loss is trained on them; POP's `label_weights` are the evidence."""

    @dataclass(frozen=True)
    class Config:
        warm_up: float = 0.04  # released: no purification in the first 20 of 500 epochs
        roll_window: int = 5  # released: epochs averaged, and distance between rounds
        short_run: int = 50  # in short trainings 1 % of the epochs, at least one
        theta: float = 1e-3  # released: start of the ratio threshold
        inc: float = 1e-3  # released: its relative growth
        theta_max: float = 0.4  # released: no growth from here on
        change_tolerance: float = 1e-4  # released: growth if fewer than this share of all N·C entries left in the round
        purify_rule: Literal["ratio", "difference"] = "ratio"  # released; paper: "difference", the margin form
        e: float = 0.999  # start, end and step of the margin: 1 − θ of the released rule
        e_end: float = 0.6
        e_step: float = 1e-3

        def __post_init__(self) -> None:
            if self.theta > 1 or self.theta_max * (1 + self.inc) > 1:
                raise ValueError(
                    f"pop: theta {self.theta} or theta_max·(1 + inc) {self.theta_max * (1 + self.inc):g} is above 1, "
                    "where even a sample's best label would be removed; lower theta, theta_max or inc."
                )
            if self.roll_window < 1:
                raise ValueError(f"pop: roll_window is a number of epochs, 1 or more, got {self.roll_window}.")
            if not 0 < self.e_end <= self.e or self.e_step < 0:
                raise ValueError(
                    f"pop: the margin falls from e to e_end > 0, got {self.e}, {self.e_end}, {self.e_step}."
                )

    sets: Tensor  # (N, C) bool S, which only shrinks
    label_weights: Tensor  # (N, C) C
    window: Tensor  # (N, C) sum of C over the epochs since the last round
    threshold: Tensor  # () θ or e
    removed: Tensor  # () labels that left in this epoch's round

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        start = config.theta if config.purify_rule == "ratio" else config.e
        self.register_buffer("sets", task.candidates.bool().clone())
        self.register_buffer("label_weights", uniform_confidence(task.candidates))
        self.register_buffer("window", torch.zeros_like(self.label_weights))
        # Double, as in the release: rounded to single it may fall below an equal theta_max and grow once more.
        self.register_buffer("threshold", torch.tensor(start, dtype=torch.float64))
        self.register_buffer("removed", torch.zeros((), dtype=torch.int64))

    def window_length(self, clock: Clock) -> int:
        """Return R in epochs."""
        return max(1, clock.epochs_of(0.01)) if clock.epochs < self.config.short_run else self.config.roll_window

    @torch.no_grad()
    def on_epoch_end(self, clock: Clock, data: TrainingData) -> None:
        self.window += self.label_weights
        self.removed.zero_()
        if clock.epoch % self.window_length(clock):
            return
        if clock.epoch >= clock.epochs_of(self.config.warm_up):
            self.purify(data)
        # Rounds lie R epochs apart, so a sum that starts anew after each is the mean of the last R snapshots.
        self.window.zero_()

    def purify(self, data: TrainingData) -> None:
        """Run one round: smaller sets, averaged weights on them, the next threshold."""
        config = self.config
        if config.purify_rule == "ratio":
            sets = purify_by_ratio(self.window, self.sets, self.threshold)
        else:
            sets = purify_by_difference(self.probabilities(data), self.sets, self.threshold)
        removed_count = self.sets.sum() - sets.sum()
        self.label_weights.copy_(purified_weights(self.window, sets))
        self.sets.copy_(sets)
        self.removed.copy_(removed_count)
        if config.purify_rule == "ratio":
            grow = (self.threshold < config.theta_max) & (removed_count < config.change_tolerance * sets.numel())
            self.threshold.copy_(torch.where(grow, self.threshold * (1 + config.inc), self.threshold))
        else:
            lower = (self.threshold - config.e_step).clamp(min=config.e_end)
            self.threshold.copy_(torch.where(removed_count == 0, lower, self.threshold))

    def probabilities(self, data: TrainingData) -> Tensor:
        """Return the classifier's softmax output on the whole training set, (N, C)."""
        self.eval()
        probabilities = data.infer(lambda images: torch.softmax(at_least_float32(self.predict(images)), dim=1))
        self.train()
        return probabilities

    def confidence(self) -> Tensor:
        return self.label_weights

    def candidate_sets(self) -> Tensor:
        return self.sets

    def diagnostics(self) -> dict[str, float]:
        return {"threshold": float(self.threshold), "removed": float(self.removed)}


@register
class POP(Purification):
    """PRODEN's weighted loss on three views. In rounds, labels whose averaged weight is small against the largest one leave
    the candidate sets.

    Network outputs: logits.
    """

    name = "pop"
    about = About("POP", "IDPLL", venue="ICML", year=2023, forwards="3", state="N×C sets, weights and their window sum")
    views: ClassVar[tuple[ViewName, ...]] = ("plain", "strong", "strong")

    def __init__(self, config: Purification.Config, task: Task) -> None:
        super().__init__(config, task)
        self.network = Classifier(task)

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        weights = batch.rows(self.label_weights)
        # One pass per view: batch-norm statistics are each view's own.
        logits = torch.cat([self.network(view) for view in batch.views])
        loss = soft_cross_entropy(logits, weights.repeat(len(batch.views), 1))
        return Step(loss, carry=logits[: len(weights)].detach())

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        # The shrunken sets, not batch.candidates: with those, removed labels would come back.
        weights = candidate_softmax(step.carry, batch.rows(self.sets))
        batch.store(self.label_weights, weights)

    def predict(self, images: Tensor) -> Tensor:
        return self.network(images)


@register
class POPOneView(POP):
    """On the plain view alone, and removed labels come back at the next visit: how POP has been run on feature tables
    (Fuchs and Kalinke, UAI 2025, released code)."""

    name = "pop-one-view"
    about = About("POP (one view)", "control", forwards="1", state="N×C sets, weights and their window sum")
    views = ("plain",)

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        batch.store(self.label_weights, candidate_softmax(step.carry, batch.candidates))
