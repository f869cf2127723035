"""`train.compile`: the step and the state update of a method are one graph each, with one exception."""

from __future__ import annotations

import pytest
import torch

from methods.base import Method
from methods.registry import discover
from tests.support.pretend import trainer_on

BREAKS = {"nepll": 1}  # it forwards selected rows only, and a graph must know how many there are
FEW = ("proden", "rc", "valen")
METHODS = [pytest.param(m, marks=() if m in FEW else pytest.mark.soak) for m in discover().entries]


@pytest.mark.parametrize("name", METHODS)
def test_a_step_is_one_graph(name: str) -> None:
    trainer = trainer_on("cpu", name, epochs=20)
    trainer.epoch = 15
    trainer.begin_epoch()
    torch.compiler.reset()
    method, batch, clock = trainer.method, trainer.batch(torch.arange(20)), trainer.clock()
    whole = torch._dynamo.explain(method.training_step)(batch, clock)
    assert whole.graph_count >= 1 and whole.graph_break_count <= BREAKS.get(name, 0), whole.break_reasons
    if type(method).after_step is not Method.after_step:
        step = method.training_step(batch, clock)
        with torch.no_grad():
            update = torch._dynamo.explain(method.after_step)(batch, step, clock)
        assert update.graph_count == 1 and update.graph_break_count == 0, update.break_reasons
    torch.compiler.reset()
