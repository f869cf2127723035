"""Whole trainings on the pretend CUDA device: every method, with evaluation and hooks, bit for bit as on the CPU."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import torch

from benchmark.contract.pretend import PretendCuda
from benchmark.runner.pool import start_method
from benchmark.trainer import device as trainer_device
from benchmark.trainer.trainer import Trainer, weights_digest
from methods.registry import discover
from tests.support.pretend import pictures_of_many_sizes, results, rounding_of_cuda, trainer_on


def trained(trainer: Trainer) -> tuple[str, list[dict[str, object]]]:
    records = [trainer.train_epoch() for _ in range(trainer.epochs)]
    return weights_digest(trainer.method), results(records)


@pytest.mark.parametrize("method", discover().entries)
def test_a_whole_training_is_that_of_the_cpu(method: str) -> None:
    with rounding_of_cuda():
        on_cpu = trained(trainer_on("cpu", method))
    with PretendCuda():
        on_device = trained(trainer_on("cuda", method))
    assert on_device == on_cpu


def test_the_number_of_the_card_may_be_left_out_and_a_second_card_does_the_same() -> None:
    digests = []
    for name, card in (("cuda", 0), ("cuda:0", 0), ("cuda:1", 1)):
        with PretendCuda(index=card):
            trainer = trainer_on(name, "proden")
            assert trainer.device == torch.device("cuda", card)
            digests.append(trained(trainer)[0])
    assert len(set(digests)) == 1


@pytest.mark.parametrize("free", [2**36, 0], ids=["resident", "staged"])
def test_pictures_of_many_sizes_come_from_their_mapped_file(free: int, tmp_path: Path) -> None:
    """At 224 px the CPU crops by another kernel, so weak views differ here and there; the plain view is the same."""
    task, rows, names = pictures_of_many_sizes(folder=tmp_path), torch.arange(8), ("plain", "weak")
    plain, weak = trainer_on("cpu", "proden", task, batch=8).inputs.train_views(rows, names, 0)
    with PretendCuda() as device, pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "mem_get_info", lambda *_: (free, free))
        trainer = trainer_on("cuda", "proden", task, batch=8)
        views = [view.cpu() for view in trainer.inputs.train_views(rows, names, 0)]
        trainer.begin_epoch()
        device.waits.clear()
        for batch in trainer.batches(trainer.order(0), 0):
            trainer.step(batch)
        assert not device.waits
        trainer.end_epoch()
        accuracy = trainer.evaluator.evaluate(trainer.method, trainer.autocast())["test_accuracy"]
    assert torch.equal(views[0], plain)
    assert (views[1] != weak).double().mean() < 0.02
    assert 0 <= accuracy <= 100


def test_the_last_run_leaves_no_memory_behind() -> None:
    gc.collect()
    gc.disable()
    try:
        trainer = trainer_on("cpu", "proden")
        trainer.train_epoch()
        alive = weakref.ref(trainer)
        weights = weakref.ref(next(trainer.method.parameters()))
        del trainer
        assert alive() is None and weights() is None
    finally:
        gc.enable()


def test_a_process_that_has_trained_on_a_card_does_not_fork_its_workers() -> None:
    trainer_device.pretended = False  # as in a new process; the pretend device sets it again
    assert [start_method(device) for device in ("cpu", "cuda:0")] == ["fork", "spawn"]
    with PretendCuda():
        trainer_on("cuda", "proden").train_epoch()
    assert start_method("cpu") == "spawn"
