"""CAVL beyond its golden numbers and the contract."""

from __future__ import annotations

import torch

from methods.cavl import class_activation_label, label_weights


def test_labels_are_read_in_float32_from_half_precision_logits() -> None:
    logits = torch.tensor([[300.0, 301.0]]).half()  # 300² is too large for float16, where both would be infinite
    assert class_activation_label(logits, torch.ones(1, 2, dtype=torch.bool)).item() == 1


def test_smoothing_spreads_a_share_over_all_classes() -> None:
    assert torch.allclose(label_weights(torch.tensor([1]), 4, 0.1), torch.tensor([[0.025, 0.925, 0.025, 0.025]]))
