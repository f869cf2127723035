"""LWS — leveraged weighted loss with the sigmoid binary loss (and LWC, its cross-entropy form).

H. Wen, J. Cui, H. Hang, J. Liu, Y. Wang, Z. Lin: Leveraged Weighted Loss for Partial Label Learning, ICML 2021.

Every class is a binary problem; candidates should score high, the others low, and the second part carries a leverage β:

    L_i = Σ_{j∈S_i} w_ij ψ(z_ij) + β Σ_{j∉S_i} w_ij ψ(−z_ij),   ψ(t) = σ(−t),

with weights that are the softmax probabilities normalised on each side of the candidate set separately, refreshed by a
second forward pass after the optimiser step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from methods.base import About, Batch, Clock, Method, Step, Task
from methods.blocks import Classifier, at_least_float32, masked_softmax, second_forward
from methods.registry import register


def initial_weights(candidates: Tensor, init: Literal["all", "sides"], dtype: torch.dtype = torch.float32) -> Tensor:
    """Return 1/C everywhere ("all"), or 1/|S| inside and 1/(C−|S|) outside ("sides"). (N, C)."""
    inside = candidates.to(dtype)
    if init == "all":
        return torch.full_like(inside, 1.0 / inside.shape[1])
    size = inside.sum(1, keepdim=True)
    return inside / size + (1 - inside) / (inside.shape[1] - size).clamp_min(1)


def updated_weights(logits: Tensor, candidates: Tensor, eps: float) -> Tensor:
    """Return p_ij over its side's mass + C·eps; eps = 0 makes each side a softmax of its own. (B, C)."""
    logits = at_least_float32(logits)
    inside = candidates.bool()
    if eps == 0:
        return masked_softmax(logits, inside) + masked_softmax(logits, ~inside)
    p = torch.softmax(logits, dim=1)
    ours = torch.where(inside, p, 0.0)
    mass = torch.where(inside, ours.sum(1, keepdim=True), (p - ours).sum(1, keepdim=True))  # 1 − P would cancel
    return p / (mass + logits.shape[1] * eps)


def leveraged_terms(
    logits: Tensor,
    candidates: Tensor,
    weights: Tensor,
    lw: float = 1.0,
    lw0: float = 1.0,
    binary_loss: Literal["sigmoid", "cross_entropy"] = "sigmoid",
    eps: float = 0.0,
    zero_gradient_at_zero: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the candidate and the leveraged non-candidate term, batch means; weights constant. All (B, C)."""
    logits = at_least_float32(logits)
    inside, weights = candidates.bool(), weights.detach().to(logits.dtype)
    if binary_loss == "sigmoid":
        if zero_gradient_at_zero:
            logits = torch.where(logits == 0, logits.detach(), logits)
        losses = torch.sigmoid(torch.where(inside, -logits, logits))
    else:
        log_p = F.log_softmax(logits, dim=1)
        if eps > 0:
            probability = log_p.exp()
            losses = -torch.where(inside, probability + eps, 1 - probability + eps).log()
        else:
            losses = -torch.where(inside, log_p, log_one_minus(log_p))
    return (
        (losses * (weights * inside)).sum() * (lw0 / len(losses)),
        (losses * (weights * ~inside)).sum() * (lw / len(losses)),
    )


def log_one_minus(log_p: Tensor) -> Tensor:
    """Return log(1 − p) from log p, accurate near both ends; p = 1 is clamped just below."""
    log_p = log_p.clamp_max(-torch.finfo(log_p.dtype).eps)
    near_one = log_p > -0.6931471805599453
    # Each branch gets an argument that is safe for it, so that the unused one has no infinite gradient.
    return torch.where(
        near_one,
        torch.log(-torch.expm1(torch.where(near_one, log_p, -1.0))),
        torch.log1p(-torch.exp(torch.where(near_one, -1.0, log_p))),
    )


@register
class LWS(Method):
    """One-versus-rest losses: candidates should score high, the other classes low. Softmax probabilities weight the classes,
    normalised inside and outside the candidate set separately.

    Network outputs: logits.
    """

    name = "lws"
    about = About("LWS", "PLL", venue="ICML", year=2021, forwards="2", state="N×C weights")
    views = ("weak",)

    @dataclass(frozen=True)
    class Config:
        lw: float = 1.0  # β; paper: 1 or 2; released runs: mostly 1 (default of the parser: 0, off)
        lw0: float = 1.0  # released code and paper
        binary_loss: Literal["sigmoid", "cross_entropy"] = "sigmoid"  # "cross_entropy" is LWC
        eps: float = 1e-8  # released code; 0 is the paper's form
        init: Literal["all", "sides"] = "all"  # released code; paper: "sides"
        zero_gradient_at_zero: bool = False  # released code: no gradient where a logit is exactly 0
        second_forward_bn: Literal["update", "frozen"] = "update"  # released code

    weights: Tensor  # (N, C) w
    candidate_mask: Tensor  # (N, C) bool

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.network = Classifier(task)
        self.register_buffer("weights", initial_weights(task.candidates, config.init))
        self.register_buffer("candidate_mask", task.candidates.clone())

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        c = self.config
        candidate, other = leveraged_terms(
            self.network(batch.views[0]),
            batch.candidates,
            batch.rows(self.weights),
            c.lw,
            c.lw0,
            c.binary_loss,
            c.eps,
            c.zero_gradient_at_zero,
        )
        return Step(candidate + other, logs={"candidate": candidate.detach(), "non_candidate": other.detach()})

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        logits = second_forward(self.network, batch.views[0], self.config.second_forward_bn)
        batch.store(self.weights, updated_weights(logits, batch.candidates, self.config.eps))

    def predict(self, images: Tensor) -> Tensor:
        return self.network(images)

    def confidence(self) -> Tensor:
        return self.weights * self.candidate_mask
