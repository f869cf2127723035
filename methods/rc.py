"""RC — risk-consistent partial-label learning.

L. Feng, J. Lv, B. Han, M. Xu, G. Niu, X. Geng, B. An, M. Sugiyama: Provably Consistent Partial-Label Learning,
NeurIPS 2020.

If candidate sets are drawn uniformly from all sets that hold the true label, the classification risk equals

    R = ½ E[ Σ_j w_j(x, S) · loss(f(x), j) ],   w_j = p(y=j|x) / Σ_{k∈S} p(y=k|x),

with the posterior replaced by the network's softmax on the candidates. In practice this is PRODEN's loss with weights
from a second forward pass *after* the optimiser step, in training mode (batch norm is updated twice per step).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from methods.base import About, Batch, Clock, Method, Step, Task
from methods.blocks import Classifier, candidate_softmax, second_forward, soft_cross_entropy, uniform_confidence
from methods.registry import register


def risk(logits: Tensor, confidence: Tensor, risk_scale: float = 1.0) -> Tensor:
    """−(scale/B) Σ C log p, confidence constant. (B, C), (B, C) -> scalar."""
    return risk_scale * soft_cross_entropy(logits, confidence)


@register
class RC(Method):
    """Importance-weighted cross-entropy, consistent with the classification risk if candidate sets are drawn uniformly. The
    weights are the softmax over the candidates of a second forward pass after each step.

    Network outputs: logits.
    """

    name = "rc"
    about = About("RC", "PLL", venue="NeurIPS", year=2020, forwards="2", state="N×C confidence")
    views = ("weak",)

    @dataclass(frozen=True)
    class Config:
        risk_scale: float = 1.0  # released code; paper: 0.5
        second_forward_bn: Literal["update", "frozen"] = "update"  # released code: batch norm is updated twice per step

    label_confidence: Tensor  # (N, C) w

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.network = Classifier(task)
        self.register_buffer("label_confidence", uniform_confidence(task.candidates))

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        logits = self.network(batch.views[0])
        return Step(risk(logits, batch.rows(self.label_confidence), self.config.risk_scale))

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        logits = second_forward(self.network, batch.views[0], self.config.second_forward_bn)
        batch.store(self.label_confidence, candidate_softmax(logits, batch.candidates))

    def predict(self, images: Tensor) -> Tensor:
        return self.network(images)

    def confidence(self) -> Tensor:
        return self.label_confidence
