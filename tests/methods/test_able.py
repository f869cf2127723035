"""ABLE beyond its golden numbers and the contract."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from methods.able import ABLE
from methods.base import Clock
from tests.support.tiny import TinyOptimiser, tiny_batch, tiny_task, train

CONFIG = ABLE.Config(embed_dim=4)
CLOCK = Clock(0, 0, 4, 5)


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
