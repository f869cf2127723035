"""CroSel beyond its golden numbers and the contract."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from methods.base import Clock
from methods.crosel import CroSel, push, select
from tests.support import tiny

CONFIG = CroSel.Config(history=2, threshold=0.5)
LATER = Clock(3, 15, 4, 5)
FULL = torch.ones(1, 3, dtype=torch.bool)


def test_nothing_is_selected_from_a_bank_that_is_not_full() -> None:
    bank, classes = torch.zeros(2, 1), torch.zeros(2, 1, dtype=torch.int64)
    for expected in (-1, 0):
        bank, classes = push(bank, torch.tensor([0.99])), push(classes, torch.tensor([0]))
        assert select(bank, classes, FULL, 0.4).item() == expected


def test_the_warm_up_fills_the_banks_however_short_unless_it_is_switched_off() -> None:
    task, clocks = tiny.tiny_task(), [Clock(epoch, 5 * epoch, 4, 5) for epoch in range(4)]
    expected = {0.01: [True, True, False, False], 0.75: [True, True, True, False], 0.0: [False] * 4}
    for warmup, phases in expected.items():
        method = CroSel(replace(CONFIG, warmup=warmup), task)
        assert [method.in_warmup(clock) for clock in clocks] == phases


@pytest.mark.parametrize(("view", "at"), [("plain", 2), ("weak", 0)])
def test_the_warm_up_looks_at_one_view(view: Any, at: int) -> None:
    task = tiny.tiny_task()
    method = CroSel(replace(CONFIG, warmup_view=view), task).train()
    seen: list[Tensor] = []
    method.networks.get_submodule("0.backbone").register_forward_pre_hook(lambda _, images: seen.append(images[0]))
    batch = tiny.tiny_batch(task, range(4), views=3)
    method.training_step(batch, Clock(0, 0, 4, 5))
    assert len(seen) == 1 and torch.equal(seen[0], batch.views[at])


def test_the_networks_start_apart_and_predict_by_the_mean_of_their_logits() -> None:
    task = tiny.tiny_task()
    method = CroSel(CONFIG, task).eval()
    images = tiny.tiny_batch(task, range(4)).views[0]
    single = method.predictions(images)
    assert not torch.equal(single["network1"], single["network2"])
    assert torch.equal(method.predict(images), (single["network1"] + single["network2"]) / 2)


def test_a_training_selects_labels_inside_the_sets() -> None:
    task = tiny.tiny_task(epochs=12)
    method, optimiser = tiny.start(CroSel, CONFIG, task)
    tiny.train(method, task, optimiser, tiny.all_steps(task))
    shares = method.diagnostics()
    assert min(shares.values()) > 0.3 and float(method.ratio) == pytest.approx(sum(shares.values()) / 2)
    for labels in method.labels:
        chosen = labels >= 0
        assert task.candidates[chosen].gather(1, labels[chosen, None]).all()
