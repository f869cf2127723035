"""PaPi — a prototypical classifier, guided by a linear one.

S. Xia, J. Lv, N. Xu, G. Niu, X. Geng: Towards Effective Visual Representations for Partial-Label Learning, CVPR 2023
(arXiv 2305.06080).

    s_i ← φ s_i + (1−φ) softmax of o_i over S_i                       soft targets, before the loss; o logits, weak view
    L_cls = −(1/B) Σ_i Σ_j s_ij log softmax(o_i)_j                    linear classifier, weak view
    x̃ = λ x + (1−λ) x_π,  λ ~ Beta(a, a)                              mixed images; same λ and π for both views
    p̃ = softmax(ṽ·μ/τ)                                                prototypical classifier of the embedding ṽ of x̃
    L_al = Σ_views λ KL(s ‖ p̃) + (1−λ) KL(s_π ‖ p̃)                    alignment; s and μ constant
    μ_c ← γ μ_c + (1−γ) v_i  for arg max_{j∈S_i} o_ij = c             both unmixed views, rows then scaled to length 1
    L = L_cls + ψ L_al

PiCO reversed: the linear classifier finds the labels itself and trains the prototypes and, through the shared
encoder, the representation. φ and γ fall linearly over training, ψ rises from 0 over its first epochs.

Of the paper, the abstract and the overview figure were available; where the rest is known from memory only, defaults
follow the released code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from methods.base import About, Batch, Clock, Method, Step, Task
from methods.blocks import (
    ContrastiveClassifier,
    at_least_float32,
    candidate_softmax,
    draw_mixing,
    full_precision,
    linear_ramp,
    masked_argmax,
    mix,
    soft_cross_entropy,
    uniform_confidence,
    unit,
)
from methods.pico import phi_at, updated_prototypes
from methods.registry import register

Alignment = Literal["two_targets", "mixed_target"]


def moved_targets(targets: Tensor, logits: Tensor, candidates: Tensor, phi: float) -> Tensor:
    """φ s + (1−φ) softmax of the logits over the candidates. All (B, C)."""
    return phi * targets + (1 - phi) * candidate_softmax(logits, candidates).to(targets.dtype)


def pseudo_labels(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return the most probable candidates of both views, weak rows first. (2B, C), (B, C) -> (2B,)."""
    return masked_argmax(logits, candidates.repeat(2, 1))


def alignment_loss(
    embeddings: Tensor,
    prototypes: Tensor,
    targets: Tensor,
    partners: Tensor,
    coefficient: Tensor,
    tau: float,
    alignment: Alignment = "two_targets",
) -> Tensor:
    """L_al of the mixed views' embeddings, weak rows first. (2B, d), (C, d), (B, C), (B,), () -> scalar.

    Either form is the cross-entropy with the mixed target less an entropy without gradient: the two samples' own, mixed,
    or that of the mixture. The sum over the two views is twice the mean over their 2B rows.
    """
    mixture = mix(targets, partners, coefficient)
    cross_entropy = soft_cross_entropy(embeddings @ prototypes.T / tau, mixture.repeat(2, 1))
    if alignment == "two_targets":
        entropy = mix(torch.special.entr(targets).sum(1), partners, coefficient)
    else:
        entropy = torch.special.entr(mixture).sum(1)
    return 2 * (cross_entropy - entropy.mean())


