"""ABLE beyond its golden numbers and the contract."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from methods.able import ABLE, ambiguity_loss, positive_weights
from methods.base import Clock
from methods.blocks import unit
from tests.support.tiny import TinyOptimiser, tiny_batch, tiny_task, train

CONFIG = ABLE.Config(embed_dim=4)
CLOCK = Clock(0, 0, 4, 5)


def test_one_image_has_no_contrast() -> None:
    embeddings = unit(torch.randn(2, 4, generator=torch.Generator().manual_seed(0))).requires_grad_()
    weights = positive_weights(torch.tensor([1]), torch.ones(1, 3), torch.full((1, 3), 1 / 3), "per_image")
    loss = ambiguity_loss(embeddings, weights, 0.1, 0.07)
    (gradient,) = torch.autograd.grad(loss, embeddings)
    assert loss.item() == pytest.approx(0.0, abs=1e-6) and torch.allclose(gradient, torch.zeros(2, 4), atol=1e-5)


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
