"""POP, alone and around other losses, beyond its golden numbers and the contract."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.base import Clock, Method
from methods.cc import CC
from methods.controls.pop_around import CCAndPOP, LWSAndPOP, RCAndPOP
from methods.lws import LWS
from methods.pop import POP, purified_weights, purify_by_difference, purify_by_ratio
from methods.rc import RC
from methods.registry import discover
from tests.support.tiny import TinyData, all_steps, start, tiny_batch, tiny_task, train

ROUNDS: dict[str, Any] = {"warm_up": 0.25, "roll_window": 2, "short_run": 0, "theta": 0.6, "inc": 0.5, "theta_max": 0.6}
EAGER = POP.Config(**ROUNDS)
MARGIN = replace(EAGER, purify_rule="difference", e=0.05, e_end=0.01, e_step=0.01)


@settings(deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1e-3, 0.5, 1.0, 5.0]), st.sampled_from([0.1, 10.0, 1e4]))
def test_purification_never_empties_a_set(seed: int, threshold: float, spread: float) -> None:
    task = tiny_task(samples=8, classes=4, seed=seed)
    logits = spread * torch.randn(8, 4, generator=torch.Generator().manual_seed(seed))
    probabilities = torch.softmax(logits, 1)
    weights = torch.softmax(logits.masked_fill(~task.candidates, -torch.inf), 1)
    for left in (
        purify_by_ratio(weights, task.candidates, threshold),
        purify_by_difference(probabilities, task.candidates, threshold),
    ):
        assert left.any(1).all()
        assert not (left & ~task.candidates).any()
        assert torch.equal(left[0], task.candidates[0])  # a set of one label stays
        after = purified_weights(weights, left)
        torch.testing.assert_close(after.sum(1), torch.ones(8))
        assert not after[~left].any()


def test_labels_tied_for_the_best_all_stay() -> None:
    weights = torch.tensor([[0.4, 0.4, 0.2], [1 / 3, 1 / 3, 1 / 3]])
    left = purify_by_ratio(weights, torch.ones(2, 3), 1.0)
    assert left.tolist() == [[True, True, False], [True, True, True]]


def test_weights_that_vanish_on_what_is_left_become_uniform() -> None:
    weights, left = torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[True, True, False]])
    assert purified_weights(weights, left).tolist() == [[0.5, 0.5, 0.0]]


def test_a_threshold_that_starts_at_its_top_does_not_grow() -> None:
    method, _ = start(POP, POP.Config(warm_up=0, theta=0.7, theta_max=0.7, inc=0.1, short_run=0), tiny_task())
    method.on_epoch_end(Clock(0, 0, 4, 1), TinyData(tiny_task()))
    assert method.diagnostics()["threshold"] == 0.7


def test_the_margin_falls_after_a_round_without_removals() -> None:
    task = tiny_task(epochs=8, steps=2)
    method, _ = start(POP, replace(MARGIN, e=0.99, e_end=0.975), task)
    data = TinyData(task)
    found = []
    for epoch in range(8):
        method.on_epoch_end(Clock(epoch, epoch, 8, 2), data)
        found.append(method.diagnostics()["threshold"])
    assert found == pytest.approx([0.99, 0.99, 0.98, 0.98, 0.975, 0.975, 0.975, 0.975])
    assert data.passes == 3 and method.training


def test_windows_are_five_epochs_unless_training_is_short() -> None:
    method, _ = start(POP, POP.Config(), tiny_task())
    lengths = {epochs: method.window_length(Clock(0, 0, epochs, 1)) for epochs in (3, 49, 50, 500)}
    assert lengths == {3: 1, 49: 1, 50: 5, 500: 5}


# Around other losses --------------------------------------------------------------------------------------------------

PAIRS = ((RCAndPOP, RC), (CCAndPOP, CC), (LWSAndPOP, LWS))


@pytest.mark.parametrize(("around", "base"), PAIRS)
def test_without_a_round_it_is_the_base_method(around: type[Method], base: type[Method]) -> None:
    task = tiny_task(classes=5, epochs=4, steps=3)
    ours, ours_sgd = start(around, around.Config(warm_up=1.0), task)  # type: ignore[call-arg]
    plain, plain_sgd = start(base, base.Config(), task)
    train(ours, task, ours_sgd, all_steps(task))
    train(plain, task, plain_sgd, all_steps(task))
    for key, value in plain.state_dict().items():
        assert torch.equal(ours.state_dict()[key], value)


@pytest.mark.parametrize(("around", "base"), PAIRS)
def test_removed_labels_never_return_and_reach_no_loss(around: type[Method], base: type[Method]) -> None:
    task = tiny_task(classes=5, epochs=8, steps=4)
    method, sgd = start(around, around.Config(**ROUNDS), task)  # type: ignore[call-arg]
    before = task.candidates
    for epoch in range(task.epochs):
        train(method, task, sgd, range(epoch * 4, epoch * 4 + 4))
        left = method.candidate_sets().clone()
        assert not (left & ~before).any() and left.any(1).all() and not method.confidence()[~left].any()
        before = left
    assert before.sum() < task.candidates.sum()
    batch, clock = tiny_batch(task, range(task.num_samples), views=1), Clock(8, 32, 9, 4)
    shrunken = replace(batch, candidates=before)
    assert torch.equal(method.training_step(batch, clock).loss, base.training_step(method, shrunken, clock).loss)


def test_settings_are_the_base_method_s_and_pop_s() -> None:
    entries = discover().entries
    for around, base in (("rc-pop", "rc"), ("cc-pop", "cc"), ("lws-pop", "lws")):
        assert set(entries[around].config) == set(entries[base].config) | set(entries["pop"].config)
