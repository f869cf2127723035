"""ABS-MAE and ABS-GCE: bounded losses, averaged over the candidates.

J. Lv, B. Liu, L. Feng, N. Xu, M. Xu, B. An, G. Niu, X. Geng, M. Sugiyama: On the Robustness of Average Losses for
Partial-Label Learning, TPAMI 2023 (online; arXiv 2106.06152).

    L = (1/B) Σ_i (1/|S_i|) Σ_{j∈S_i} ℓ(p_i, j),   p = softmax of the logits
    MAE   ℓ(p, j) = ‖p − e_j‖₁ = 2 (1 − p_j)
    GCE   ℓ(p, j) = (1 − p_j^q) / q,   q in (0, 1]; q = 1 is half of MAE, q → 0 is −log p_j, the floor `average`

All candidates count alike and nothing is stored. A bounded loss pulls by p_j ([j=k] − p_k): a candidate on which the
network puts nothing is left alone, where the logarithm would pull hardest. The price: with C classes the first
gradients are about C times (GCE: C^q times) smaller than those of the cross-entropy. On a hundred classes MAE may
hardly train; this is a property of the method, and only a larger learning rate helps.

No code of the authors was found. Equations and q follow PLENCH, a third-party benchmark; statements about the paper are
from memory. PLENCH expands MAE to (B, C, C) and takes powers of the softmax; the closed form and exp(q log p) agree
with it and stay finite where probabilities underflow.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods.base import About, Batch, Clock, Method, Step, Task
from methods.blocks import Classifier, at_least_float32, uniform_confidence
from methods.registry import register


def average_gce(logits: Tensor, candidates: Tensor, q: float) -> Tensor:
    """Generalised cross-entropy, averaged over the candidates. (B, C), (B, C) -> scalar."""
    powers = torch.exp(q * torch.log_softmax(at_least_float32(logits), dim=1))  # p^q
    return (uniform_confidence(candidates, powers.dtype) * (1 - powers)).sum(1).mean() / q


def average_mae(logits: Tensor, candidates: Tensor) -> Tensor:
    """Distance to the one-hot label, averaged over the candidates. (B, C), (B, C) -> scalar."""
    return 2 * average_gce(logits, candidates, q=1.0)


@register
class AbsMAE(Method):
    """Mean absolute error, averaged over the candidates. The loss is bounded: candidates without probability have no
    gradient, and with many classes training starts slowly.

    Network outputs: logits.
    """

    name = "abs-mae"
    about = About("ABS-MAE", "PLL", venue="TPAMI", year=2023, forwards="1", state="none")
    views = ("weak",)

    def __init__(self, config: Method.Config, task: Task) -> None:
        super().__init__(config, task)
        self.network = Classifier(task)

    def loss(self, logits: Tensor, candidates: Tensor) -> Tensor:
        return average_mae(logits, candidates)

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        return Step(self.loss(self.network(batch.views[0]), batch.candidates))

    def predict(self, images: Tensor) -> Tensor:
        return self.network(images)


@register
class AbsGCE(AbsMAE):
    """Generalised cross-entropy, averaged over the candidates: between mean absolute error (q = 1) and the logarithm
    (q → 0).

    Network outputs: logits.
    """

    name = "abs-gce"
    about = About("ABS-GCE", "PLL", venue="TPAMI", year=2023, forwards="1", state="none")

    @dataclass(frozen=True)
    class Config:
        q: float = 0.7  # PLENCH; the GCE paper's value (from memory)

        def __post_init__(self) -> None:
            if not 0 < self.q <= 1:
                raise ValueError(f"abs-gce: q must be above 0 and at most 1, got {self.q}; for 0 use average.")

    def loss(self, logits: Tensor, candidates: Tensor) -> Tensor:
        return average_gce(logits, candidates, self.config.q)
