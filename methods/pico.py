"""PiCO — contrastive label disambiguation.

H. Wang, R. Xiao, Y. Li, L. Feng, G. Niu, G. Chen, J. Zhao: PiCO: Contrastive Label Disambiguation for Partial Label
Learning, ICLR 2022 (arXiv 2201.08984 v2).

    ỹ_i = arg max_{j∈S_i} f_j(x_i)                                                          pseudo-label
    L_cont = (1/B) Σ_i −(1/|P_i|) Σ_{t∈P_i} log exp(q_i·A_t/τ) / Σ_{t'≠i} exp(q_i·A_t'/τ)   contrastive loss
             A = [queries; keys; queue],  P_i = the other rows of A that carry the label ỹ_i
    s_i ← φ s_i + (1−φ) onehot(arg max_{j∈S_i} q_i·μ_j)                                     Eq. 6, soft targets
    μ_c ← normalise(γ μ_c + (1−γ) q_i)  for ỹ_i = c                                         Eq. 7, prototypes
    L = −(1/B) Σ_i Σ_j s_ij log softmax(f(x_i))_j + λ L_cont

The classifier chooses positives and prototypes; the prototypes choose the soft targets s of the classifier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from methods.base import About, Added, Batch, Clock, Method, Step, Task
from methods.blocks import (
    ContrastiveClassifier,
    at_least_float32,
    contrastive_loss,
    ema_update,
    full_precision,
    masked_argmax,
    moco_loss,
    ring_write,
    soft_cross_entropy,
    uniform_confidence,
    unit,
)
from methods.registry import register

EMPTY = -1  # label of a queue row that was never written: equals no class


def positive_pairs(labels: Tensor, queue_labels: Tensor) -> Tensor:
    """P: which rows of [queries; keys; queue] share the anchor's label, itself left out. -> (B, 2B+M) bool."""
    return (labels[:, None] == torch.cat((labels, labels, queue_labels))).fill_diagonal_(False)


def supervised_contrastive_loss(
    queries: Tensor, keys: Tensor, queue: Tensor, positives: Tensor, tau: float, denominator_eps: float = 0.0
) -> Tensor:
    """L_cont; queries get gradient as anchors and as contrast. (B, d), (B, d), (M, d), (B, 2B+M) -> scalar."""
    weights = positives.to(queries.dtype)
    weights = weights / weights.sum(1, keepdim=True)
    return contrastive_loss(queries, torch.cat((keys, queue)), weights, tau, eps=denominator_eps)


def updated_prototypes(prototypes: Tensor, queries: Tensor, labels: Tensor, gamma: float, normalise: str) -> Tensor:
    """Eq. 7 for the samples of a batch in their order. (C, d), (B, d), (B,) -> (C, d).

    `normalise="batch"` scales rows once at the end, which has a closed form: a sample followed by n others of its class
    enters with weight (1−γ) γ^n. With "sample" every scaling needs the one before, hence the loop.
    """
    if normalise == "sample":
        rows = prototypes.clone()
        for at, query in zip(labels.split(1), queries.split(1), strict=True):
            rows.index_copy_(0, at, unit(gamma * rows.index_select(0, at) + (1 - gamma) * query))
        return rows
    members = labels == torch.arange(len(prototypes), device=labels.device)[:, None]  # (C, B)
    places = members.cumsum(1).to(queries.dtype)  # whole numbers: a GPU adds floats in no fixed order
    counts = places[:, -1:]
    pulls = torch.pow(gamma, counts - places) * members
    return unit(torch.pow(gamma, counts) * prototypes + (1 - gamma) * pulls @ queries)


def nearest_candidate(queries: Tensor, prototypes: Tensor, candidates: Tensor) -> Tensor:
    """arg max_{j∈S} q·μ_j; a class never seen has the zero prototype. (B, d), (C, d), (B, C) -> (B,)."""
    return masked_argmax(queries @ prototypes.T, candidates)


def moved_targets(targets: Tensor, nearest: Tensor, phi: float) -> Tensor:
    """Eq. 6: φ s + (1−φ) onehot(nearest). (B, C), (B,) -> (B, C)."""
    return phi * targets + (1 - phi) * F.one_hot(nearest, targets.shape[1]).to(targets.dtype)


def phi_at(epoch: int, epochs: int, start: float, end: float, lag: int = 0, before_first: float = 0.99) -> float:
    """Move linearly from `start` towards `end`; with a lag, epochs before the ramp began use `before_first`."""
    return before_first if epoch < lag else start + (end - start) * (epoch - lag) / epochs


