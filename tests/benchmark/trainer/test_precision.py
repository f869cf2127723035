"""Mixed precision: what is lowered and what is not."""

from __future__ import annotations

from typing import Any

import torch

from benchmark.contract.subject import Subject
from methods.registry import discover


def test_backward_passes_run_outside_autocast() -> None:
    """Inside it, products that a loss had kept in float32 would be lowered on their way back."""
    trainer = Subject(discover().get("proden")).trainer(amp="bfloat16")
    seen: dict[str, bool] = {}
    head: Any = trainer.method.get_submodule("network.head")
    head.register_forward_hook(lambda *_: seen.update(forward=torch.is_autocast_enabled("cpu")))
    head.weight.register_hook(lambda _: seen.update(backward=torch.is_autocast_enabled("cpu")))
    trainer.train_epoch()
    assert seen == {"forward": True, "backward": False}
