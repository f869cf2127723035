"""PRODEN — progressive identification of true labels.

J. Lv, M. Xu, L. Feng, G. Niu, X. Geng, M. Sugiyama: Progressive Identification of True Labels for Partial-Label
Learning, ICML 2020.

The smallest loss over the candidates is relaxed to a weighted sum over them,

    L = −(1/B) Σ_i Σ_j C_ij log p_ij,

whose weights start uniform on the candidate set and are replaced at every visit by the classifier's own probabilities
restricted to the candidates, C_ij ← p_ij / Σ_{k∈S_i} p_ik, taken from the very forward pass that gave the loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from methods.base import About, Batch, Clock, Method, Step, Task
from methods.blocks import Classifier, candidate_softmax, masked_argmax, soft_cross_entropy, uniform_confidence
from methods.registry import register


def updated_confidence(
    logits: Tensor,
    candidates: Tensor,
    confidence: Tensor,
    mask_from: Literal["candidates", "confidence"] = "candidates",
    sudden: bool = False,
) -> Tensor:
    """Return the new confidence of a batch: softmax over the candidates, or one-hot at the best of them. All (B, C)."""
    mask = candidates.bool() if mask_from == "candidates" else confidence > 0
    if sudden:
        return F.one_hot(masked_argmax(logits, mask), logits.shape[1]).to(confidence.dtype)
    return candidate_softmax(logits, mask)


@register
class Proden(Method):
    """Cross-entropy with label weights that start uniform on the candidates. At every visit they are replaced by the
    classifier's own probabilities, restricted to the candidates.

    Network outputs: logits.
    """

    name = "proden"
    about = About("PRODEN", "PLL", venue="ICML", year=2020, forwards="1", state="N×C confidence")
    views = ("weak",)

    @dataclass(frozen=True)
    class Config:
        # the other values are ablations of the paper
        update: Literal["progressive", "never", "sudden", "iterative"] = "progressive"
        iterative_every: float = 0.2  # paper: weights recomputed every 100 of 500 epochs (update="iterative" only)
        # Paper: the fixed candidate set. Released code: stored weight > 0, so an underflowed candidate never returns.
        mask_from: Literal["candidates", "confidence"] = "candidates"

    label_confidence: Tensor  # (N, C) C

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.network = Classifier(task)
        self.register_buffer("label_confidence", uniform_confidence(task.candidates))

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        logits, confidence = self.network(batch.views[0]), batch.rows(self.label_confidence)
        return Step(soft_cross_entropy(logits, confidence), carry=(logits.detach(), confidence))

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        config = self.config
        if config.update == "never":
            return
        if config.update == "iterative" and (clock.epoch + 1) % max(1, clock.epochs_of(config.iterative_every)):
            return
        logits, confidence = step.carry
        sudden = config.update == "sudden"
        new_confidence = updated_confidence(logits, batch.candidates, confidence, config.mask_from, sudden)
        batch.store(self.label_confidence, new_confidence)

    def predict(self, images: Tensor) -> Tensor:
        return self.network(images)

    def confidence(self) -> Tensor:
        return self.label_confidence
