"""ALIM — adjusting the label importance mechanism, for candidate sets that may miss the true label.

M. Xu, Z. Lian, L. Feng, B. Liu, J. Tao: ALIM: Adjusting Label Importance Mechanism for Noisy Partial Label Learning,
NeurIPS 2023 (arXiv 2301.12077). The paper was not available; where it is not known, the released code decides.

PiCO whose candidate mask Y becomes a weight, W = Y + λ(1 − Y): non-candidates count with a prior λ. λ = 0 trusts the
sets, λ = 1 ignores them.

    c_i = softmax(q_i·μ/τ)                                                     prototype scores over all classes
    ỹ_i = arg max_j W_ij p_ij                                                  label for prototypes and positives
    s_i ← φ s_i + (1−φ) t_i,  t_i = onehot(arg max W_i∘c_i) or W_i∘c_i / Σ_j W_ij c_ij        soft targets
    L   = CE(p, s) + 0.5 L_cont + CE(p(x̃), s̃),  x̃ = l x + (1−l) x_π,  s̃ = l s + (1−l) s_π   mix-up, l ≥ 1/2
    m_i = max_{j∈S_i} c_ij / max_{j∉S_i} c_ij,  λ ← min(1, the η-quantile of m)               after every epoch

η is the share of sets without the true label. The release gets it as a setting (`noise_rate`), which reveals something of the
data. The default estimates it: η̂ is the share of the epoch's samples for which the classifier and the prototypes both
rank a class outside the set first. This estimate is ours. It needs both because the share by
prototypes alone would make λ the first margin above 1, whatever the data. With η = 0, λ stays 0 and ALIM is PiCO with
mix-up and without warm-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from methods.base import About, Batch, Clock, Method, Step, Task, TrainingData
from methods.blocks import (
    ContrastiveClassifier,
    at_least_float32,
    draw_mixing,
    ema_update,
    full_precision,
    mix,
    ring_write,
    soft_cross_entropy,
    uniform_confidence,
    unit,
)
from methods.pico import EMPTY, phi_at, positive_pairs, supervised_contrastive_loss, updated_prototypes
from methods.registry import register

TINY = 1e-9  # released: added to the denominator of the margin
UNSEEN = -1.0  # margin of a sample not visited in this epoch


def weighted_logits(logits: Tensor, candidates: Tensor, prior: Tensor | float) -> Tensor:
    """Return the logits of W∘softmax: log λ is added outside the sets, −∞ if λ = 0. (B, C), (B, C) bool -> (B, C)."""
    log_prior = torch.as_tensor(prior, device=logits.device).log().to(logits.dtype)
    return torch.where(candidates.bool(), logits, logits + log_prior)


def pulled_targets(targets: Tensor, logits: Tensor, phi: float, normalise: str) -> Tensor:
    """φ s + (1−φ) t, t from the weighted prototype logits. (B, C), (B, C) -> (B, C)."""
    if normalise == "onehot":
        pull = F.one_hot(logits.argmax(1), logits.shape[1]).to(targets.dtype)
    else:
        pull = torch.softmax(logits, dim=1).to(targets.dtype)
    return phi * targets + (1 - phi) * pull


def margins_of(scores: Tensor, candidates: Tensor) -> Tensor:
    """m: best candidate's over best other's score; a full set has no other. (B, C), (B, C) bool -> (B,)."""
    inside = torch.where(candidates, scores, 0.0).amax(1)
    return inside / (TINY + torch.where(candidates, 0.0, scores).amax(1))


def points_outside(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return whether the most probable class is not a candidate. (B, C), (B, C) bool -> (B,) bool."""
    return ~candidates.gather(1, logits.argmax(1, keepdim=True)).squeeze(1)


def prior_at(margins: Tensor, noise_rate: float, cap: bool) -> Tensor:
    """λ: entry ⌊Mη⌋ of the sorted margins, at most the last; 0 if η = 0. (M,) -> ()."""
    if noise_rate <= 0:
        return margins.new_zeros(())
    prior = margins.kthvalue(min(int(len(margins) * noise_rate), len(margins) - 1) + 1).values
    return prior.clamp(max=1.0) if cap else prior


