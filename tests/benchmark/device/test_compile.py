"""`train.compile`: the step and the state update of a method are one graph each, with one exception.

Traced on the CPU, and with fake tensors of a CUDA device: the compiler does not see the pretend device.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmark.train.trainer import Trainer
from methods.base import Batch, Clock, Method
from methods.registry import discover
from tests.support.pretend import trainer_on

BREAKS = {"nepll": 1}  # it forwards selected rows only, and a graph must know how many there are
FEW = ("proden", "rc", "valen")
METHODS = [pytest.param(m, marks=() if m in FEW else pytest.mark.soak) for m in discover().entries]


def late(method: str) -> tuple[Trainer, Batch, Clock]:
    trainer = trainer_on("cpu", method, epochs=20)
    trainer.epoch = 15
    trainer.begin_epoch()
    torch.compiler.reset()
    return trainer, trainer.batch(torch.arange(20)), trainer.clock()


def assert_one_graph(method: Method, batch: Batch, clock: Clock, breaks: int = 0) -> list[Any]:
    """The graphs of a step, which is cut at most so often; its state update never is."""
    whole = torch._dynamo.explain(method.training_step)(batch, clock)
    assert whole.graph_count >= 1 and whole.graph_break_count <= breaks, whole.break_reasons
    if type(method).after_step is not Method.after_step:
        step = method.training_step(batch, clock)
        with torch.no_grad():
            update = torch._dynamo.explain(method.after_step)(batch, step, clock)
        assert update.graph_count == 1 and update.graph_break_count == 0, update.break_reasons
    torch.compiler.reset()
    return whole.graphs


def complete_fake_tensors() -> None:
    """Torch has no shapes-only form of the two operations behind `Dirichlet.rsample`: results are shaped as the first input."""
    for op in ("aten::_sample_dirichlet", "aten::_dirichlet_grad"):
        torch.library.register_fake(op, lambda first, *_, **__: torch.empty_like(first))


@pytest.mark.parametrize("method", METHODS)
def test_a_step_is_one_graph(method: str) -> None:
    trainer, batch, clock = late(method)
    assert_one_graph(trainer.method, batch, clock, BREAKS.get(method, 0))


@pytest.mark.parametrize("method", [one for one in METHODS if one.values[0] not in BREAKS])
def test_a_step_on_a_card_is_one_graph(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without values: a step that is cut would ask for one between its graphs, so NEPLL is left to the CPU."""
    trainer, batch, clock = late(method)
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    torch._C._ensureCUDADeviceGuardSet()
    complete_fake_tensors()

    def there(tensor: Tensor) -> Tensor:
        empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda:0")
        return empty.requires_grad_(tensor.requires_grad)

    before = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with FakeTensorMode():
            trainer.method._apply(there)
            sent = dataclasses.replace(
                batch,
                views=tuple(map(there, batch.views)),
                candidates=there(batch.candidates),
                index=there(batch.index),
            )
            graphs = assert_one_graph(trainer.method, sent, clock)
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(before)
    values = [node.meta.get("example_value") for graph in graphs for node in graph.graph.nodes]
    assert any(isinstance(value, Tensor) and value.device == torch.device("cuda:0") for value in values)
