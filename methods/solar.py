"""SoLar — Sinkhorn label refinery, for long-tailed classes.

H. Wang, M. Xia, Y. Li, Y. Mao, L. Feng, G. Chen, J. Zhao: SoLar: Sinkhorn Label Refinery for Imbalanced Partial-Label
Learning, NeurIPS 2022 (arXiv 2209.10365). The paper was not available; the released code decides.

Pseudo-labels T solve an optimal-transport problem: the predictions M = p∘Y of the batch, and of a queue of past ones,
are scaled so that every sample has mass one and the classes get the shares of an estimated prior r:

    P = M^λ,  u_k = r_k / Σ_i c_i P_ik,  c_i = (1/n) / Σ_k u_k P_ik  in turn,  T_ik = n c_i P_ik u_k

Trusted are, of the samples with arg max T_i = k, the ⌈B r_k ρ⌉ of smallest loss b_i = CE(p_i, T_i), at least one, and all
with Σ_j T_ij p_ij > τ. With G the trusted, and a_i = CE(p_i, C_i) for PRODEN's weights C,

    L = η (mean_G b + mean_G CE(p^strong, T) + mean_G CE(p(x̃), T̃)) + (1 − η) mean_{not G} a,   x̃, T̃ mixed within G,

and mean a alone in the first epoch. C_i ← p_i on the candidates after every step; η and ρ rise in a warm-up.
After every epoch r ← γ r̂ + (1−γ) r, r̂ the shares of the most probable candidates on plain images. On balanced data r
stays near uniform and acts as a balance constraint.

The third forward pass always has B images, the trusted ones in turn until they fill it: so no shape depends on values,
and batch norm sees trusted images only. The release forwards each of them once.
"""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from methods.base import About, Batch, Clock, Method, Step, Task, TrainingData
from methods.blocks import (
    Classifier,
    at_least_float32,
    candidate_softmax,
    draw_mixing,
    full_precision,
    linear_ramp,
    masked_argmax,
    uniform_confidence,
)
from methods.nepll import masked_mean
from methods.registry import register

LEAST = 1e-20  # a candidate's probability in M is at least this: no row or column vanishes by rounding
MOST = 1e100  # scaling of a class at most, and its inverse at least: shares that no labels have drive it without end
RELAXATION = 1e-5  # released


def sinkhorn(
    prediction: Tensor,
    class_prior: Tensor,
    used: Tensor,
    power: float = 3.0,
    iterations: int = 50,
    absent_class: Literal["relax", "skip"] = "relax",
) -> tuple[Tensor, Tensor]:
    """Return T of the `used` rows, and whether a class has no candidate among them. (N, K), (K,), (N,) bool -> (N, K), ().

    With such a class the transport does not exist. "relax" admits all classes with a small weight and then cuts what
    lies outside the sets, so that rows sum to less than 1; "skip" leaves the class out.
    """
    support = (prediction > 0) & used[:, None]
    absent = ~support.any(0).all()
    weights = prediction.double()
    if absent_class == "relax":
        weights = torch.where(absent & ~support, RELAXATION, weights)
    plan = weights**power * used[:, None]
    share = used / used.sum().double()
    rows = share
    for _ in range(iterations):
        mass = (rows @ plan).clamp(min=sys.float_info.min)
        columns = (class_prior.double() / mass).clamp(1 / MOST, MOST)
        rows = torch.where(used, share / (plan @ columns), 0.0)
    return rows[:, None] * plan * columns * used.sum() * support, absent


def trusted_rows(labels: Tensor, losses: Tensor, agreement: Tensor, quota: Tensor, tau: float) -> Tensor:
    """G: within the quota (K,) of its class by loss (B,), or with Σ T p (B,) above τ. T (B, K) -> (B,) bool."""
    order = losses.argsort(stable=True)
    members = F.one_hot(labels.argmax(1)[order], labels.shape[1])
    places = (members.cumsum(0) * members).sum(1)  # 1 for the smallest loss of a class
    within = places <= (members * quota.clamp(min=1)).sum(1)
    return torch.zeros_like(within).index_copy(0, order, within) | (agreement > tau)


