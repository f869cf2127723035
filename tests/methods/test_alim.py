"""ALIM beyond its golden numbers and the contract."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from methods.alim import ALIM, margins_of, points_outside
from methods.base import Clock
from tests.support.tiny import TinyData, start, tiny_task, train

CONFIG = ALIM.Config(queue_size=16, embed_dim=4, gamma=0.9, key_momentum=0.9, prior_start=0.25)


def test_a_full_set_has_a_huge_finite_margin_and_points_nowhere_else() -> None:
    scores, full = torch.full((1, 4), 0.25), torch.ones(1, 4, dtype=torch.bool)
    assert 1e8 < margins_of(scores, full).item() < 1e9
    assert not points_outside(scores, full).any()


def test_the_noise_rate_is_estimated_from_samples_of_this_epoch_that_both_point_outside() -> None:
    task = tiny_task(samples=8, epochs=2, steps=1)
    method, _ = start(ALIM, replace(CONFIG, prior_start=0.0), task)
    method.margins[:5] = torch.tensor([0.1, 0.2, 0.3, 5.0, 6.0])
    method.doubted[[0, 1, 7]] = True  # the last was not visited
    method.on_epoch_end(Clock(0, 0, 2, 1), TinyData(task))
    assert method.diagnostics() == pytest.approx({"noise_rate": 0.4, "prior": 0.3})
    assert (method.margins < 0).all()
    method.on_epoch_end(Clock(1, 1, 2, 1), TinyData(task))  # no step since: what was known stays
    assert method.diagnostics() == pytest.approx({"noise_rate": 0.4, "prior": 0.3})


@pytest.mark.parametrize(("changes", "prior"), [({"noise_rate": 0.0}, 0.0), ({"prior_fixed": 0.4}, 0.4)])
def test_a_given_rate_or_prior_is_taken_as_it_is_from_its_epoch_on(changes: dict[str, Any], prior: float) -> None:
    task = tiny_task(epochs=4, steps=2)
    method, optimiser = start(ALIM, replace(CONFIG, prior_start=0.5, **changes), task)
    seen = []
    for epoch in range(4):
        seen.append(method.diagnostics()["prior"])
        train(method, task, optimiser, range(2 * epoch, 2 * epoch + 2))
    assert seen == pytest.approx([0.0, 0.0, prior, prior])
