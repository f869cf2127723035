"""ABS-MAE and ABS-GCE beyond their golden numbers: their ends, their bounds, and that they learn."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from methods.abs import AbsGCE, AbsMAE
from tests.support import tiny


@pytest.mark.parametrize("method_class", [AbsMAE, AbsGCE])
def test_bfloat16_does_not_lower_the_precision_of_the_loss(method_class: Any) -> None:
    method = method_class(method_class.Config(), tiny.tiny_task())
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    candidates = torch.tensor([[True, True, False]]).expand(4, -1)
    plain = method.loss(logits, candidates)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(method.loss(logits, candidates), plain)
        assert method.loss(logits.bfloat16(), candidates).dtype == torch.float32
