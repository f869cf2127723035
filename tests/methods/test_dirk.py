"""DIRK beyond its golden numbers: what rectification promises, the queue, edge cases, precision, resume."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from methods.base import Clock, Task
from methods.blocks import ContrastiveClassifier, unit
from methods.dirk import DIRK, DIRKPlain, rectify, weighted_contrastive_loss
from tests.support.tiny import (
    TinyOptimiser,
    assert_finite,
    tiny_batch,
    tiny_task,
    train,
)

CONFIG = DIRK.Config(queue_length=16, projection_length=4)
FIRST, LATER = Clock(0, 0, 4, 5), Clock(2, 10, 4, 5)


def random_sets(rows: int, classes: int) -> Tensor:
    candidates = torch.rand(rows, classes) < 0.5
    candidates[torch.arange(rows), torch.randint(classes, (rows,))] = True
    return candidates


def test_rectified_candidates_stand_above_all_others_in_unchanged_proportions() -> None:
    torch.manual_seed(0)
    logits, candidates = 3 * torch.randn(200, 7, dtype=torch.float64), random_sets(200, 7)
    p, r = torch.softmax(logits, 1), rectify(logits, candidates)
    torch.testing.assert_close(r.sum(1), torch.ones(200, dtype=torch.float64))
    lowest_inside = r.masked_fill(~candidates, torch.inf).amin(1)
    highest_outside = r.masked_fill(candidates, 0).amax(1)
    open_set = ~candidates.all(1)
    mass = (p * candidates).sum(1)
    torch.testing.assert_close((lowest_inside / highest_outside)[open_set], (1 / mass)[open_set])
    for part in (candidates, ~candidates):
        inside = [(x * part) / (x * part).sum(1, keepdim=True).clamp_min(1e-300) for x in (p, r)]
        torch.testing.assert_close(*inside)


@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_rectification_survives_extreme_logits(scale: float) -> None:
    logits = torch.tensor([[scale, 0.0, -scale], [0.0, scale, scale], [scale, scale, -scale]])
    for candidates in (torch.eye(3, dtype=torch.bool), torch.ones(3, 3, dtype=torch.bool), ~torch.eye(3).bool()):
        r = rectify(logits, candidates)
        assert torch.isfinite(r).all()
        torch.testing.assert_close(r.sum(1), torch.ones(3))
    torch.testing.assert_close(rectify(logits, torch.ones(3, 3).bool()), torch.softmax(logits, 1))


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


def test_the_released_epsilon_matters_only_when_nothing_is_near() -> None:
    torch.manual_seed(0)
    students = unit(torch.randn(1, 4, dtype=torch.float64))
    one, sets = torch.ones(1, 3, dtype=torch.float64) / 3, torch.ones(1, 3, dtype=torch.bool)
    for keys, change in ((students, 0.0), (-students, 0.8)):
        queue = (-students, one, sets)
        clean, released = (
            weighted_contrastive_loss(students, keys, one, sets, queue, 0.07, 0.4, 0.07, eps) for eps in (0.0, 1e-12)
        )
        assert float(released - clean) == pytest.approx(change, abs=0.05 if change else 1e-9)


def test_an_empty_queue_gives_a_first_contrast_of_zero() -> None:
    task = tiny_task()
    method = DIRK(CONFIG, task)
    step = method.training_step(tiny_batch(task, range(5), 3), FIRST)
    assert step.logs["contrast"] == 0
    assert not method.queue_candidates.any(), "the loss sees the queue before its own batch enters"


def test_training_with_odd_batches_wraps_the_queue() -> None:
    task = tiny_task()
    torch.manual_seed(0)
    method = DIRK(CONFIG, task)
    optimiser = TinyOptimiser(method)
    steps = [train(method, task, optimiser, range(k, k + 1), size)[0] for k, size in enumerate((7, 5, 3, 7, 20, 2))]
    keys = torch.cat([step.carry[0][1] for step in steps])[-16:]
    confidence = torch.cat([step.carry[1] for step in steps])[-16:]
    at = torch.arange(44 - 16, 44) % 16
    assert torch.equal(method.queue_features[at], keys) and torch.equal(method.queue_confidence[at], confidence)
    assert method.queue_position.item() == 44 % 16


def test_a_data_set_smaller_than_the_queue_trains() -> None:
    task = tiny_task(samples=6)
    method = DIRK(replace(CONFIG, queue_length=64), task)
    for step in train(method, task, TinyOptimiser(method), range(8), size=5):
        assert_finite(method, step.loss)
    assert method.queue_candidates.any(1).sum() == 40


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


def test_the_released_three_passes_at_weight_zero_only_move_statistics_and_queue() -> None:
    task = tiny_task()
    torch.manual_seed(0)
    method = DIRK(replace(CONFIG, weight=0.0, always_three_views=True), task)
    step = method.update(tiny_batch(task, range(6), 3), TinyOptimiser(method), LATER)
    assert set(step.logs) == {"teach"}
    assert method.queue_candidates.any(1).sum() == 6
    assert method.student.backbone.layers[1].num_batches_tracked == 2


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


def test_a_batch_of_one_has_its_own_key_as_positive() -> None:
    student, key = unit(torch.randn(1, 4)).requires_grad_(), unit(torch.randn(1, 4))
    confidence, candidates = torch.tensor([[0.6, 0.3, 0.1]]), torch.tensor([[True, False, False]])
    queue = (torch.zeros(8, 4), torch.zeros(8, 3), torch.zeros(8, 3, dtype=torch.bool))
    loss = weighted_contrastive_loss(student, key, confidence, candidates, queue, 0.07, 0.4, 0.07)
    (gradient,) = torch.autograd.grad(loss, student)
    assert loss.abs() < 1e-5 and gradient.abs().max() < 1e-5, "one column alone carries no signal"


def test_the_network_is_two_headed_only_when_it_must_be() -> None:
    task: Task = tiny_task()
    assert isinstance(DIRK(CONFIG, task).student, ContrastiveClassifier)
    assert not isinstance(DIRK(replace(CONFIG, weight=0.0), task).student, ContrastiveClassifier)
