"""DIRK beyond its golden numbers and the contract."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from methods.base import Clock
from methods.blocks import unit
from methods.dirk import DIRK, DIRKPlain, rectify, weighted_contrastive_loss
from tests.support.tiny import TinyOptimiser, tiny_batch, tiny_task

CONFIG = DIRK.Config(queue_length=16, projection_length=4)
FIRST, LATER = Clock(0, 0, 4, 5), Clock(2, 10, 4, 5)


def random_sets(rows: int, classes: int) -> Tensor:
    candidates = torch.rand(rows, classes) < 0.5
    candidates[torch.arange(rows), torch.randint(classes, (rows,))] = True
    return candidates


def test_empty_queue_slots_are_no_columns() -> None:
    torch.manual_seed(0)
    students, keys = unit(torch.randn(5, 4)), unit(torch.randn(5, 4))
    candidates = random_sets(5, 3)
    confidence = rectify(torch.randn(5, 3), candidates)
    filled = (unit(torch.randn(6, 4)), rectify(torch.randn(6, 3), random_sets(6, 3)), random_sets(6, 3))
    padded = tuple(torch.cat((rows, rows.new_zeros(9, rows.shape[1]))) for rows in filled)
    losses = [
        weighted_contrastive_loss(students, keys, confidence, candidates, queue, 0.07, 0.4, 0.07)  # type: ignore[arg-type]
        for queue in (filled, padded)
    ]
    torch.testing.assert_close(*losses)


def test_an_empty_queue_gives_a_first_contrast_of_zero() -> None:
    task = tiny_task()
    method = DIRK(CONFIG, task)
    step = method.training_step(tiny_batch(task, range(5), 3), FIRST)
    assert step.logs["contrast"] == 0
    assert not method.queue_candidates.any(), "the loss sees the queue before its own batch enters"


def test_the_plain_control_needs_one_view_and_no_queue() -> None:
    task = tiny_task()
    assert DIRKPlain.views == ("distill",)
    plain = DIRKPlain(DIRKPlain.Config(), task)
    assert not any("queue" in name or "projection" in name for name in plain.state_dict())
    with pytest.raises(ValueError, match="use dirk"):
        DIRKPlain(DIRKPlain.Config(weight=1.0), task)


def test_the_plain_control_is_dirk_without_the_contrast() -> None:
    task = tiny_task()
    outcomes = []
    for method_class, config, views in ((DIRK, replace(CONFIG, weight=0.0), 3), (DIRKPlain, DIRKPlain.Config(), 1)):
        torch.manual_seed(0)
        method = method_class(config, task)
        batch = tiny_batch(task, range(6), 3)
        batch = replace(batch, views=batch.views[-views:])
        step = method.update(batch, TinyOptimiser(method), LATER)
        outcomes.append((step.loss, method.student.head.weight, method.teacher.head.weight))
    for ours, theirs in zip(*outcomes, strict=True):
        assert torch.equal(ours, theirs)


def test_only_the_student_is_trained_and_the_teacher_follows_it() -> None:
    task = tiny_task()
    method = DIRK(replace(CONFIG, momentum=0.75), task)
    trained = {id(p) for group in method.param_groups() for p in group["params"]}
    assert trained == {id(p) for p in method.student.parameters()}
    before = method.teacher.head.weight.clone()
    assert torch.equal(before, method.student.head.weight)
    method.update(tiny_batch(task, range(6), 3), TinyOptimiser(method), LATER)
    expected = 0.75 * before + 0.25 * method.student.head.weight
    torch.testing.assert_close(method.teacher.head.weight, expected)
