"""Parts of the trainer: compiled steps, how often it evaluates, what its seeds draw."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmark.config.sections import Train
from benchmark.config.selection import select
from benchmark.trainer.candidates import candidate_set
from benchmark.trainer.loading import dataset_of, entry_of
from benchmark.trainer.summary import summarise
from benchmark.trainer.trainer import Compiled, Trainer, evaluates
from methods.registry import load
from tests.conftest import TINY, TinyBenchmark
from tests.support.killing import documents

Groups = list[dict[str, Any]]


def test_compiling_is_told_apart_from_ordinary_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def pass_time(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(torch, "compile", lambda function: function)
    monkeypatch.setattr("benchmark.trainer.trainer.time.perf_counter", lambda: now)
    step = Compiled(pass_time)
    for seconds in (0.3, *[0.001] * 9, 0.2, *[0.001] * 9):  # a second graph, as when a warm-up ends
        step(seconds)
    assert step.compile_seconds() == pytest.approx(0.5 - 2 * 0.001)
    step(0.001)
    assert step.compile_seconds() == 0.0


def test_rare_evaluation_keeps_the_last_epoch_and_changes_no_weight(
    forked_benchmark: Callable[..., TinyBenchmark],
) -> None:
    words = ("run", "--methods", "proden", "--seeds", "0")
    always, rarely = forked_benchmark("always"), forked_benchmark("rarely")
    always.run(*words, check=True)
    rarely.run(*words, "--set", "train.eval_every=2", check=True)
    (path,) = rarely.results.glob("runs/*/*/*/metrics.jsonl")
    evaluated = ["test_accuracy" in json.loads(line)["result"] for line in path.read_text().splitlines()]
    assert evaluated == [False, True, True]
    (one,), (other,) = always.documents(), rarely.documents()
    assert one["weights_sha256"] == other["weights_sha256"]
    assert one["summary"]["accuracy"] == other["summary"]["accuracy"]


def test_a_long_training_evaluates_all_of_its_last_epochs() -> None:
    settings = Train(epochs=500, eval_every=5)
    evaluated = [epoch + 1 for epoch in range(500) if evaluates(settings, epoch)]
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


def test_the_data_s_seed_draws_the_data_and_the_run_s_seed_the_training(tmp_path: Path) -> None:
    profile = tmp_path / "tiny.toml"
    profile.write_text(TINY + "split = -1\n", encoding="utf-8")

    def begun(seed: int, data: int) -> Trainer:
        settings = (f"data.seed={data}", "train.holdout=0.2")
        (spec,) = select(str(profile), methods="proden", seeds=str(seed), settings=settings).specs()
        dataset = dataset_of(spec, tmp_path)
        sets = candidate_set(spec, dataset, tmp_path)
        return Trainer(spec, load(entry_of(spec)), dataset, sets.matrix, torch.device("cpu"))

    def weights(trainer: Trainer) -> torch.Tensor:
        return torch.cat([p.detach().flatten() for p in trainer.method.parameters()])

    base, other_data, other_training = begun(0, 0), begun(0, 1), begun(1, 0)
    assert torch.equal(base.candidates, other_training.candidates) and torch.equal(base.rows, other_training.rows)
    assert not torch.equal(base.candidates, other_data.candidates) and not torch.equal(base.rows, other_data.rows)
    assert torch.equal(weights(base), weights(other_data)) and not torch.equal(weights(base), weights(other_training))
    assert torch.equal(base.order(0).argsort(), other_data.order(0).argsort())
    assert not torch.equal(base.order(0).argsort(), other_training.order(0).argsort())
