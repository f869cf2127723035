"""Mixed precision: what is lowered and what is not."""

from __future__ import annotations

from typing import Any

import pytest
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


@pytest.mark.parametrize("method", ["rc", "lws"])
def test_a_second_pass_under_autocast_sees_the_new_weights(method: str) -> None:
    """Autocast keeps lowered copies of the weights; after the optimiser's step they must not be used again."""
    trainer = Subject(discover().get(method)).trainer(amp="bfloat16", lr=0.5)
    seen: list[torch.Tensor] = []
    network = trainer.method.get_submodule("network")
    network.register_forward_hook(lambda _, inputs, output: seen.append(output.detach().clone()))
    trainer.begin_epoch()
    trainer.step(trainer.batch(torch.arange(12)))
    assert len(seen) == 2 and not torch.equal(seen[0], seen[1])
