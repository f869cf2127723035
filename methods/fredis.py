"""FREDIS — fusion of refinement and disambiguation, for candidate sets that may miss the true label.

C. Qiao, N. Xu, J. Lv, Y. Ren, X. Geng: FREDIS: A Fusion Framework of Refinement and Disambiguation for Unreliable
Partial Label Learning, ICML 2023. The paper was not available; the released code decides, but for the fields below.

Weights C on the labels of the current sets S, a complementary loss on all others, over three views v with
p^v = softmax(z^v / T):

    L = lam Σ_v KL(C ‖ p^v) − alpha (1/B) Σ_i Σ_v Σ_{j∉S_i} log(1 + ε − p^v_ij)
    C_i ← softmax of (z⁰ + z¹ + z²)_i / 3T over S_i,   P_i ← p⁰_i        after every step

Every few epochs from the warm-up on, the sets themselves are refined in both directions, D_ij = max_k P_ik − P_ij:

    join    labels outside S with D < θ, at most N of them; a is their number
    leave   labels of S with D > δ, at most M·N; δ is lowered until they are M·a
    C ← P on the new sets, and if fewer than N entries changed: θ ← θ + inc, δ ← δ − dec

POP only removes; here a true label that was left out can come back. With clean sets nothing needs to join, and FREDIS is
removal plus a complementary loss. The release starts from weights that it ships with; here one run does both: the same
loss with fixed sets for half of the training, then refinement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from methods.base import About, Batch, Clock, Method, Step, Task, TrainingData
from methods.blocks import Classifier, at_least_float32, candidate_softmax, uniform_confidence
from methods.pop import purified_weights
from methods.registry import register

THETA_END, DELTA_END = 0.9, 0.1  # released: thresholds move no further


def view_loss(logits: Tensor, weights: Tensor, sets: Tensor, lam: float, alpha: float, log_eps: float) -> Tensor:
    """Return L of one view whose logits are divided by T. (B, C), (B, C), (B, C) bool -> scalar."""
    log_p = F.log_softmax(at_least_float32(logits), dim=1)
    attraction = F.kl_div(log_p, weights.to(log_p.dtype), reduction="batchmean")
    log_not = torch.log(log_eps - torch.expm1(log_p))  # 1 + 1e-7 − p would round the floor in float32
    repulsion = -torch.where(sets, 0.0, log_not).sum(1).mean()
    return lam * attraction + alpha * repulsion


def select_entries(meets: Tensor, changes: Tensor, priority: Tensor, most: int, eligible: str) -> Tensor:
    """Select entries that meet a threshold; if more than `most` of them change a set, those of smallest priority.

    Drawn from the entries that change a set, or from `eligible="all"` that meet the threshold. (N, C) bool -> same.
    """
    pool = meets if eligible == "all" else meets & changes
    if int((meets & changes).sum()) <= most:
        return pool
    positions = torch.where(pool, priority, torch.inf).flatten().topk(most, largest=False).indices
    return torch.zeros_like(pool).flatten().index_fill(0, positions, True).view_as(pool)


def lower_threshold(delta: float, distances: Tensor, count: int, dec: float) -> float:
    """Lower δ in steps of `dec` until `count` of the distances (M,) exceed it; it ends at 0."""
    if count == 0:
        return delta
    at_most = -1.0  # if there are fewer than `count`
    if count <= len(distances):
        at_most = float(distances.topk(count).values[-1])
    while delta > 0 and at_most <= delta:
        delta = max(delta - dec, 0.0)
    return delta


@register
class FREDIS(Method):
    """Self-training on three views with a complementary loss on non-candidates, for candidate sets that may miss the true
    label: in rounds, labels leave the sets and others join them.

    Network outputs: logits.
    """

    name = "fredis"
    about = About("FREDIS", "PLL", venue="ICML", year=2023, forwards="3", state="N×C sets, weights and posterior")
    views = ("plain", "strong", "strong")

    sets: Tensor  # (N, C) bool, S
    label_weights: Tensor  # (N, C) C
    posterior: Tensor  # (N, C) P
    visited: Tensor  # (N,) bool; P of a sample never visited is uniform: all labels would join
    thresholds: Tensor  # (2,) θ and δ
    changed: Tensor  # (2,) labels that joined and left in this epoch's round

    @dataclass(frozen=True)
    class Config:
        T: float = 1.0  # released parser, like lam, alpha, theta, delta, times; searched per setting from 0.8 to 10
        lam: float = 1.0  # released parser; most suggested settings: 10
        alpha: float = 1.0  # released parser; suggested settings: 0.001 to 10
        theta: float = 1e-6
        delta: float = 1.0
        inc: float = 0.01  # suggested settings: 1e-4 to 0.1; the parser's 1e-6 never moves θ
        dec: float = 1e-3  # suggested settings: 1e-4 to 0.1; parser 1e-6
        change_size: float = 0.011  # N as a share of the training set: 500 of 45,000 in the parser
        times: int = 2  # M; the release cuts it to an integer
        update_interval: float = 0.04  # between rounds; suggested settings: 10 of 250 epochs
        warmup: float = 0.5  # with fixed sets; released parser: 250 + 250 epochs
        log_eps: float = 1e-7  # released: ε of the complementary loss
        # Released "all": of too many, it draws among all entries that meet the threshold, changed or not.
        eligible: Literal["changing", "all"] = "changing"

        def __post_init__(self) -> None:
            if self.T <= 0 or self.dec <= 0 or self.log_eps <= 0:
                raise ValueError(f"fredis: T, dec and log_eps are above 0, got {self.T}, {self.dec}, {self.log_eps}.")
            if self.times < 0 or self.change_size < 0:
                raise ValueError(f"fredis: times and change_size are 0 or more, got {self.times}, {self.change_size}.")

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.network = Classifier(task)
        self.register_buffer("sets", task.candidates.bool().clone())
        self.register_buffer("label_weights", uniform_confidence(task.candidates))
        self.register_buffer("posterior", torch.full_like(self.label_weights, 1 / task.num_classes))
        self.register_buffer("visited", torch.zeros(task.num_samples, dtype=torch.bool))
        self.register_buffer("thresholds", torch.tensor([config.theta, config.delta], dtype=torch.float64))
        self.register_buffer("changed", torch.zeros(2, dtype=torch.int64))

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        config, weights, sets = self.config, batch.rows(self.label_weights), batch.rows(self.sets)
        # One pass per view: batch-norm statistics are each view's own.
        logits = torch.stack([at_least_float32(self.network(view)) for view in batch.views]) / config.T
        losses = [view_loss(z, weights, sets, config.lam, config.alpha, config.log_eps) for z in logits]
        return Step(torch.stack(losses).sum(), carry=logits.detach())

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        # The refined sets, not batch.candidates: with those, labels that left would come back.
        batch.store(self.label_weights, candidate_softmax(step.carry.mean(0), batch.rows(self.sets)))
        batch.store(self.posterior, torch.softmax(step.carry[0], dim=1))
        batch.store(self.visited, torch.ones_like(batch.index, dtype=torch.bool))

    @torch.no_grad()
    def on_epoch_end(self, clock: Clock, data: TrainingData) -> None:
        self.changed.zero_()
        interval = max(1, clock.epochs_of(self.config.update_interval))
        if clock.epoch >= clock.epochs_of(self.config.warmup) and clock.epoch % interval == 0:
            self.refine()

    def refine(self) -> None:
        """Refine once, over the samples visited so far: new sets, weights on them, the next thresholds."""
        config, rows = self.config, self.visited.nonzero().squeeze(1)
        sets, posterior = self.sets[rows], self.posterior[rows]
        joins_first, leaves_first = (priority[rows] for priority in self.draw_priorities())
        theta, delta = self.thresholds.tolist()
        most = max(1, round(config.change_size * len(rows)))  # N
        distance = posterior.amax(1, keepdim=True) - posterior
        close = distance < theta
        joiners = select_entries(close, ~sets, joins_first, most, config.eligible)
        join_count = min(int((close & ~sets).sum()), most)  # a
        delta = lower_threshold(delta, distance[sets], join_count * config.times, config.dec)
        leavers = select_entries(distance > delta, sets, leaves_first, most * config.times, config.eligible)
        new_sets = (sets | joiners) & ~leavers
        new_sets = torch.where(new_sets.any(1, keepdim=True), new_sets, sets)  # no set is emptied
        changes = torch.stack(((new_sets & ~sets).sum(), (sets & ~new_sets).sum()))
        if theta < THETA_END and delta > DELTA_END and int(changes.sum()) < most:
            theta, delta = theta + config.inc, delta - config.dec
        self.sets[rows] = new_sets
        self.label_weights[rows] = purified_weights(posterior, new_sets)
        self.thresholds.copy_(torch.tensor([theta, delta], dtype=torch.float64))
        self.changed.copy_(changes)

    def draw_priorities(self) -> tuple[Tensor, Tensor]:
        """Draw random numbers (N, C) for joining and for leaving: of too many, the smallest are taken."""
        return torch.rand_like(self.posterior), torch.rand_like(self.posterior)

    def predict(self, images: Tensor) -> Tensor:
        return self.network(images)

    def confidence(self) -> Tensor:
        return self.label_weights

    def candidate_sets(self) -> Tensor:
        return self.sets

    def diagnostics(self) -> dict[str, float]:
        theta, delta = self.thresholds.tolist()
        join_count, leave_count = self.changed.tolist()
        return {"theta": theta, "delta": delta, "joined": join_count, "left": leave_count}
