"""CC — classifier-consistent partial-label learning.

L. Feng, J. Lv, B. Han, M. Xu, G. Niu, X. Geng, B. An, M. Sugiyama: Provably Consistent Partial-Label Learning,
NeurIPS 2020.

Under the uniform set-generation model p(S|x) = Σ_{j∈S} p(y=j|x) / (2^{C−1} − 1). Maximum likelihood of the observed
sets gives, up to a constant, minus the log of the probability mass on the candidates:

    L = −(1/B) Σ_i log Σ_{j∈S_i} p_ij.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from methods.base import About, Batch, Clock, Method, Step, Task
from methods.blocks import Classifier, at_least_float32, masked_logsumexp
from methods.registry import register


def candidate_likelihood_loss(logits: Tensor, candidates: Tensor, include_constant: bool = False) -> Tensor:
    """Return the loss as a difference of log-sum-exps, finite when the candidate mass underflows. (B, C) -> scalar."""
    logits = at_least_float32(logits)
    loss = (torch.logsumexp(logits, dim=1) - masked_logsumexp(logits, candidates)).mean()
    if include_constant:  # log(2^(C−1) − 1) without forming the power, which overflows float32 for C > 128
        power = logits.shape[1] - 1
        loss = loss + power * math.log(2.0) + math.log1p(-(2.0**-power))
    return loss


@register
class CC(Method):
    """Maximum likelihood of the candidate sets: minus the logarithm of the probability mass on the candidates.

    Network outputs: logits.
    """

    name = "cc"
    about = About("CC", "PLL", venue="NeurIPS", year=2020, forwards="1", state="none")
    views = ("weak",)

    @dataclass(frozen=True)
    class Config:
        include_constant: bool = False  # released code; paper: True; the gradient is the same

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.network = Classifier(task)

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        logits = self.network(batch.views[0])
        return Step(candidate_likelihood_loss(logits, batch.candidates, self.config.include_constant))

    def predict(self, images: Tensor) -> Tensor:
        return self.network(images)
