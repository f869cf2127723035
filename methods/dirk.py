"""DIRK — distilling reliable knowledge.

D.-D. Wu, D.-B. Wang, M.-L. Zhang: Distilling Reliable Knowledge for Instance-Dependent Partial Label Learning,
AAAI 2024.

An averaged teacher labels the distillation view. Its probabilities p = softmax(v) are rectified so that no
non-candidate stands above a candidate while the proportions inside and outside the candidate set S stay: with p̂, n̂ the
parts of p inside and outside of S scaled to sum 1,

    R_j = a p̂_j for j ∈ S, (1 − a) n̂_j otherwise, a = max n̂ / (max n̂ + min_{j∈S} p_j)                           (R)
    L_teach = −(1/B) Σ_i Σ_j R_ij log softmax(z_i)_j

A contrastive term is added with weight λ, whose columns are the student batch, the teacher batch and a queue of earlier
teacher results: first MoCo, then (W) with positives that share a candidate and the arg max of R, weighted by the
similarity of R:

    L_cont = −(1/B) Σ_i Σ_j w_ij log softmax_j(⟨u_i, A_j⟩/τ), w_ij = softmax over positives of cos(R_i, R_j)/τ_d     (W)

The repository calls λ = 0 "DIRK" and λ = 1, its default, "DIRK-REF". Here `dirk` has λ = 1 and `dirk-plain` λ = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from methods.base import About, Batch, Clock, Method, Step, Task, ViewName
from methods.blocks import (
    Classifier,
    ContrastiveClassifier,
    at_least_float32,
    contrastive_loss,
    ema_update,
    full_precision,
    masked_softmax,
    moco_loss,
    ring_write,
    soft_cross_entropy,
    unit,
)
from methods.registry import register


@torch.no_grad()
def rectify(logits: Tensor, candidates: Tensor) -> Tensor:
    """Eq. (R) in log space: a = sigmoid(x), so nothing is divided and nothing underflows. (B, C), (B, C) -> (B, C)."""
    v, inside = at_least_float32(logits), candidates.bool()
    sides = torch.where(torch.stack((inside, ~inside)), v, -torch.inf)  # (2, B, C)
    ours, rest = torch.softmax(sides, 2)  # NaN without non-candidates, where it is not used
    worst_inside = torch.where(inside, torch.log_softmax(v, 1), torch.inf).amin(1, keepdim=True)
    x = rest.amax(1, keepdim=True).log() - worst_inside  # log of max n̂ over min p
    x = torch.where(inside.all(1, keepdim=True), torch.inf, x)  # no non-candidate: a = 1
    return torch.where(inside, ours, rest) * torch.sigmoid(torch.where(inside, x, -x))


def positive_pairs(confidence: Tensor, candidates: Tensor, all_confidence: Tensor, all_candidates: Tensor) -> Tensor:
    """Return pairs that share a candidate and the arg max of confidence. (B, C) twice, (M, C) twice -> (B, M) bool."""
    overlap = candidates.to(confidence.dtype) @ all_candidates.to(confidence.dtype).T > 0
    return overlap & (confidence.argmax(1)[:, None] == all_confidence.argmax(1))


def weighted_contrastive_loss(
    students: Tensor,
    keys: Tensor,
    confidence: Tensor,
    candidates: Tensor,
    queue: tuple[Tensor, Tensor, Tensor],
    feat_temp: float,
    dist_temp: float,
    base_temp: float,
    log_eps: float = 0.0,
) -> Tensor:
    """Eq. (W); unit features. (B, d), (B, d), (B, C), (B, C), queue (K, d), (K, C), (K, C) -> scalar.

    Student features get gradient as anchors and as columns. Queue rows without a candidate are empty slots.
    """
    queue_features, queue_confidence, queue_candidates = queue
    all_confidence = torch.cat((confidence, confidence, queue_confidence))
    all_candidates = torch.cat((candidates, candidates, queue_candidates.to(candidates.dtype)))
    with full_precision(students):
        directions = unit(all_confidence)
        alike = directions[: len(students)] @ directions.T / dist_temp
        positives = positive_pairs(confidence, candidates, all_confidence, all_candidates)
        positives.fill_diagonal_(False)  # a student is not its own positive
        weights = masked_softmax(alike, positives)  # sums to 1: the own key is always a positive
        others = torch.cat((keys, queue_features))
        loss = contrastive_loss(students, others, weights, feat_temp, all_candidates.any(1), log_eps)
    return feat_temp / base_temp * loss


@register
class DIRK(Method):
    """An averaged teacher labels one view. Its probabilities are rectified so that no non-candidate exceeds a candidate; they
    are the targets of the student and weight the positives of a contrastive loss.

    Network outputs: logits, embedding.
    """

    name = "dirk"
    about = About("DIRK", "IDPLL", venue="AAAI", year=2024, forwards="4", state="teacher, queue of 4096")
    views: ClassVar[tuple[ViewName, ...]] = ("weak", "strong", "distill")

    @dataclass(frozen=True)
    class Config:
        weight: float = 1.0  # λ; default of the released code, which calls 0 "DIRK" and 1 "DIRK-REF"
        momentum: float = 0.99  # of the teacher; released code
        queue_length: int = 4096  # K; released code
        feat_temp: float = 0.07  # τ; released code
        dist_temp: float = 0.4  # τ_d; released code
        base_temp: float = 0.07  # (W) is scaled by τ/base_temp; released code
        log_eps: float = 0.0  # released: 1e-12 inside the logarithm of (W)
        contrastive_start: int = 1  # first epoch of (W); released code (a queue that is not full is harmless)
        projection_length: int = 128  # released code
        teacher_init: Literal["copy", "independent"] = "copy"  # released: independent
        always_three_views: bool = False  # released: with λ = 0 the contrastive passes are still made, without effect

    queue_features: Tensor  # (K, d) past teacher features, unit rows
    queue_confidence: Tensor  # (K, C) their R
    queue_candidates: Tensor  # (K, C) bool, empty where a row was never written
    queue_position: Tensor  # () next row to overwrite

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.contrastive = config.weight != 0 or config.always_three_views
        if self.contrastive and len(self.views) == 1:
            raise ValueError(f"{self.name} uses the distillation view only; use dirk for a contrastive term.")
        self.student = self._network(task)
        self.teacher = self._network(task).requires_grad_(False)
        if config.teacher_init == "copy":
            self.teacher.load_state_dict(self.student.state_dict())
        if self.contrastive:
            rows, classes = config.queue_length, task.num_classes
            self.register_buffer("queue_features", torch.zeros(rows, config.projection_length))
            self.register_buffer("queue_confidence", torch.zeros(rows, classes))
            self.register_buffer("queue_candidates", torch.zeros(rows, classes, dtype=torch.bool))
            self.register_buffer("queue_position", torch.zeros((), dtype=torch.int64))

    def _network(self, task: Task) -> Any:
        return ContrastiveClassifier(task, self.config.projection_length) if self.contrastive else Classifier(task)

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        distill = batch.views[-1]
        # Each view passes batch norm on its own, the contrastive one first, as in the released code.
        features = self._features(batch) if self.contrastive else None
        with torch.no_grad():
            confidence = rectify(self.teacher(distill), batch.candidates)
        loss = soft_cross_entropy(self.student(distill), confidence)
        logs = {"teach": loss.detach()}
        if features is not None and self.config.weight != 0:
            contrast = self._contrast(*features, confidence, batch.candidates, clock)
            loss, logs["contrast"] = loss + self.config.weight * contrast, contrast.detach()
        return Step(loss, logs, carry=(features, confidence))

    def _features(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return student features of the strong view and teacher features of the weak one, (B, d) of unit length."""
        weak, strong, _ = batch.views
        with torch.no_grad():
            keys = unit(self.teacher.embed(weak))
        return unit(self.student.embed(strong)), keys

    def _contrast(self, students: Tensor, keys: Tensor, confidence: Tensor, candidates: Tensor, clock: Clock) -> Tensor:
        config = self.config
        if clock.epoch < config.contrastive_start:
            filled_slots = self.queue_candidates.any(1)
            with full_precision(students):
                return moco_loss(students, keys, self.queue_features, config.feat_temp, filled_slots)
        queue = (self.queue_features, self.queue_confidence, self.queue_candidates)
        scales = (config.feat_temp, config.dist_temp, config.base_temp, config.log_eps)
        return weighted_contrastive_loss(students, keys, confidence, candidates, queue, *scales)

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        features, confidence = step.carry
        if features is not None:
            ring_write(
                self.queue_position,
                (self.queue_features, features[1]),
                (self.queue_confidence, confidence),
                (self.queue_candidates, batch.candidates),
            )
        ema_update(self.teacher, self.student, self.config.momentum)

    def predict(self, images: Tensor) -> Tensor:
        return self.student(images)


@register
class DIRKPlain(DIRK):
    """Distillation and rectification alone, on one view."""

    name = "dirk-plain"
    about = About("DIRK-plain", "control", venue="AAAI", year=2024, forwards="2", state="teacher")
    views = ("distill",)

    @dataclass(frozen=True)
    class Config(DIRK.Config):
        weight: float = 0.0
