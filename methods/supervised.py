"""Supervised — the ceiling: ordinary cross-entropy on the true labels.

The only method that gets true labels, through `reveal`, which the trainer calls for exactly this class
(`sees_truth`) and for no other, not even a subclass. Tables set it apart.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from methods.base import About, Batch, Clock, Method, Step, Task
from methods.blocks import Classifier, at_least_float32
from methods.registry import register


@register
class Supervised(Method):
    """The ceiling: cross-entropy on the true labels."""

    name = "supervised"
    about = About("Supervised", "reference", forwards="1", state="true labels")
    views = ("weak",)

    labels: Tensor  # (N,) true labels, −100 until they are revealed

    def __init__(self, config: Method.Config, task: Task) -> None:
        super().__init__(config, task)
        self.network = Classifier(task)
        self.register_buffer("labels", torch.full((task.num_samples,), -100, dtype=torch.int64))

    def reveal(self, labels: Tensor) -> None:
        """Set the true labels of the training set, (N,)."""
        self.labels.copy_(labels)

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        logits = at_least_float32(self.network(batch.views[0]))
        return Step(F.cross_entropy(logits, batch.rows(self.labels)))

    def predict(self, images: Tensor) -> Tensor:
        return self.network(images)


def sees_truth(cls: type[Method]) -> bool:
    """Return whether a class is the one that may receive true labels; subclasses may not."""
    return cls is Supervised
