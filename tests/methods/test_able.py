"""ABLE beyond its golden numbers: edge cases, precision, resume, the two look-ups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from methods.able import ABLE, ambiguity_loss, positive_weights
from methods.base import Clock
from methods.blocks import unit
from tests.support.tiny import (
    TinyOptimiser,
    tiny_batch,
    tiny_task,
    train,
)

CONFIG = ABLE.Config(embed_dim=4)
CLOCK = Clock(0, 0, 4, 5)


def test_weights_follow_their_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    candidates = torch.rand(6, 4, generator=generator) < 0.6
    confidence = torch.rand(6, 4, generator=generator, dtype=torch.float64)
    assigned = torch.randint(3, (6,), generator=generator)
    for norm in ("per_image", "per_view"):
        expected = torch.zeros(12, 12, dtype=torch.float64)
        for a in range(12):
            for b in range(12):
                i, j = a % 6, b % 6
                group = int((assigned == assigned[j]).sum())
                count = group if norm == "per_image" else 2 * group - int(assigned[i] == assigned[j])
                if a != b and candidates[i, assigned[j]]:
                    expected[a, b] = confidence[i, assigned[j]] / count
        assert torch.allclose(positive_weights(assigned, candidates, confidence, norm), expected)


def test_per_view_weights_of_a_group_sum_to_the_confidence() -> None:
    candidates, assigned = torch.ones(5, 3, dtype=torch.bool), torch.tensor([0, 0, 1, 2, 2])
    confidence = torch.rand(5, 3, generator=torch.Generator().manual_seed(0)).softmax(1)
    weights = positive_weights(assigned, candidates, confidence, "per_view")
    assert torch.allclose(weights.sum(1), torch.ones(10))


def test_one_image_has_no_contrast() -> None:
    embeddings = unit(torch.randn(2, 4, generator=torch.Generator().manual_seed(0))).requires_grad_()
    weights = positive_weights(torch.tensor([1]), torch.ones(1, 3), torch.full((1, 3), 1 / 3), "per_image")
    loss = ambiguity_loss(embeddings, weights, 0.1, 0.07)
    (gradient,) = torch.autograd.grad(loss, embeddings)
    assert loss.item() == pytest.approx(0.0, abs=1e-6) and torch.allclose(gradient, torch.zeros(2, 4), atol=1e-5)


def test_confidence_stays_a_distribution_on_the_candidates() -> None:
    task = tiny_task(classes=4)
    method = ABLE(CONFIG, task)
    for size in (5, 3, 7, 2):
        train(method, task, TinyOptimiser(method), range(5), size)
    assert (method.table[~task.candidates] == 0).all()
    assert torch.allclose(method.table.sum(1), torch.ones(20), atol=1e-6)


def test_the_losses_read_the_confidence_from_before_the_step() -> None:
    task = tiny_task()
    method = ABLE(CONFIG, task).train()
    before = method.table.clone()
    step = method.training_step(tiny_batch(task, range(1, 6)), CLOCK)
    assert torch.equal(method.table, before)
    method.after_step(tiny_batch(task, range(1, 6)), step, CLOCK)
    assert not torch.equal(method.table[1:6], before[1:6]) and torch.equal(method.table[6:], before[6:])


def test_look_ups_agree_on_the_first_rows_and_only_there() -> None:
    task = tiny_task()
    torch.manual_seed(0)
    method = ABLE(CONFIG, task).train()
    train(method, task, TinyOptimiser(method), range(8))

    def contrast(lookup: Any, rows: range) -> float:
        method.config = replace(CONFIG, confidence_lookup=lookup)
        return method.training_step(tiny_batch(task, rows), CLOCK).logs["contrast"].item()

    assert contrast("sample", range(6)) == contrast("batch_position", range(6))
    assert contrast("sample", range(10, 16)) != pytest.approx(contrast("batch_position", range(10, 16)))


def test_the_ambiguity_loss_teaches_the_classifier_nothing_directly() -> None:
    task = tiny_task()
    method = ABLE(CONFIG, task)
    logits = torch.randn(8, 3, requires_grad=True)
    step = method.losses(logits, unit(torch.randn(8, 4)), tiny_batch(task, range(4)))
    step.loss.backward()
    assert logits.grad is not None and (logits.grad[4:] == 0).all() and (logits.grad[1:4] != 0).any()


def test_autocast_does_not_lower_the_precision_of_the_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    task = tiny_task()
    method = ABLE(CONFIG, task).train()
    logits, features = (torch.randn(12, width, generator=torch.Generator().manual_seed(2)) for width in (3, 4))
    monkeypatch.setattr(method.network, "both", lambda images: (logits, features))
    batch = tiny_batch(task, range(6))
    plain = method.training_step(batch, CLOCK).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = method.training_step(batch, CLOCK).loss
    assert torch.equal(plain, mixed)
