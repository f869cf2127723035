"""What must hold on a GPU: golden vectors, agreement with the CPU, exact repetition and resume, no host synchronisation.

`./reproduce.sh test -m gpu` tries all methods on the first CUDA device. Default runs try a few of them on the pretend
device, so that these tests themselves stay correct on machines without a GPU.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmark.config.resolution import Override
from benchmark.contract.subject import coloured_images
from benchmark.runner.devices import cuda_devices
from benchmark.store import StoredRun
from benchmark.trainer.trainer import Hooks, Interrupted, Trainer, weights_digest
from datasets.views.recipes import CIFAR
from datasets.views.views import Views
from methods.base import Batch
from methods.registry import discover
from tests.conftest import ROOT, TinyBenchmark
from tests.support.pretend import trainer_on
from tests.support.vectors import FOLDER, assert_golden, cases

METHODS = list(discover().entries)
SUBJECTS = sorted({subject for subject, _ in cases(FOLDER) if (ROOT / "methods" / f"{subject}.py").exists()})
# Methods that draw random numbers in training. The generator of a GPU returns other numbers than that of the CPU.
RANDOM = {"alim", "fredis", "nepll", "papi", "solar", "valen", "valen-three-views", "valen-paper"}
DETERMINISTIC = [method for method in METHODS if method not in RANDOM]
ASYNCHRONOUS = [method for method in METHODS if method != "nepll"]  # NEPLL must count the rows that it selects
LOSS_TOLERANCE = 1e-3  # relative, of a mean loss; weights that differ by 1e-6 change it by less than 3e-5
VIEW_TOLERANCE = 0.005  # share of the values of a view that may differ: nearest neighbours at near ties


def on_devices(names: Iterable[str], pretend: Iterable[str]) -> list[Any]:
    """Return test parameters: `names` on a GPU, and in default runs `pretend` on the pretend device."""
    on_gpu = [pytest.param("cuda", name, marks=pytest.mark.gpu) for name in names]
    return [pytest.param("pretend", name) for name in pretend] + on_gpu


def with_dropout(method: str) -> list[Override]:
    """Return the dropout rate that a method has by default; the profile `quick` sets it to zero."""
    setting = discover().get(method).config.get("dropout")
    return [Override(method, "dropout", f"{setting.default:g}")] if setting else []


def train(trainer: Trainer) -> str:
    for _ in range(trainer.epochs):
        trainer.train_epoch()
    return weights_digest(trainer.method)


@pytest.mark.parametrize(("device", "subject"), on_devices(SUBJECTS, ["proden", "pico"]), indirect=["device"])
def test_golden_vectors(device: str, subject: str) -> None:
    for name, case in cases(FOLDER):
        if name == subject:
            assert_golden(FOLDER, subject, case, device)


@pytest.mark.parametrize("device", ["pretend", pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize("view", ["plain", "weak", "strong", "distill"])
def test_views_agree_with_the_cpu(device: str, view: str) -> None:
    images, make = coloured_images(24, 5).images, Views(CIFAR, 0)
    (on_device,), (on_cpu,) = (make(x, torch.arange(24), (view,), 1) for x in (images.to(device), images))
    different = float((on_device.cpu() != on_cpu).double().mean())
    assert different <= (0 if view == "plain" else VIEW_TOLERANCE)


def mean_losses(device: str, method: str) -> list[float]:
    """Return the mean loss of every epoch of a training whose views are made on the CPU."""
    trainer, source = (trainer_on(place, method, batch=20, tf32="off") for place in (device, "cpu"))
    losses = []
    for epoch in range(trainer.epochs):
        trainer.epoch = source.epoch = epoch
        trainer.step_in_epoch = 0
        trainer.begin_epoch()
        for batch in source.batches(source.order(epoch), 0):
            trainer.step(to_device(batch, trainer.device))
        trainer.end_epoch()
        losses.append(trainer.means.read()["loss"])
    return losses


def to_device(batch: Batch, device: torch.device) -> Batch:
    views = tuple(view.to(device) for view in batch.views)
    return dataclasses.replace(batch, views=views, candidates=batch.candidates.to(device), index=batch.index.to(device))


@pytest.mark.parametrize(("device", "method"), on_devices(DETERMINISTIC, ["pico", "cel"]), indirect=["device"])
def test_a_short_training_agrees_with_the_cpu(device: str, method: str) -> None:
    assert mean_losses(device, method) == pytest.approx(mean_losses("cpu", method), rel=LOSS_TOLERANCE)


@pytest.mark.parametrize(("device", "method"), on_devices(METHODS, ["cel"]), indirect=["device"])
def test_the_same_training_twice_gives_the_same_weights(device: str, method: str) -> None:
    first, second = (train(trainer_on(device, method, overrides=with_dropout(method))) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("device", "method"), on_devices(METHODS, ["proden", "pico", "cel", "nepll", "valen"]), indirect=["device"]
)
def test_a_training_that_is_stopped_and_resumed_gives_the_same_weights(
    device: str, method: str, tmp_path: Path
) -> None:
    """Stop after every second step."""
    dropout, folder = with_dropout(method), StoredRun(tmp_path)
    whole = train(trainer_on(device, method, overrides=dropout))
    for _ in range(10):
        hooks = Hooks(stop=itertools.cycle([False, True]).__next__)
        trainer = trainer_on(device, method, hooks=hooks, overrides=dropout)
        try:
            trainer.run(folder, "identity")
        except Interrupted:
            continue
        assert weights_digest(trainer.method) == whole
        return
    pytest.fail("the training never ended")


@pytest.mark.parametrize(("device", "method"), on_devices(ASYNCHRONOUS, ASYNCHRONOUS), indirect=["device"])
def test_no_host_synchronisation_inside_a_training_step(device: str, method: str) -> None:
    """Late in training, when warm-ups are over. torch raises where the host waits for the device."""
    trainer = trainer_on(device, method, overrides=with_dropout(method), epochs=20)
    trainer.epoch = 15
    trainer.begin_epoch()
    first, second = trainer.batches(trainer.order(15), 0)
    trainer.step(first)
    torch.cuda.set_sync_debug_mode("error")
    try:
        trainer.step(second)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
def test_there_is_one_worker_per_gpu(device: str, tiny_benchmark: TinyBenchmark) -> None:
    """On a CPU, where the number of workers must be given, one worker per job."""
    slots = ["cpu", "cpu"] if device == "cpu" else cuda_devices()
    jobs = ["--jobs", "2"] if device == "cpu" else []
    seeds = ",".join(map(str, range(2 * len(slots))))
    kind = device.partition(":")[0]
    tiny_benchmark.run("run", "--methods", "proden", "--seeds", seeds, "--device", kind, *jobs, check=True)
    workers = {(run["time"]["pid"], run["environment"]["device"]) for run in tiny_benchmark.documents()}
    assert sorted(place for _, place in workers) == sorted(slots)
