"""CR-DPLL — consistency regularisation on the candidates, plain supervision on the non-candidates.

D.-D. Wu, D.-B. Wang, M.-L. Zhang: Revisiting Consistency Regularization for Deep Partial Label Learning, ICML 2022.

With g = softmax of the logits, K views (one weak, the others strong) and a conformal label distribution p per image:

    L_sup = −(1/B) Σ_b Σ_{k∉S} log(1 − g_k(x⁰))                           weak view only (Eq. 2)
    Ψ     = (1/B) Σ_b Σ_z KL( p ‖ g(xᶻ) )                                 all views, p constant (Eq. 4)
    p_k   ∝ (Π_z g_k(xᶻ))^{1/K} on S, 0 elsewhere; uniform at the start   (Eqs. 6, 7)
    L     = L_sup + w(e)·Ψ,  w(e) = min(e/T', 1)·λ                        (Eqs. 8, 9)

The soft-max normalisers cancel in Eq. 7: p is the softmax over S of the mean logits, which cannot underflow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from methods.base import About, Batch, Clock, Method, Step, Task
from methods.blocks import (
    Classifier,
    at_least_float32,
    candidate_softmax,
    linear_ramp,
    masked_logsumexp,
    uniform_confidence,
)
from methods.registry import register


def log_complement(logits: Tensor) -> Tensor:
    """Return log(1 − softmax), exact where a probability rounds to 1, with bounded gradients. (B, C) -> (B, C), C ≥ 2.

    Only the largest entry can exceed ½; its complement is the log-sum of the others, the rest is plain log1p.
    """
    log_p = F.log_softmax(at_least_float32(logits), dim=1)
    largest = F.one_hot(log_p.argmax(1), log_p.shape[1]).bool()
    others = log_p.masked_fill(largest, -math.inf)  # also keeps log1p away from −1 in the backward pass
    return torch.where(largest, masked_logsumexp(log_p, ~largest).unsqueeze(1), torch.log1p(-others.exp()))


def supervised_loss(logits: Tensor, candidates: Tensor, eps: float = 0.0) -> Tensor:
    """Eq. 2: −log(1 + eps − g_k) summed over the non-candidates, mean over the batch. (B, C), (B, C) -> scalar."""
    if eps > 0:
        log_rest = torch.log(1.0 + eps - torch.softmax(at_least_float32(logits), dim=1))
    else:
        log_rest = log_complement(logits)
    return -log_rest.masked_fill(candidates.bool(), 0.0).sum(1).mean()


def conformal_target(logits: Tensor, candidates: Tensor) -> Tensor:
    """Eq. 7: normalised geometric mean of the views' predictions on the candidates. (K, B, C), (B, C) -> (B, C)."""
    return candidate_softmax(at_least_float32(logits).mean(0), candidates)


def consistency_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Eq. 4: KL(target ‖ prediction) of each view, mean over the batch, target constant. (K, B, C), (B, C) -> (K,)."""
    log_p = F.log_softmax(at_least_float32(logits), dim=2)
    target = target.detach().to(log_p.dtype)
    return (torch.xlogy(target, target) - target * log_p).sum(2).mean(1)


def online_consistency_loss(logits: Tensor, candidates: Tensor) -> Tensor:
    """Eqs. 4 and 7 at once, the target taken from the same logits; value and gradient as with a constant target.

    (K, B, C), (B, C) -> scalar, summed over the views.
    """
    mean_log_p = F.log_softmax(at_least_float32(logits), dim=2).mean(0)
    return -logits.shape[0] * masked_logsumexp(mean_log_p, candidates).mean()


def consistency_weight(epoch: int, ramp_epochs: int, max_weight: float, first_epoch_number: int = 0) -> float:
    """Eq. 9: linear ramp over whole epochs."""
    return linear_ramp(epoch + first_epoch_number, ramp_epochs, max_weight)


@register
class CrDpll(Method):
    """All views of an image are pulled towards one label distribution, the normalised geometric mean of their predictions on
    the candidates. Non-candidates are trained as wrong labels.

    Network outputs: logits.
    """

    name = "cr-dpll"
    about = About("CR-DPLL", "PLL", venue="ICML", year=2022, forwards="3", state="N×C distribution")
    views = ("weak", "strong", "strong")

    @dataclass(frozen=True)
    class Config:
        max_weight: float = 1.0  # λ; paper
        ramp_fraction: float = 0.5  # T'; paper: 100 of 200 epochs
        target_order: Literal["stored", "online"] = "stored"  # released: that of the previous visit; paper: "online"
        first_epoch_number: int = 0  # released code: weight 0 in the first epoch; the paper counts from 1
        sup_eps: float = 0.0  # paper; the released 1e-7 loses the gradient where g ≈ 1 off the candidates

    target: Tensor  # p (N, C)

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.network = Classifier(task)
        self.register_buffer("target", uniform_confidence(task.candidates))

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        config = self.config
        # One pass per view, in order: batch norm sees each view's own statistics.
        logits = torch.stack([self.network(view) for view in batch.views])
        supervised = supervised_loss(logits[0], batch.candidates, config.sup_eps)
        if config.target_order == "online":
            consistency = online_consistency_loss(logits, batch.candidates)
        else:
            consistency = consistency_loss(logits, batch.rows(self.target)).sum()
        ramp = clock.epochs_of(config.ramp_fraction)
        weight = consistency_weight(clock.epoch, ramp, config.max_weight, config.first_epoch_number)
        logs = {"supervised": supervised.detach(), "consistency": consistency.detach()}
        return Step(supervised + weight * consistency, logs, carry=logits.detach())

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        batch.store(self.target, conformal_target(step.carry, batch.candidates))

    def predict(self, images: Tensor) -> Tensor:
        return self.network(images)

    def confidence(self) -> Tensor:
        return self.target
