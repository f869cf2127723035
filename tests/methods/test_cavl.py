"""CAVL beyond its golden numbers: the order of the activation value, labels outside the set, smoothing, resume."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from methods.base import Clock
from methods.cavl import CAVL, class_activation_label, label_weights
from tests.support import tiny

CONFIG = CAVL.Config()
CLOCK = Clock(1, 5, 4, 5)


def test_labels_are_read_in_float32_from_half_precision_logits() -> None:
    logits = torch.tensor([[300.0, 301.0]]).half()  # 300² is too large for float16, where both would be infinite
    assert class_activation_label(logits, torch.ones(1, 2, dtype=torch.bool)).item() == 1


def test_smoothing_spreads_a_share_over_all_classes() -> None:
    assert torch.allclose(label_weights(torch.tensor([1]), 4, 0.1), torch.tensor([[0.025, 0.925, 0.025, 0.025]]))


@pytest.mark.parametrize(("bn", "updates"), [("update", 2), ("frozen", 1)])
def test_the_second_pass_counts_for_batch_norm_unless_it_is_frozen(bn: Any, updates: int) -> None:
    task = tiny.tiny_task()
    method = CAVL(replace(CONFIG, second_forward_bn=bn), task).train()
    method.update(tiny.tiny_batch(task, range(4), views=1), tiny.TinyOptimiser(method), CLOCK)
    assert method.state_dict()["network.backbone.layers.1.num_batches_tracked"] == updates
