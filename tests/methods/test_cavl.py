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


def test_the_activation_value_vanishes_at_one_and_follows_the_logits_beyond() -> None:
    everything = torch.ones(4, 2, dtype=torch.bool)
    logits = torch.tensor([[0.5, 1.0], [0.5, 1.2], [0.5, 1.22], [-3.0, -2.0]])
    assert class_activation_label(logits, everything).tolist() == [0, 0, 1, 1]


def test_only_the_released_rule_takes_a_label_outside_the_set() -> None:
    logits, candidates = torch.tensor([[5.0, -1.0, -2.0]]), torch.tensor([[False, True, True]])
    assert class_activation_label(logits, candidates).item() == 1
    assert class_activation_label(logits, candidates, "zero").item() == 0


def test_both_rules_agree_on_a_full_set() -> None:
    logits = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    full = torch.ones(50, 6, dtype=torch.bool)
    assert torch.equal(class_activation_label(logits, full), class_activation_label(logits, full, "zero"))


def test_labels_are_read_in_float32_from_half_precision_logits() -> None:
    logits = torch.tensor([[300.0, 301.0]]).half()  # 300² is too large for float16, where both would be infinite
    assert class_activation_label(logits, torch.ones(1, 2, dtype=torch.bool)).item() == 1


def test_smoothing_spreads_a_share_over_all_classes() -> None:
    assert torch.allclose(label_weights(torch.tensor([1]), 4, 0.1), torch.tensor([[0.025, 0.925, 0.025, 0.025]]))


def test_a_visit_leaves_one_label_of_the_set_and_other_rows_alone() -> None:
    task = tiny.tiny_task()
    method = CAVL(CONFIG, task).train()
    before = method.label_confidence.clone()
    method.update(tiny.tiny_batch(task, [0, 1, 5], views=1), tiny.TinyOptimiser(method), CLOCK)
    visited = method.label_confidence[[0, 1, 5]]
    assert (visited.amax(1) == 1).all() and (visited.sum(1) == 1).all()
    assert not visited[~task.candidates[[0, 1, 5]]].any() and visited[0].tolist() == [0.0, 0.0, 1.0]
    rest = [row for row in range(task.num_samples) if row not in (0, 1, 5)]
    assert torch.equal(method.label_confidence[rest], before[rest])


@pytest.mark.parametrize(("bn", "updates"), [("update", 2), ("frozen", 1)])
def test_the_second_pass_counts_for_batch_norm_unless_it_is_frozen(bn: Any, updates: int) -> None:
    task = tiny.tiny_task()
    method = CAVL(replace(CONFIG, second_forward_bn=bn), task).train()
    method.update(tiny.tiny_batch(task, range(4), views=1), tiny.TinyOptimiser(method), CLOCK)
    assert method.state_dict()["network.backbone.layers.1.num_batches_tracked"] == updates