@register
class ALIM(Method):
    """PiCO with mix-up for candidate sets that may miss the true label: labels outside the set count with an adaptive
    weight, which follows the estimated share of such sets.

    Network outputs: logits, embedding; of a momentum network: embedding.
    """

    name = "alim"
    about = About(
        "ALIM",
        "PLL",
        venue="NeurIPS",
        year=2023,
        forwards="3",
        state="N×C targets, prototypes, queue, key network, N margins and doubts",
    )
    views = ("weak", "strong")

    queue: Tensor  # (M, d) past keys, unit rows
    queue_labels: Tensor  # (M,) their labels
    queue_pointer: Tensor  # () next row to overwrite
    prototypes: Tensor  # (C, d) unit rows, zero for a class never seen
    targets: Tensor  # (N, C) s
    margins: Tensor  # (N,) m of the running epoch
    doubted: Tensor  # (N,) bool, whether classifier and prototypes point outside the set, of the running epoch
    prior: Tensor  # () λ
    noise: Tensor  # () η that gave it

    @dataclass(frozen=True)
    class Config:
        noise_rate: float | None = None  # η; None: estimated here; released: the true rate, an oracle
        prior_start: float = 0.08  # λ = 0 until then; released: 80 of 1000 epochs; CUB-200: 0.3
        target_start: float = 0.0  # uniform targets until then; released; CUB-200: 0.145, 29 of 200 epochs
        contrast_weight: float = 0.5  # released, like the next nine
        mixup_weight: float = 1.0
        mixup_alpha: float = 4.0
        temperature: float = 0.07  # of L_cont
        tau: float = 0.07  # of the prototype scores
        gamma: float = 0.99  # prototype momentum
        key_momentum: float = 0.999
        phi_start: float = 0.95
        phi_end: float = 0.8
        queue_size: int = 8192  # released for CUB-200: 4096
        embed_dim: int = 128
        cap: bool = True  # λ ≤ 1: off in the released parser, on in every released command
        # Paper (from memory) against released code.
        normalise: Literal["onehot", "scale"] = "onehot"  # both are released; "scale" without the paper's exponent 1/K
        prior_fixed: float | None = None  # a constant λ from prior_start on, as one released command has it
        phi_first: float | None = None  # paper: ramp from epoch 0 on; released 0.99 in epoch 0
        denominator_eps: float = 0.0  # as PiCO; released 1e-12

        def __post_init__(self) -> None:
            if self.noise_rate is not None and not 0 <= self.noise_rate <= 1:
                raise ValueError(f"alim: noise_rate is a share of the training set, 0 to 1, got {self.noise_rate}.")
            if self.prior_fixed is not None and self.prior_fixed < 0:
                raise ValueError(f"alim: prior_fixed is a weight, 0 or more, got {self.prior_fixed}.")

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.query = ContrastiveClassifier(task, config.embed_dim)
        self.key = ContrastiveClassifier(task, config.embed_dim).requires_grad_(False)
        self.key.load_state_dict(self.query.state_dict())
        self.register_buffer("queue", unit(torch.randn(config.queue_size, config.embed_dim)))
        self.register_buffer("queue_labels", torch.full((config.queue_size,), EMPTY))
        self.register_buffer("queue_pointer", torch.tensor(0))
        self.register_buffer("prototypes", torch.zeros(task.num_classes, config.embed_dim))
        self.register_buffer("targets", uniform_confidence(task.candidates))
        self.register_buffer("margins", torch.full((task.num_samples,), UNSEEN))
        self.register_buffer("doubted", torch.zeros(task.num_samples, dtype=torch.bool))
        self.register_buffer("prior", torch.zeros((), dtype=torch.float64))
        self.register_buffer("noise", torch.zeros((), dtype=torch.float64))

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        weak, strong = batch.views
        logits, queries = self.query.both(weak)
        # The key network follows the weights of the last optimiser step, before it is used.
        ema_update(self.key, self.query, self.config.key_momentum)
        with torch.no_grad():
            keys = self.key.embed(strong)
        mixing = self.draw_mixing(weak)
        mixed = self.query(mix(weak, mixing[1], mixing[0]))
        with full_precision(logits):
            return self.losses(at_least_float32(logits), unit(queries), unit(keys), mixed, mixing, batch, clock)

    def draw_mixing(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Draw l ≥ 1/2, (), and partners π, (B,). The release's partners come from a second pass over the data."""
        share, partners = draw_mixing(images, self.config.mixup_alpha)
        return torch.maximum(share, 1 - share), partners

    def losses(
        self,
        logits: Tensor,
        queries: Tensor,
        keys: Tensor,
        mixed: Tensor,
        mixing: tuple[Tensor, Tensor],
        batch: Batch,
        clock: Clock,
    ) -> Step:
        """Return the step for the networks' output: logits, those of mixed images (B, C), unit queries and keys (B, d)."""
        config, candidates = self.config, batch.candidates.bool()
        with torch.no_grad():
            anchors = queries.detach()
            nearness = anchors @ self.prototypes.T / config.tau
            margins = margins_of(torch.softmax(nearness, dim=1), candidates)
            doubted = points_outside(logits, candidates) & points_outside(nearness, candidates)
            labels = weighted_logits(logits, candidates, self.prior).argmax(1)
            prototypes = updated_prototypes(self.prototypes, anchors, labels, config.gamma, "batch")
            targets = batch.rows(self.targets)
            if clock.epoch >= clock.epochs_of(config.target_start):
                pull = weighted_logits(nearness, candidates, self.prior)
                targets = pulled_targets(targets, pull, self.phi(clock), config.normalise)
        classification = soft_cross_entropy(logits, targets)
        contrast = supervised_contrastive_loss(
            queries,
            keys,
            self.queue,
            positive_pairs(labels, self.queue_labels),
            config.temperature,
            config.denominator_eps,
        )
        mixup = soft_cross_entropy(mixed, mix(targets, mixing[1], mixing[0]))
        return Step(
            classification + config.contrast_weight * contrast + config.mixup_weight * mixup,
            logs={"classification": classification.detach(), "contrast": contrast.detach(), "mixup": mixup.detach()},
            carry=(keys, labels, prototypes, targets, margins, doubted),
        )

    def phi(self, clock: Clock) -> float:
        config = self.config
        if clock.epoch == 0 and config.phi_first is not None:
            return config.phi_first
        return phi_at(clock.epoch, clock.epochs, config.phi_start, config.phi_end)

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        keys, labels, prototypes, targets, margins, doubted = step.carry
        ring_write(self.queue_pointer, (self.queue, keys), (self.queue_labels, labels))
        self.prototypes.copy_(prototypes)
        batch.store(self.targets, targets)
        batch.store(self.margins, margins)
        batch.store(self.doubted, doubted)

    @torch.no_grad()
    def on_epoch_end(self, clock: Clock, data: TrainingData) -> None:
        if clock.epoch + 1 >= clock.epochs_of(self.config.prior_start):
            self.renew_prior()
        self.margins.fill_(UNSEEN)

    def renew_prior(self) -> None:
        """Set λ of the next epoch from the samples visited in this one."""
        config, visits = self.config, self.margins >= 0
        if config.prior_fixed is not None:
            self.prior.fill_(config.prior_fixed)
            return
        if not visits.any():  # an epoch without a step
            return
        noise = float(self.doubted[visits].double().mean()) if config.noise_rate is None else config.noise_rate
        self.noise.fill_(noise)
        self.prior.copy_(prior_at(self.margins[visits], noise, config.cap))

    def predict(self, images: Tensor) -> Tensor:
        return self.query(images)

    def confidence(self) -> Tensor:
        return self.targets

    def diagnostics(self) -> dict[str, float]:
        return {"prior": float(self.prior), "noise_rate": float(self.noise)}
