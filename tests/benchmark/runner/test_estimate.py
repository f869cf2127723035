"""What runs cost before they start, measured with a few real steps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmark.config.selection import select
from benchmark.config.spec import RunSpec
from benchmark.contract.pretend import PretendCuda
from benchmark.runner import estimate
from benchmark.runner.estimate import PROBE, Cost, measure, measure_all, tasks_of
from benchmark.runner.options import RunOptions
from benchmark.runner.worker import prepare
from benchmark.trainer.loading import dataset_of
from benchmark.trainer.trainer import Trainer
from datasets.base import Dataset
from tests.conftest import TINY, TinyBenchmark

NOWHERE, CPU = Path("/nowhere"), torch.device("cpu")


def specs_of(profile: str, **words: Any) -> list[RunSpec]:
    return select(profile, **words).specs()


def cost_of(spec: RunSpec, device: torch.device = CPU) -> Cost:
    return measure(spec, 1, dataset_of(spec, NOWHERE), device)


@pytest.mark.parametrize("method", ["proden", "pop", "nepll", "valen", "solar"])  # all but the first have epoch hooks
def test_a_run_is_measured_with_its_real_trainer(method: str) -> None:
    (spec,) = specs_of("quick", methods=method, datasets="digits", seeds="0")
    cost = cost_of(spec)
    assert cost.seconds > 0 and cost.peak_memory_mb > 50 and not cost.reduced


def test_measured_seconds_are_scaled_to_all_epochs_rows_and_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten steps of 32 images last 1 s and an evaluation of 128 images lasts 0.5 s, say."""
    monkeypatch.setattr(estimate, "epoch_seconds", lambda trainer: (trainer.steps_per_epoch / 10, 0.5))
    seconds = {}
    for epochs in (8, 80):
        (spec,) = specs_of(
            "quick", methods="cc", datasets="digits", seeds="0", epochs=epochs, settings=["train.eval_every=4"]
        )
        seconds[epochs] = cost_of(spec).seconds
        steps = round(0.9 * 1297) // 32  # a tenth is held out
        assert seconds[epochs] == pytest.approx(epochs * steps / 10 + epochs // 4 * 0.5 * 500 / 128)
        assert measure(spec, 3, dataset_of(spec, NOWHERE), CPU).seconds == pytest.approx(3 * seconds[epochs])
    assert seconds[80] == pytest.approx(10 * seconds[8])


@pytest.mark.parametrize("reduced", [True, False])
def test_a_slow_step_is_measured_with_few_images_on_a_cpu_and_with_whole_batches_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, reduced: bool
) -> None:
    monkeypatch.setattr(estimate, "SLOW_STEP", 0.0)
    batches, real = [], estimate.small_trainer

    def small_trainer(spec: RunSpec, dataset: Dataset, device: torch.device, batch: int, steps: int) -> Trainer:
        batches.append(batch)
        return real(spec, dataset, device, batch, steps)

    monkeypatch.setattr(estimate, "small_trainer", small_trainer)
    (spec,) = specs_of("quick", methods="cc", datasets="digits", seeds="0")
    with contextlib.nullcontext() if reduced else PretendCuda():
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 7 * 2**20)
        cost = cost_of(spec, CPU if reduced else torch.device("cuda", 0))
    assert cost.reduced == reduced and batches == ([PROBE] if reduced else [PROBE, spec.train.batch])
    assert cost.seconds > 0 and (reduced or cost.peak_memory_mb == 7)


def test_runs_that_differ_in_seeds_or_candidate_labels_are_measured_once() -> None:
    changes = ((), ("data.noise=0.2",), ("data.imbalance=100",), ("proden.update=sudden",))
    specs = [
        spec for words in changes for spec in specs_of("quick", methods="proden", datasets="digits", settings=words)
    ]
    runs = [(spec.label, count) for spec, count in tasks_of(specs, []) if count]
    assert [count for _, count in runs] == [6, 3, 3] and runs[2][0] == "proden[update=sudden]"


def test_annotators_are_measured_once_per_dataset_until_they_are_trained(tmp_path: Path) -> None:
    specs, place = specs_of("quick", methods="proden,cc", datasets="digits,letter"), RunOptions(tmp_path, NOWHERE)
    tasks = tasks_of([], specs)
    assert [(spec.dataset, spec.label, count) for spec, count in tasks] == [
        (name, "annotator", 0) for name in ("digits", "letter")
    ]
    prepare(next(spec for spec in specs if spec.dataset == "digits"), place)
    costs, problems = measure_all(tasks, place, (), quiet=True)
    assert not problems and [(cost.dataset, cost.label) for cost in costs] == [("letter", "annotator")]


# the command ----------------------------------------------------------------------------------------------------------
Make = Callable[..., TinyBenchmark]


def row_of(text: str, name: str) -> list[str]:
    """The cells of a line of the table."""
    return next(line.split() for line in text.splitlines() if line.startswith(f"{name} "))


def test_finished_runs_cost_nothing(forked_benchmark: Make) -> None:
    bench = forked_benchmark("bench")
    first = bench.run("estimate", "run", "--jobs", "2")
    assert first.returncode == 0, first.stderr
    assert row_of(first.stdout, "digits")[1] == row_of(first.stdout, "Total")[1] == "4"
    assert not bench.results.exists()
    bench.run("run", "--seeds", "0")
    second = bench.run("estimate", "run", "--by-method")
    assert "4 runs, 2 done" in second.stdout and row_of(second.stdout, "Total")[1] == "2"
    assert sum(line.startswith("digits ") for line in second.stdout.splitlines()) == 2  # two methods
    bench.run("run")
    last = bench.run("estimate", "run")
    assert last.returncode == 0 and row_of(last.stdout, "Total")[1:4] == ["0", "0", "s"]


def test_a_missing_dataset_is_estimated_with_random_images(forked_benchmark: Make) -> None:
    bench = forked_benchmark("bench", TINY.replace('["digits"]', '["digits", "cifar100", "lost"]'))
    done = bench.run("estimate", "run", "--methods", "cc", "--set", "backbone.name=small-cnn", "--seeds", "0")
    assert done.returncode == 3, done.stderr  # nothing is known of the table
    assert "cifar100: nothing in" in done.stdout and row_of(done.stdout, "cifar100")[1] == "1"
    assert "Random images" in done.stdout and "on lost: lost is not on" in done.stdout


def test_data_that_are_not_here_stop_a_command_before_anything_trains(tiny_benchmark: TinyBenchmark) -> None:
    words = ("--datasets", "digits,cifar100,cub200", "--seeds", "0")
    done = tiny_benchmark.run("run", *words)
    assert done.returncode == 1 and not tiny_benchmark.results.exists()
    lines = done.stderr.splitlines()
    assert "Nothing was trained, because data are missing. To go on with the others: --datasets digits." in lines[-3]
    assert lines[-2].startswith("cifar100 is not here: nothing in") and lines[-1].startswith("cub200 is not here")
    planned = tiny_benchmark.run("run", *words, "--dry-run")
    assert planned.returncode == 0 and planned.stdout.count("Missing data") == 2
