"""POP around other losses: the base loss sees the shrunken sets, and rounds shrink them by POP's rule."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from methods.base import Clock, Method
from methods.cc import CC
from methods.controls.pop_around import CCAndPOP, LWSAndPOP, RCAndPOP
from methods.lws import LWS
from methods.rc import RC
from methods.registry import discover
from tests.support.tiny import all_steps, start, tiny_batch, tiny_task, train

PAIRS = ((RCAndPOP, RC), (CCAndPOP, CC), (LWSAndPOP, LWS))
EAGER = {"warm_up": 0.25, "roll_window": 2, "short_run": 0, "theta": 0.6, "inc": 0.5, "theta_max": 0.6}


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
    method, sgd = start(around, around.Config(**EAGER), task)  # type: ignore[call-arg]
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