@register
class PaPi(Method):
    """A linear classifier learns soft targets as in self-training. A prototypical classifier of mixed images is aligned with
    these targets, which shapes the shared representation.

    Network outputs: logits, embedding.
    """

    name = "papi"
    about = About("PaPi", "PLL", venue="CVPR", year=2023, forwards="4", state="N×C targets, C×d prototypes")
    views = ("weak", "strong")

    @dataclass(frozen=True)
    class Config:
        tau: float = 0.3  # released for CIFAR; instance-dependent CIFAR-100: 1.0; Mini-ImageNet: 0.1
        mixup_alpha: float = 8.0  # a; released for CIFAR; instance-dependent CIFAR-100 and Mini-ImageNet: 5.0
        alignment_weight: float = 1.0  # top of ψ; released, like the next five
        rampup: float = 0.02  # of ψ; released: 10 of 500 epochs; at least one, in which ψ is 0
        phi_start: float = 0.95
        phi_end: float = 0.8
        gamma_start: float = 0.9
        gamma_end: float = 0.5
        embed_dim: int = 128  # d; released
        # Paper, as remembered, against released code. Defaults: released.
        ramp_lag: int = 1  # epochs by which φ and γ are delayed; paper: 0
        before_first: float = 0.99  # φ and γ of the epochs that the lag leaves without a value
        prototype_normalise: Literal["batch", "sample"] = "batch"  # paper: after every sample
        alignment: Alignment = "two_targets"  # paper: KL to the mixed target; another value, the same gradient

        def __post_init__(self) -> None:
            if self.tau <= 0 or self.mixup_alpha <= 0:
                raise ValueError(f"papi: tau and mixup_alpha must be positive, got {self.tau} and {self.mixup_alpha}.")

    targets: Tensor  # (N, C) s
    prototypes: Tensor  # (C, d) μ: unit rows, zero for a class never predicted

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.network = ContrastiveClassifier(task, config.embed_dim)
        self.register_buffer("targets", uniform_confidence(task.candidates))
        self.register_buffer("prototypes", torch.zeros(task.num_classes, config.embed_dim))

    def phi(self, clock: Clock) -> float:
        c = self.config
        return phi_at(clock.epoch, clock.epochs, c.phi_start, c.phi_end, c.ramp_lag, c.before_first)

    def gamma(self, clock: Clock) -> float:
        c = self.config
        return phi_at(clock.epoch, clock.epochs, c.gamma_start, c.gamma_end, c.ramp_lag, c.before_first)

    def psi(self, clock: Clock) -> float:
        length = max(1, clock.epochs_of(self.config.rampup))  # epoch 0 makes the first prototypes
        return linear_ramp(clock.epoch, length, self.config.alignment_weight)

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        weak, strong = batch.views
        coefficient, partners = self.draw_mix(weak)
        # Each pass has batch norm of its own; the order is that of the release.
        logits_weak, weak_features = self.network.both(weak)
        with torch.no_grad():
            logits_strong, strong_features = self.network.both(strong)
        mixed = [self.network.embed(mix(view, partners, coefficient)) for view in batch.views]
        with full_precision(weak):
            logits = at_least_float32(torch.cat((logits_weak, logits_strong)))
            embeddings = unit(torch.cat((weak_features.detach(), strong_features)))
            return self.losses(logits, embeddings, unit(torch.cat(mixed)), partners, coefficient, batch, clock)

    def draw_mix(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Draw λ, (), and partners π, (B,)."""
        return draw_mixing(images, self.config.mixup_alpha)

    def losses(
        self,
        logits: Tensor,
        embeddings: Tensor,
        mixed: Tensor,
        partners: Tensor,
        coefficient: Tensor,
        batch: Batch,
        clock: Clock,
    ) -> Step:
        """Return the step for the network's output on both views, weak rows first, and their mixtures. State stays.

        Logits (2B, C), unit embeddings (2B, d) and mixed (2B, d). The strong view's logits and all unmixed embeddings
        move the prototypes alone.
        """
        config, weak = self.config, logits[: len(batch.index)]
        with torch.no_grad():
            targets = moved_targets(batch.rows(self.targets), weak, batch.candidates, self.phi(clock))
            labels = pseudo_labels(logits, batch.candidates)
            prototypes = updated_prototypes(
                self.prototypes, embeddings, labels, self.gamma(clock), config.prototype_normalise
            )
        classification = soft_cross_entropy(weak, targets)
        alignment = alignment_loss(mixed, self.prototypes, targets, partners, coefficient, config.tau, config.alignment)
        return Step(
            classification + self.psi(clock) * alignment,
            logs={"classification": classification.detach(), "alignment": alignment.detach()},
            carry=(targets, prototypes),
        )

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        targets, prototypes = step.carry
        batch.store(self.targets, targets)
        self.prototypes.copy_(prototypes)

    def predict(self, images: Tensor) -> Tensor:
        return self.network(images)

    def predictions(self, images: Tensor) -> dict[str, Tensor]:
        embeddings = unit(self.network.embed(images))
        with full_precision(embeddings):
            return {"prototypes": embeddings @ self.prototypes.T}

    def confidence(self) -> Tensor:
        return self.targets
