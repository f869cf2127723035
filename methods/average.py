"""Average — the naive floor: every candidate is equally true.

    L = −(1/B) Σ_i (1/|S_i|) Σ_{j∈S_i} log p_ij.

No disambiguation at all; a method that does not beat it has learned nothing about which candidate is right.
"""

from __future__ import annotations

from torch import Tensor

from methods.base import About, Batch, Clock, Method, Step, Task
from methods.blocks import Classifier, soft_cross_entropy, uniform_confidence
from methods.registry import register


@register
class Average(Method):
    """Cross-entropy against the uniform distribution on the candidates."""

    name = "average"
    about = About("Average", "reference", forwards="1", state="none")
    views = ("weak",)

    def __init__(self, config: Method.Config, task: Task) -> None:
        super().__init__(config, task)
        self.network = Classifier(task)

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        return Step(soft_cross_entropy(self.network(batch.views[0]), uniform_confidence(batch.candidates)))

    def predict(self, images: Tensor) -> Tensor:
        return self.network(images)