@register
class PiCO(Method):
    """The classifier's pseudo-labels choose the positives of a contrastive loss and update class prototypes. The candidate
    whose prototype is nearest to the embedding moves the soft targets of the classifier.

    Network outputs: logits, embedding; of a momentum network: embedding.
    """

    name = "pico"
    about = About(
        "PiCO", "PLL", venue="ICLR", year=2022, forwards="2", state="N×C targets, prototypes, queue, key network"
    )
    views = ("weak", "strong")

    @dataclass(frozen=True)
    class Config:
        contrast_weight: float = 0.5  # λ; paper and release
        tau: float = 0.07  # paper and release
        gamma: float = 0.99  # prototype momentum; paper and release
        key_momentum: float = 0.999  # paper and release
        phi_start: float = 0.95  # paper and release
        phi_end: float = 0.8  # paper and release
        queue_size: int = 8192  # paper and release; CUB-200: 4096, fewer than its training images
        embed_dim: int = 128  # paper and release
        warmup: float = 0.125  # paper (App. B.1): 100 of 800 epochs at about ten candidates per image
        # Paper against released code. Defaults: what published comparisons ran, unless it is an oversight.
        warmup_contrast: Literal["moco", "none"] = "moco"  # released; App. B.1: none
        prototype_normalise: Literal["batch", "sample"] = "batch"  # released; Eq. 7: after every sample
        target_prototypes: Literal["before", "after"] = "before"  # released: as they are before the batch's update
        phi_lag: int = 0  # paper; released 1: an epoch uses the value of the one before
        phi_before_first: float = 0.99  # released value of epoch 0, where the lag leaves φ without one
        denominator_eps: float = 0.0  # paper; released 1e-12
        queue_init: Literal["unit", "columns"] = "unit"  # released "columns": scaled along the wrong axis
        projection: Added[bool] = True  # paper and release; False: the features embed, as some tables were run

    queue: Tensor  # (M, d) past keys, unit rows
    queue_labels: Tensor  # (M,) their pseudo-labels
    queue_pointer: Tensor  # () next row to overwrite
    prototypes: Tensor  # (C, d) unit rows, zero for a class never seen
    targets: Tensor  # (N, C) s

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.query = ContrastiveClassifier(task, config.embed_dim, config.projection)
        self.key = ContrastiveClassifier(task, config.embed_dim, config.projection).requires_grad_(False)
        self.key.load_state_dict(self.query.state_dict())
        queue = torch.randn(config.queue_size, self.query.embed_dim)
        self.register_buffer("queue", unit(queue) if config.queue_init == "unit" else unit(queue.T).T.contiguous())
        self.register_buffer("queue_labels", torch.full((config.queue_size,), EMPTY))
        self.register_buffer("queue_pointer", torch.tensor(0))
        self.register_buffer("prototypes", torch.zeros(task.num_classes, self.query.embed_dim))
        self.register_buffer("targets", uniform_confidence(task.candidates))

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        weak, strong = batch.views
        logits, queries = self.query.both(weak)
        # The key network follows the weights of the last optimiser step, before it is used.
        ema_update(self.key, self.query, self.config.key_momentum)
        with torch.no_grad():
            keys = self.key.embed(strong)
        with full_precision(logits):
            return self.losses(at_least_float32(logits), unit(queries), unit(keys), batch, clock)

    def losses(self, logits: Tensor, queries: Tensor, keys: Tensor, batch: Batch, clock: Clock) -> Step:
        """Return the step for the networks' output: logits (B, C), unit queries and keys (B, d). State stays as it is."""
        config = self.config
        warm = clock.epoch < clock.warmup_epochs(config.warmup)  # targets stay until there are prototypes
        with torch.no_grad():
            labels = masked_argmax(logits, batch.candidates)
            anchors = queries.detach()
            prototypes = updated_prototypes(self.prototypes, anchors, labels, config.gamma, config.prototype_normalise)
            targets = batch.rows(self.targets)
            if not warm:
                guides = self.prototypes if config.target_prototypes == "before" else prototypes
                nearest = nearest_candidate(anchors, guides, batch.candidates)
                targets = moved_targets(targets, nearest, self.phi(clock))
        classification = soft_cross_entropy(logits, targets)
        contrast = self.contrast(queries, keys, labels, warm)
        return Step(
            classification + config.contrast_weight * contrast,
            logs={"classification": classification.detach(), "contrast": contrast.detach()},
            carry=(keys, labels, prototypes, targets),
        )

    def contrast(self, queries: Tensor, keys: Tensor, labels: Tensor, warm: bool) -> Tensor:
        """Return L_cont, against the queue as it is before this batch enters it."""
        config = self.config
        if not warm:
            positives = positive_pairs(labels, self.queue_labels)
            return supervised_contrastive_loss(queries, keys, self.queue, positives, config.tau, config.denominator_eps)
        if config.warmup_contrast == "moco":
            return moco_loss(queries, keys, self.queue, config.tau)
        return queries.new_zeros(())

    def phi(self, clock: Clock) -> float:
        config = self.config
        return phi_at(
            clock.epoch, clock.epochs, config.phi_start, config.phi_end, config.phi_lag, config.phi_before_first
        )

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        keys, labels, prototypes, targets = step.carry
        ring_write(self.queue_pointer, (self.queue, keys), (self.queue_labels, labels))
        self.prototypes.copy_(prototypes)
        batch.store(self.targets, targets)

    def predict(self, images: Tensor) -> Tensor:
        return self.query(images)

    def confidence(self) -> Tensor:
        return self.targets
