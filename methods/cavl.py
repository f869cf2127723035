"""CAVL — class activation value learning.

F. Zhang, L. Feng, B. Han, T. Liu, G. Niu, T. Qin, M. Sugiyama: Exploiting Class Activation Value for Partial-Label
Learning, ICLR 2022.

    v_j = |1 − o_j| o_j                                     class activation value of the logit o_j
    L = −(1/B) Σ_i Σ_j C_ij log softmax(o_i)_j              C starts uniform on the candidates
    C_i ← onehot(arg max_{j∈S_i} v_ij)                      from a second pass, after the optimiser step

Self-training with hard labels. v orders classes as the logits do, except for logits between 0 and (1 + √2)/2: it falls
to 0 at o = 1. It reads the logits' absolute level, which softmax does not, so they may not be shifted.

Only the abstract of the paper was available; the rest follows the released code, but for one thing: there v is
multiplied by the mask and the largest of ALL classes taken, so that a set whose logits are all negative gets a label
outside itself. The abstract selects "the true label from candidate labels", and so does the default here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from methods.base import About, Batch, Clock, Method, Step, Task
from methods.blocks import (
    Classifier,
    at_least_float32,
    masked_argmax,
    second_forward,
    soft_cross_entropy,
    uniform_confidence,
)
from methods.registry import register

Outside = Literal["excluded", "zero"]


def class_activation_label(logits: Tensor, candidates: Tensor, outside: Outside = "excluded") -> Tensor:
    """Return the class of the largest activation value, ties to the lowest. Non-candidates cannot win, or count as 0.

    (B, C), (B, C) -> (B,).
    """
    logits = at_least_float32(logits)
    values = logits * torch.abs(1 - logits)
    if outside == "zero":
        return (values * candidates).argmax(1)
    return masked_argmax(values, candidates)


def label_weights(labels: Tensor, num_classes: int, smoothing: float = 0.0) -> Tensor:
    """Rows of C: (1−ε) onehot + ε/C. (B,) -> (B, C)."""
    return (1 - smoothing) * F.one_hot(labels, num_classes) + smoothing / num_classes


@register
class CAVL(Method):
    """Self-training with hard labels: at every visit the candidate with the largest class activation value |1 − o|·o, where
    o is its logit.

    Network outputs: logits.
    """

    name = "cavl"
    about = About("CAVL", "PLL", venue="ICLR", year=2022, forwards="2", state="N×C label weights")
    views = ("weak",)

    @dataclass(frozen=True)
    class Config:
        outside: Outside = "excluded"  # paper's abstract; released: "zero", non-candidates count as 0 and may win
        smoothing: float = 0.0  # released; its unused function for it has 0.1
        second_forward_bn: Literal["update", "frozen"] = "update"  # released: batch norm is updated twice per step

    label_confidence: Tensor  # (N, C) C

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.network = Classifier(task)
        self.register_buffer("label_confidence", uniform_confidence(task.candidates))

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        return Step(soft_cross_entropy(self.network(batch.views[0]), batch.rows(self.label_confidence)))

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        config = self.config
        logits = second_forward(self.network, batch.views[0], config.second_forward_bn)
        labels = class_activation_label(logits, batch.candidates, config.outside)
        batch.store(self.label_confidence, label_weights(labels, self.num_classes, config.smoothing))

    def predict(self, images: Tensor) -> Tensor:
        return self.network(images)

    def confidence(self) -> Tensor:
        return self.label_confidence
