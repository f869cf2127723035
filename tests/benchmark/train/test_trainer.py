"""Parts of the trainer: its SGD against torch's own, compiled steps, how often it evaluates."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmark.run.worker import summarise
from benchmark.train.optimizers import SGD
from benchmark.train.trainer import Compiled, Trainer
from tests.conftest import TinyBenchmark
from tests.support.killing import documents

Groups = list[dict[str, Any]]


def weights() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((3, 4), (4,), (2, 3, 2), (5,))]


def one_group(parameters: list[nn.Parameter]) -> Groups:
    return [{"params": parameters}]


def two_groups(parameters: list[nn.Parameter]) -> Groups:
    return [{"params": parameters[:2], "lr": 0.01}, {"params": parameters[2:], "weight_decay": 0.0}]


def trained(optimizer: torch.optim.SGD, step: Callable[[], Any], parameters: list[nn.Parameter]) -> list[Tensor]:
    """Six steps; the last parameter gets no gradient in the first three, the second none in the fifth."""
    generator = torch.Generator().manual_seed(1)
    for k in range(6):
        optimizer.zero_grad()
        for j, parameter in enumerate(parameters):
            gradient = torch.randn(parameter.shape, generator=generator)
            if not ((j == 3 and k < 3) or (j == 1 and k == 4)):
                parameter.grad = gradient
        step()
    return [p.detach() for p in parameters]


@pytest.mark.parametrize("groups", [one_group, two_groups])
@pytest.mark.parametrize("momentum", [0.9, 0.0])
def test_steps_are_those_of_torch_and_a_late_gradient_is_no_obstacle(
    groups: Callable[[list[nn.Parameter]], Groups], momentum: float
) -> None:
    settings: dict[str, Any] = {"lr": 0.1, "momentum": momentum, "weight_decay": 5e-2}
    known, ours = weights(), weights()
    torchs, own = torch.optim.SGD(groups(known), **settings), SGD(groups(ours), **settings)
    for a, b in zip(trained(torchs, torchs.step, known), trained(own, own.advance, ours), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
    for a, b in zip(known, ours, strict=True):
        assert torchs.state[a].keys() == own.state[b].keys()


def test_a_saved_state_goes_on_as_if_nothing_had_happened() -> None:
    parameters = weights()
    whole = SGD(one_group(parameters), lr=0.1, momentum=0.9)
    trained(whole, whole.advance, parameters)
    others = [nn.Parameter(p.detach().clone()) for p in parameters]
    resumed = SGD(one_group(others), lr=0.1, momentum=0.9)
    resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
    for a, b in zip(trained(whole, whole.advance, parameters), trained(resumed, resumed.advance, others), strict=True):
        assert torch.equal(a, b)


def test_gradient_scaling_finds_the_step() -> None:
    parameters, others = weights(), weights()
    plain, scaled = SGD(one_group(parameters), lr=0.1), SGD(one_group(others), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    torch.stack([p.square().sum() for p in parameters]).sum().backward()
    plain.advance()
    scaler.scale(torch.stack([p.square().sum() for p in others]).sum()).backward()
    scaler.step(scaled)
    assert all(torch.allclose(a, b) for a, b in zip(parameters, others, strict=True))
    before = [p.detach().clone() for p in others]
    scaled.clear()
    torch.stack([p.square().sum() * float("inf") for p in others]).sum().backward()
    scaler.update()
    scaler.step(scaled)
    assert all(torch.equal(a, b) for a, b in zip(before, others, strict=True)), "an overflow is skipped"


def test_compiling_is_told_apart_from_ordinary_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function: function)
    step = Compiled(lambda seconds: time.sleep(seconds))
    for seconds in (0.3, *[0.001] * 9, 0.2, *[0.001] * 9):  # a second graph, as when a warm-up ends
        step(seconds)
    assert 0.4 < step.compile_seconds() < 0.7
    step(0.001)
    assert step.compile_seconds() == 0.0


def test_rare_evaluation_keeps_the_last_epoch_and_changes_no_weight(
    forked_benchmark: Callable[..., TinyBenchmark],
) -> None:
    words = ("run", "--methods", "proden", "--seeds", "0")
    always, rarely = forked_benchmark("always"), forked_benchmark("rarely")
    always.run(*words, check=True)
    rarely.run(*words, "--eval-every", "2", check=True)
    (path,) = rarely.results.glob("runs/*/*/*/*/metrics.jsonl")
    evaluated = ["test_accuracy" in json.loads(line)["result"] for line in path.read_text().splitlines()]
    assert evaluated == [False, True, True]
    (one,), (other,) = always.documents(), rarely.documents()
    assert one["weights_sha256"] == other["weights_sha256"]
    assert one["summary"]["accuracy"] == other["summary"]["accuracy"]


def test_a_long_training_evaluates_all_of_its_last_epochs() -> None:
    plan = SimpleNamespace(epochs=500, settings={"eval_every": 5})
    evaluated = [epoch + 1 for epoch in range(500) if Trainer.evaluates(plan, epoch)]  # type: ignore[arg-type]
    assert evaluated == [*range(5, 491, 5), *range(491, 501)]


def test_the_mean_of_the_last_ten_epochs_reaches_no_further_back() -> None:
    def record(epoch: int) -> dict[str, Any]:
        return {"epoch": epoch, "result": {"test_accuracy": float(epoch)} if epoch % 4 == 3 or epoch == 29 else {}}

    summary = summarise([record(epoch) for epoch in range(30)])
    assert summary["accuracy_last10"] == (23 + 27 + 29) / 3
    assert summary["accuracy"] == summary["accuracy_oracle"] == 29


@pytest.mark.soak
def test_a_compiled_run_reports_what_compiling_took(tiny_benchmark: TinyBenchmark) -> None:
    """Needs a C++ compiler on a CPU, and half a minute."""
    words = ("--methods", "proden", "--datasets", "digits", "--seeds", "0", "--set", "train.compile=true")
    tiny_benchmark.run("run", *words, check=True)
    (document,) = documents(tiny_benchmark).values()
    assert document["cost"]["compile_seconds"] > 1
