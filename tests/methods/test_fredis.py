"""FREDIS beyond its golden numbers and the contract."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.base import Clock
from methods.fredis import FREDIS, lower_threshold
from tests.support.tiny import TinyData, start, tiny_task, train

EAGER = FREDIS.Config(warmup=0.25, update_interval=0.0, theta=0.05, delta=0.5, inc=0.05, dec=0.05, change_size=0.5)


def after_round(config: FREDIS.Config, candidates: torch.Tensor, posterior: torch.Tensor) -> FREDIS:
    """The method after one refinement of these sets."""
    task = tiny_task(samples=len(candidates), classes=candidates.shape[1], epochs=1)
    method, _ = start(FREDIS, replace(config, warmup=0.0), task)
    method.sets.copy_(candidates)
    method.posterior.copy_(posterior)
    method.visited.fill_(True)
    method.on_epoch_end(Clock(0, 0, 1, 1), TinyData(task))
    return method


@settings(deadline=None)
@given(
    st.integers(0, 10_000), st.sampled_from([1e-6, 0.2, 1.0]), st.sampled_from([0.01, 0.5]), st.sampled_from([0.1, 1e3])
)
@pytest.mark.parametrize("eligible", ["changing", "all"])
def test_no_set_is_emptied_and_weights_stay_on_the_sets(
    eligible: Any, seed: int, theta: float, delta: float, spread: float
) -> None:
    task = tiny_task(samples=8, classes=4, seed=seed)
    posterior = torch.softmax(spread * torch.randn(8, 4, generator=torch.Generator().manual_seed(seed)), 1)
    config = replace(EAGER, theta=theta, delta=delta, eligible=eligible, change_size=0.2)
    method = after_round(config, task.candidates, posterior)
    assert method.candidate_sets().any(1).all()
    assert not method.confidence()[~method.candidate_sets()].any()
    torch.testing.assert_close(method.confidence().sum(1), torch.ones(8))
    assert method.diagnostics()["joined"] <= 2 and method.diagnostics()["left"] <= 4


def test_the_threshold_for_leaving_falls_until_enough_leave_and_stops_at_zero() -> None:
    distances = torch.tensor([0.9, 0.65, 0.3])
    assert lower_threshold(1.0, distances, 0, 0.1) == 1.0
    assert lower_threshold(1.0, distances, 2, 0.1) == pytest.approx(0.6)
    assert lower_threshold(1.0, distances, 4, 0.1) == 0.0  # more than there are labels: the release never ends
    assert lower_threshold(1.0, torch.zeros(3), 1, 1e-5) == 0.0


def test_samples_never_visited_keep_their_sets() -> None:
    task = tiny_task(samples=6, epochs=1)
    method, _ = start(FREDIS, replace(EAGER, warmup=0.0), task)
    method.on_epoch_end(Clock(0, 0, 1, 1), TinyData(task))
    assert torch.equal(method.candidate_sets(), task.candidates)  # their posterior is uniform: all labels are close


def test_sets_stay_during_the_warm_up_and_rounds_lie_an_interval_apart() -> None:
    task = tiny_task(epochs=8, steps=4)
    method, optimiser = start(FREDIS, replace(EAGER, warmup=0.5, update_interval=0.25), task)
    changed = []
    for epoch in range(8):
        before = method.candidate_sets().clone()
        train(method, task, optimiser, range(4 * epoch, 4 * epoch + 4))
        changed.append(not torch.equal(method.candidate_sets(), before))
    assert changed == [False, False, False, False, True, False, True, False]