def trusted_in_turn(trust: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Return batch positions of the g trusted rows, repeated up to B, and of their partners. (B,) -> (B,).

    Partners are a permutation of the chosen: those of the smallest `order` (B,) come first.
    """
    count = trust.sum()
    places = torch.arange(len(trust), device=trust.device)
    positions = trust.argsort(descending=True, stable=True)
    partner_order = torch.where(places < count, order, order.max() + 1).argsort(stable=True)
    turn = places % count.clamp(min=1)
    return positions[turn], positions[partner_order[turn]]


def updated_prior(class_prior: Tensor, logits: Tensor, candidates: Tensor, gamma: float) -> Tensor:
    """r ← γ r̂ + (1−γ) r. (K,), (N, K), (N, K) bool -> (K,)."""
    best = F.one_hot(masked_argmax(logits, candidates), len(class_prior))
    return gamma * best.double().mean(0) + (1 - gamma) * class_prior


def cross_entropies(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of each row. (B, K), (B, K) -> (B,)."""
    logits = at_least_float32(logits)
    return F.cross_entropy(logits, targets.to(logits.dtype), reduction="none")


@register
class SoLar(Method):
    """For long-tailed classes: pseudo-labels from optimal transport match an estimated class prior, and the samples with the
    smallest losses are trusted first.

    Network outputs: logits.
    """

    name = "solar"
    about = About(
        "SoLar", "PLL", venue="NeurIPS", year=2022, forwards="3", state="N×C weights and sets, queue, class prior"
    )
    views = ("weak", "strong")

    label_weights: Tensor  # (N, K) C
    candidates: Tensor  # (N, K) bool
    queue: Tensor  # (Q, K) M of past batches, newest first; its last row is zero until it is full
    class_prior: Tensor  # (K,) r
    relaxed: Tensor  # () steps of this epoch in which a class had no candidate

    @dataclass(frozen=True)
    class Config:
        queue_size: int = 16384  # released: 64 batches of 256; CUB-200: 1024
        power: float = 3.0  # λ; released, like the next five
        iterations: int = 50  # the released test for convergence never fires
        tau: float = 0.99
        eta: float = 0.9
        rho_start: float = 0.2
        rho_end: float = 0.5  # released: CIFAR-100, CUB-200, SUN397; CIFAR-10: 0.6; parser: 0.8
        warmup: float = 0.05  # rise of η and ρ; released: 50 of 1000 epochs; CUB-200: 0.1
        mixup_alpha: float = 4.0  # released
        gamma1: float = 0.05  # released: pace of r while it is estimated (CIFAR-10 0.1) …
        gamma2: float = 0.01  # … and afterwards
        # share of training that only estimates r before the network starts anew, 0.02 for long tails; released: 20 to 100
        # epochs before the 200 to 1000
        estimate: float = 0.0
        absent_class: Literal["relax", "skip"] = "relax"  # released

        def __post_init__(self) -> None:
            if self.iterations < 1 or self.queue_size < 0:
                raise ValueError(f"solar: iterations and queue_size count, got {self.iterations}, {self.queue_size}.")
            if not 0 <= self.estimate < 1:
                raise ValueError(f"solar: estimate is a share of training, 0 to below 1, got {self.estimate}.")

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.steps_per_epoch = task.steps_per_epoch
        self.network = Classifier(task)
        # What the second stage starts from.
        self.initial = copy.deepcopy(self.network).requires_grad_(False) if config.estimate > 0 else None
        self.register_buffer("label_weights", uniform_confidence(task.candidates))
        self.register_buffer("candidates", task.candidates.bool().clone())
        self.register_buffer("queue", torch.zeros(config.queue_size, task.num_classes))
        self.register_buffer("class_prior", torch.full((task.num_classes,), 1 / task.num_classes, dtype=torch.float64))
        self.register_buffer("relaxed", torch.zeros((), dtype=torch.int64))

    def stage_epoch(self, clock: Clock) -> int:
        """Return the epochs since the stage began."""
        restart = clock.epochs_of(self.config.estimate)
        return clock.epoch - restart if clock.epoch >= restart else clock.epoch

    def ramp(self, clock: Clock, start: float, end: float) -> float:
        """Move from `start` in a stage's first epoch to `end` after the warm-up."""
        return start + linear_ramp(self.stage_epoch(clock), self.config.warmup * clock.epochs, end - start)

    def eta_rho(self, clock: Clock) -> tuple[float, float]:
        config = self.config
        return self.ramp(clock, 0.0, config.eta), self.ramp(clock, config.rho_start, config.rho_end)

    @torch.no_grad()
    def on_epoch_start(self, clock: Clock, data: TrainingData) -> None:
        self.relaxed.zero_()
        if self.initial is not None and clock.epoch > 0 and self.stage_epoch(clock) == 0:
            self.network.load_state_dict(self.initial.state_dict())
            self.label_weights.copy_(uniform_confidence(self.candidates))
            self.queue.zero_()
            data.reset_momentum()

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        weak, strong = batch.views
        logits, strong_logits = self.network(weak), self.network(strong)
        with full_precision(logits):
            labels, trust, carry = self.refine(at_least_float32(logits.detach()), batch, clock)
        weighted_losses = cross_entropies(logits, batch.rows(self.label_weights))  # a
        if self.stage_epoch(clock) == 0:
            return Step(weighted_losses.mean(), carry=carry)
        share, order = self.draw_mixing(weak)
        rows, partners = trusted_in_turn(trust, order)
        mixed = self.network(share * weak[rows] + (1 - share) * weak[partners])
        targets = share * labels[rows] + (1 - share) * labels[partners]
        once = torch.arange(len(rows), device=rows.device) < trust.sum()
        terms = {
            "sinkhorn": masked_mean(cross_entropies(logits, labels), trust),
            "mix": masked_mean(cross_entropies(mixed, targets), once),
            "consistency": masked_mean(cross_entropies(strong_logits, labels), trust),
        }
        rest = masked_mean(weighted_losses, ~trust)
        eta, _ = self.eta_rho(clock)
        loss = eta * torch.stack(list(terms.values())).sum() + (1 - eta) * rest
        logs = {name: value.detach() for name, value in (terms | {"rest": rest}).items()}
        return Step(loss, logs | {"trusted": trust.float().mean()}, carry)

    @torch.no_grad()
    def refine(self, logits: Tensor, batch: Batch, clock: Clock) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """Return T (B, K) and G (B,); and for `after_step` C, M (B, K) and whether a class had no candidate."""
        config, count, candidates = self.config, len(logits), batch.candidates.bool()
        p = torch.softmax(logits, dim=1)
        prediction = torch.where(candidates, p.clamp(min=LEAST), 0.0)
        full = self.queue[-1:].any().expand(len(self.queue))
        plan, absent = sinkhorn(
            torch.cat((self.queue, prediction)),
            self.class_prior,
            torch.cat((full, torch.ones_like(batch.index, dtype=torch.bool))),
            config.power,
            config.iterations,
            config.absent_class,
        )
        labels = plan[-count:].to(p.dtype)
        _, rho = self.eta_rho(clock)
        quota = (count * rho * self.class_prior).ceil()
        trust = trusted_rows(labels, cross_entropies(logits, labels), (labels * p).sum(1), quota, config.tau)
        return labels, trust, (candidate_softmax(logits, candidates), prediction, absent)

    def draw_mixing(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Draw l ≥ 1/2, (), and an order of the batch, (B,)."""
        share, order = draw_mixing(images, self.config.mixup_alpha)
        return torch.maximum(share, 1 - share), order

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        weights, prediction, absent = step.carry
        batch.store(self.label_weights, weights)
        self.queue.copy_(torch.cat((prediction.to(self.queue.dtype), self.queue))[: len(self.queue)])
        self.relaxed += absent

    @torch.no_grad()
    def on_epoch_end(self, clock: Clock, data: TrainingData) -> None:
        in_estimation = clock.epoch < clock.epochs_of(self.config.estimate)
        self.eval()
        logits = data.infer(lambda images: at_least_float32(self.network(images)))
        self.train()
        gamma = self.config.gamma1 if in_estimation else self.config.gamma2
        self.class_prior.copy_(updated_prior(self.class_prior, logits, self.candidates, gamma))

    def predict(self, images: Tensor) -> Tensor:
        return self.network(images)

    def confidence(self) -> Tensor:
        return self.label_weights

    def diagnostics(self) -> dict[str, float]:
        return {
            "relaxed_steps": int(self.relaxed) / self.steps_per_epoch,
            "smallest_share": float(self.class_prior.min()),
            "largest_share": float(self.class_prior.max()),
        }
