"""ABLE — ambiguity-induced contrastive learning.

S. Xia, J. Lv, N. Xu, X. Geng: Ambiguity-Induced Contrastive Learning for Instance-Dependent Partial Label Learning,
IJCAI 2022, pp. 3615–3621.

Two views of each of B images; T label confidences before the step, ℓ logits of the weak view, z unit embeddings.

    ŷ_j = arg max_{c∈S_j} ℓ_jc                                            the class that j is an example of
    W_ab = T_{i,ŷ_j} / n_{ŷ_j} if ŷ_j ∈ S_i else 0                        views a of image i, b ≠ a of image j
    L_con = −(τ/τ₀) (1/2B) Σ_a Σ_{b≠a} W_ab log exp(z_a·z_b/τ) / Σ_{k≠a} exp(z_a·z_k/τ)
    L = −(1/B) Σ_i Σ_c T_ic log softmax(ℓ_i)_c + λ L_con;  then T_i ← softmax of ℓ_i over S_i

Wrong candidates are kept: for each candidate class, the images assigned to it are positives, weighted by confidence.
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
    contrastive_loss,
    full_precision,
    masked_argmax,
    soft_cross_entropy,
    uniform_confidence,
    unit,
)
from methods.registry import register


def anchor_confidence(table: Tensor, index: Tensor, lookup: str) -> Tensor:
    """Return the rows of T that weight the positives of a batch. (N, C), (B,) -> (B, C)."""
    return table[index] if lookup == "sample" else table[: len(index)]


def positive_weights(assigned: Tensor, candidates: Tensor, confidence: Tensor, positive_norm: str) -> Tensor:
    """W between all views, weak half first: how much b counts as a positive of a. (B,), (B, C), (B, C) -> (2B, 2B).

    A candidate class that no image is assigned to adds nothing, and the others are not rescaled for it.
    """
    same = (assigned[:, None] == assigned).to(confidence.dtype)
    members = same.sum(0)  # n_{ŷ_j} ≥ 1
    if positive_norm == "per_view":  # the positives that there really are: two views each, without the anchor
        members = 2 * members - same
    weights = (confidence * candidates)[:, assigned] / members
    return weights.repeat(2, 2).fill_diagonal_(0.0)


def ambiguity_loss(embeddings: Tensor, weights: Tensor, temperature: float, base_temperature: float) -> Tensor:
    """L_con; embeddings get gradient as anchors and as contrast. (2B, d), (2B, 2B) -> scalar."""
    no_others = embeddings[:0]
    return temperature / base_temperature * contrastive_loss(embeddings, no_others, weights, temperature)


@register
class ABLE(Method):
    """PRODEN's loss plus a contrastive loss on two views. An image is pulled towards the images whose most probable candidate
    is one of its own candidates, weighted by confidence.

    Network outputs: logits, embedding.
    """

    name = "able"
    about = About("ABLE", "IDPLL", venue="IJCAI", year=2022, forwards="2", state="N×C confidence")
    views = ("weak", "strong")

    @dataclass(frozen=True)
    class Config:
        temperature: float = 0.1  # τ; all released commands
        base_temperature: float = 0.07  # τ₀ of the released code; equal to τ it removes the prefactor
        loss_weight: float = 1.0  # λ; all released commands
        embed_dim: int = 128  # length of the embedding; released
        # Whose confidences weigh the positives: the anchor's own (paper), or, as released, those of the training row
        # that has the anchor's position in the batch as its number.
        confidence_lookup: Literal["sample", "batch_position"] = "sample"
        # Released: a class group is divided by its images, though each appears in two views; "per_view" is its mean.
        positive_norm: Literal["per_image", "per_view"] = "per_image"

    table: Tensor  # (N, C) T

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.network = ContrastiveClassifier(task, config.embed_dim)
        self.register_buffer("table", uniform_confidence(task.candidates))

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        logits, embeddings = self.network.both(torch.cat(batch.views))
        with full_precision(logits):
            return self.losses(at_least_float32(logits), unit(embeddings), batch)

    def losses(self, logits: Tensor, embeddings: Tensor, batch: Batch) -> Step:
        """Return the step for the network's output on both views, weak half first: (2B, C) logits, (2B, d) unit rows."""
        config, weak = self.config, logits[: len(batch.index)]
        classification = soft_cross_entropy(weak, batch.rows(self.table))
        with torch.no_grad():
            assigned = masked_argmax(weak, batch.candidates)
            anchors = anchor_confidence(self.table, batch.index, config.confidence_lookup)
            weights = positive_weights(assigned, batch.candidates, anchors, config.positive_norm)
            confidence = candidate_softmax(weak, batch.candidates)
        contrast = ambiguity_loss(embeddings, weights, config.temperature, config.base_temperature)
        return Step(
            classification + config.loss_weight * contrast,
            logs={"classification": classification.detach(), "contrast": contrast.detach()},
            carry=confidence,
        )

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        batch.store(self.table, step.carry)

    def predict(self, images: Tensor) -> Tensor:
        return self.network(images)

    def confidence(self) -> Tensor:
        return self.table
