"""A plug-in method: self-training with the pseudo-labels of an EMA teacher.

    ./reproduce.sh check examples/ema_teacher.py
    ./reproduce.sh table2 --plugin examples/ema_teacher.py

    L = −(1/B) Σ_i Σ_j T_ij log p_ij(strong view),   T_i = softmax of the teacher's logits (weak view) over the candidates

The batch-norm trap: an EMA averages parameters. The running means and variances of batch norm are buffers and are not
averaged by `ema_update`, so a teacher that only runs in eval mode keeps the initial ones (mean 0, variance 1): its
parameters are right and its predictions are wrong. There are two remedies. Copy the student's buffers whenever the
parameters are averaged, as here; or let the teacher run in train mode during training, where it normalises by the batch
and collects statistics of its own, as the key network of `methods/pico.py` does. `check` does not detect the mistake,
because the method still learns without the copy, only much less.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods.base import About, Batch, Clock, Method, Step, Task
from methods.blocks import Classifier, candidate_softmax, ema_update, soft_cross_entropy
from methods.registry import register


@register
class EmaTeacher(Method):
    name = "ema-teacher"
    about = About("EMA teacher", "PLL", venue="example", year=2026, forwards="2", state="teacher network")
    views = ("weak", "strong")

    @dataclass(frozen=True)
    class Config:
        momentum: float = 0.99  # m of the teacher; smaller in the first steps, so that it leaves its random start

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.student = Classifier(task)
        self.teacher = Classifier(task).requires_grad_(False)
        self.teacher.load_state_dict(self.student.state_dict())

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        weak, strong = batch.views
        self.teacher.eval()  # the trainer sets train mode for the whole method
        with torch.no_grad():
            targets = candidate_softmax(self.teacher(weak), batch.candidates)
        return Step(soft_cross_entropy(self.student(strong), targets))

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        ema_update(self.teacher, self.student, min(self.config.momentum, (1 + clock.step) / (10 + clock.step)))
        for target, source in zip(self.teacher.buffers(), self.student.buffers(), strict=True):
            target.copy_(source)  # running means and variances; see the docstring

    def predict(self, images: Tensor) -> Tensor:
        return self.teacher(images)
