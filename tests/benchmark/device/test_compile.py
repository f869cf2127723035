"""`train.compile`: the step and the state update of a method are one graph each, with two exceptions."""

from __future__ import annotations

import pytest
import torch

from methods.base import Method
from methods.registry import discover
from tests.support.pretend import trainer_on

# NEPLL forwards selected rows only, and a graph must know how many there are; VALEN asks torch's `kl_divergence`.
BREAKS = {"nepll": 1, "valen": 5}
FEW = ("proden", "rc")


@pytest.mark.parametrize(
    "method", [pytest.param(m, marks=() if m in FEW else pytest.mark.soak) for m in discover().entries]
)
def test_a_step_is_one_graph(method: str) -> None:
    trainer = trainer_on("cpu", method, epochs=20)
    trainer.epoch = 15
    trainer.begin_epoch()
    batch, clock = trainer.batch(torch.arange(20)), trainer.clock()
    torch.compiler.reset()
    whole = torch._dynamo.explain(trainer.method.training_step)(batch, clock)
    assert whole.graph_count >= 1 and whole.graph_break_count <= BREAKS.get(method, 0), whole.break_reasons
    if type(trainer.method).after_step is not Method.after_step:
        step = trainer.method.training_step(batch, clock)
        with torch.no_grad():
            update = torch._dynamo.explain(trainer.method.after_step)(batch, step, clock)
        assert update.graph_break_count == 0, update.break_reasons
    torch.compiler.reset()
