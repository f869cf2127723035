"""SoLar beyond its golden numbers and the contract."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.base import Clock
from methods.blocks import uniform_confidence
from methods.solar import SoLar, sinkhorn, trusted_in_turn, trusted_rows
from tests.support.tiny import TinyData, start, tiny_task, train

CONFIG = SoLar.Config(queue_size=16, warmup=0.5, gamma2=0.1)


def random_predictions(seed: int, rows: int, classes: int, spread: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    candidates = torch.rand(rows, classes, generator=generator) < 0.4
    candidates[torch.arange(rows), torch.randint(classes, (rows,), generator=generator)] = True
    p = torch.softmax(spread * torch.randn(rows, classes, generator=generator), 1)
    return torch.where(candidates, p.clamp(min=1e-20), 0.0)


@settings(deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1, 2, 12]), st.sampled_from([0.1, 3.0, 1e4]))
@pytest.mark.parametrize("absent_class", ["relax", "skip"])
def test_labels_are_finite_stay_on_the_candidates_and_have_mass_one_unless_relaxed(
    absent_class: Any, seed: int, rows: int, spread: float
) -> None:
    prediction = random_predictions(seed, rows, 5, spread)
    prior = torch.tensor([0.6, 0.3, 0.1, 0.0, 0.0])
    labels, absent = sinkhorn(prediction, prior, torch.ones(rows, dtype=torch.bool), absent_class=absent_class)
    assert torch.isfinite(labels).all() and not labels[prediction == 0].any()
    assert absent == (prediction == 0).all(0).any()
    sums = labels.sum(1)
    if absent_class == "skip" or not absent:
        torch.testing.assert_close(sums, torch.ones_like(sums))
    assert (sums < 1 + 1e-9).all()


def test_rows_of_a_queue_that_is_not_full_count_for_nothing() -> None:
    fresh, prior = random_predictions(1, 6, 4, 1.0), torch.full((4,), 0.25)
    empty = torch.zeros(8, 4)
    used = torch.arange(14) >= 8
    alone, absent = sinkhorn(fresh, prior, used[8:])
    behind, absent_behind = sinkhorn(torch.cat((empty, fresh)), prior, used)
    torch.testing.assert_close(behind[8:], alone)
    assert absent == absent_behind and not behind[:8].any()


def test_the_quota_takes_the_smallest_losses_of_each_class_and_confidence_adds_to_it() -> None:
    labels = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.1, 0.9], [0.2, 0.8]])
    losses, agreement = torch.tensor([3.0, 1.0, 2.0, 5.0, 4.0]), torch.tensor([0.1, 0.2, 0.3, 0.995, 0.99])
    found = trusted_rows(labels, losses, agreement, torch.tensor([2.0, 0.0]), tau=0.99)
    assert found.tolist() == [False, True, True, True, True]  # a class has one at least; 0.99 is not above τ


def test_the_trusted_are_forwarded_in_turn_with_partners_among_themselves() -> None:
    chosen = torch.tensor([False, True, False, True, True, False, False])
    rows, partners = trusted_in_turn(chosen, torch.tensor([2, 0, 1, 6, 5, 4, 3]))
    assert rows.tolist() == [1, 3, 4, 1, 3, 4, 1]
    assert partners.tolist() == [3, 4, 1, 3, 4, 1, 3]
    one, itself = trusted_in_turn(torch.tensor([False, True]), torch.tensor([1, 0]))
    assert one.tolist() == itself.tolist() == [1, 1]


def test_the_second_stage_starts_anew_but_for_the_prior() -> None:
    task = tiny_task(epochs=4, steps=2)
    method, optimiser = start(SoLar, replace(CONFIG, estimate=0.5, gamma1=0.5), task)
    first = {name: value.clone() for name, value in method.network.state_dict().items()}
    train(method, task, optimiser, range(4))
    prior, data = method.class_prior.clone(), TinyData(task)
    assert not torch.equal(prior, torch.full_like(prior, 1 / 3))
    method.on_epoch_start(Clock(2, 4, 4, 2), data)
    assert data.resets == 1 and torch.equal(method.class_prior, prior) and not method.queue.any()
    assert all(torch.equal(value, first[name]) for name, value in method.network.state_dict().items())
    assert torch.equal(method.confidence(), uniform_confidence(task.candidates))
    method.on_epoch_start(Clock(3, 6, 4, 2), data)
    assert data.resets == 1 and method.eta_rho(Clock(2, 4, 4, 2))[0] == 0.0
    trained = {id(p) for group in optimiser.sgd.param_groups for p in group["params"]}
    assert trained == {id(p) for p in method.network.parameters()}, "not the copy that the stage starts from"
