"""What runs cost before they start: operations and memory from shapes, time from a few steps, the rest by ratios."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmark.device.pretend import PretendCuda
from benchmark.plan.selection import Choice, select
from benchmark.plan.spec import RunSpec
from benchmark.run import pace
from benchmark.run.estimate import Estimate, annotators_of, pair_of
from benchmark.run.memory import memory_lines
from benchmark.run.options import RunOptions
from benchmark.run.pace import Pace, Sample, pace_of
from benchmark.run.shapes import Counter, Outline, momentum_bytes, needs_of
from benchmark.run.worker import execute, prepare
from benchmark.train.candidates import plausible_candidates
from benchmark.train.loading import dataset_of, entry_of
from benchmark.train.trainer import Trainer
from datasets.views.recipes import CIFAR, FINE_GRAINED
from methods.base import Clock, TrainingData
from methods.registry import load
from tests.conftest import TinyBenchmark

NOWHERE = Path("/nowhere")


def specs_of(profile: str, **words: Any) -> list[RunSpec]:
    return select(profile, Choice(**words)).specs()


@pytest.mark.parametrize("method", ["proden", "cel", "pico", "idgp"])
def test_a_counted_step_is_the_measured_one(method: str) -> None:
    (spec,) = specs_of("quick", methods=method, datasets="digits", seeds="0")
    dataset = dataset_of(spec, NOWHERE)
    counted = needs_of(spec, Outline.of(dataset))
    trainer = Trainer(spec, load(entry_of(spec)), dataset, plausible_candidates(dataset), torch.device("cpu"))
    trainer.epoch = trainer.epochs * 3 // 4
    trainer.method.train()
    batch = trainer.batch(trainer.order(0)[: trainer.batch_size])
    there = [*trainer.method.parameters(), *trainer.method.buffers(), trainer.candidates, *batch.views]
    with Counter() as real:
        real.now += sum(t.numel() * t.element_size() for t in there) + momentum_bytes(trainer.method)
        trainer.step(batch)
    assert counted.flops == real.flops > 0
    assert counted.peak_bytes == pytest.approx(real.peak, rel=0.1)


def test_memory_is_known_without_data_weights_or_gpu_and_held_against_the_card() -> None:
    specs = specs_of("paper", methods="proden,nepll", datasets="cub200", seeds="0")
    estimate = Estimate(specs, RunOptions(NOWHERE, NOWHERE), {"cub200"})
    lines = memory_lines(estimate, specs, 24e9)
    assert lines[0].startswith("Memory           of tensors: nepll 25.") and "proden 4." in lines[0]
    assert lines[1].startswith("Too large        nepll on cub200: with 1.5 GB for CUDA and the pictures")
    assert "more than the 24.0 GB that a run has" in lines[1]
    assert "train.amp=bfloat16" in lines[1]
    assert len(memory_lines(estimate, specs, 32e9)) == 1


def test_mixed_precision_halves_what_a_step_keeps() -> None:
    """By counting, under autocast; its warning does not advise what is done already."""
    for profile, most in (("paper", 27), ("paper-bf16", 15)):
        specs = specs_of(profile, methods="idgp", datasets="cub200", seeds="0")
        estimate = Estimate(specs, RunOptions(NOWHERE, NOWHERE), {"cub200"})
        assert most - 3 < estimate.cost(specs[0]).peak_bytes / 1e9 < most
    assert len(memory_lines(estimate, specs, 24e9)) == 1
    assert "train.amp" not in memory_lines(estimate, specs, 12e9)[1]


def test_memory_of_a_cut_step_is_not_taken_for_that_of_a_whole_one() -> None:
    """A GPU times heavy methods on a few images of a batch."""
    (spec,) = specs_of("paper", methods="idgp", datasets="cub200", seeds="0")
    estimate = Estimate([spec], RunOptions(NOWHERE, NOWHERE), {"cub200"})
    estimate.paces[pair_of(spec)] = Pace(1.0, 0.0, 0.0, 0.0, 1.0, peak_bytes=4e9)
    assert estimate.cost(spec).peak_bytes > 20e9
    estimate.paces[pair_of(spec)] = Pace(1.0, 0.0, 0.0, 0.0, 1.0, peak_bytes=30e9)
    assert estimate.cost(spec).peak_bytes == 30e9


def test_on_a_card_a_run_is_timed_with_waits_and_its_memory_without_the_pictures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (spec,) = specs_of("quick", methods="proden", datasets="digits", seeds="0")
    dataset = dataset_of(spec, NOWHERE)
    monkeypatch.setattr(pace, "MOMENT", 0.01)
    with PretendCuda() as device, pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "memory_allocated", lambda _: 7e9)  # of pictures nearly all
        patch.setattr(torch.cuda, "max_memory_allocated", lambda _: 7.5e9)
        found = pace_of(spec, dataset, torch.device("cuda", 0), None)
    assert 0.5e9 < found.peak_bytes < 0.6e9
    assert any(what == "synchronize" and "run/pace.py" in where for what, where in device.waits)


def test_a_speed_to_reckon_with_needs_no_measurement() -> None:
    (spec,) = specs_of("paper", methods="proden", datasets="cifar100", seeds="0")
    seconds = [
        Estimate([spec], RunOptions(NOWHERE, NOWHERE), {"cifar100"}, tflops).cost(spec).seconds
        for tflops in (20.0, 40.0)
    ]
    # 0.43 TFLOP per step, 390 steps, 500 epochs, and 109 evaluations of 10,000 images with 1.1 GFLOP each
    assert seconds[0] == pytest.approx((500 * 390 * 0.427 + 109 * 11.1) / 20, rel=0.02)
    assert seconds[0] == pytest.approx(2 * seconds[1], rel=0.01)


def test_what_is_not_timed_follows_from_ratios_and_operations() -> None:
    specs = specs_of("paper", methods="proden,cc,rc", datasets="cifar100,cub200", seeds="0")
    estimate = Estimate(specs, RunOptions(NOWHERE, NOWHERE), {"cifar100", "cub200"})
    by = {pair_of(spec): spec for spec in specs}
    usual = Pace(step=1.0, hooks=0.0, once=0.0, evaluation=0.0, checkpoint_bytes=1.0)
    estimate.paces = {("proden", "cifar100"): usual, ("cc", "cifar100"): replace(usual, step=3.0)}
    estimate.paces["proden", "cub200"] = replace(usual, step=7.0)
    cc = estimate.cost(by["cc", "cub200"])  # as slow against PRODEN as on the other set
    assert cc.how == "ratio" and cc.seconds == pytest.approx(500 * 46 * 21, rel=0.02)
    rc = estimate.cost(by["rc", "cub200"])  # four passes of three, by their operations
    assert rc.how == "operations" and rc.seconds == pytest.approx(500 * 46 * 7 * 4 / 3, rel=0.02)


def test_one_cheap_method_is_timed_on_every_data_set_first(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = specs_of("quick", methods="idgp,cel,proden", datasets="glyphs,digits", seeds="0")
    estimate = Estimate(specs, RunOptions(NOWHERE, NOWHERE))
    order: list[tuple[str, str]] = []
    monkeypatch.setattr(estimate, "_time", order.append)
    estimate.measure()
    assert {order[0], order[1]} == {("proden", "glyphs"), ("proden", "digits")}
    assert {order[2][0], order[3][0]} == {"idgp", "cel"} and len(order) == 6


def test_other_candidate_sets_are_not_timed_again_and_fewer_rows_cost_less(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = ((), ("data.noise=0.2",), ("data.imbalance=100",), ("proden.update=sudden",))
    specs = [
        *(specs_of("quick", methods="proden", datasets="digits", seeds="0", settings=words)[0] for words in changes)
    ]
    estimate = Estimate(specs, RunOptions(NOWHERE, NOWHERE))
    order: list[tuple[str, str]] = []
    monkeypatch.setattr(estimate, "_time", order.append)
    estimate.measure()
    assert set(order) == {("proden", "digits"), ("proden[update=sudden]", "digits")} and len(order) == 2
    estimate.paces = {pair_of(specs[0]): Pace(step=1.0, hooks=9.0, once=0.0, evaluation=0.0, checkpoint_bytes=1.0)}
    usual, noisy, tail = (estimate.cost(spec) for spec in specs[:3])
    assert usual == noisy and tail.how == "timed" and 0.2 < tail.seconds / usual.seconds < 0.5


class Ticking:
    """A clock that stands still unless somebody works."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now


def test_hooks_are_counted_as_often_as_they_act_and_their_passes_are_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    (spec,) = specs_of("quick", methods="proden", datasets="digits", seeds="0", epochs=100)
    dataset, clock = dataset_of(spec, NOWHERE), Ticking()
    trainer = Sample(spec, load(entry_of(spec)), dataset, plausible_candidates(dataset), torch.device("cpu"))
    rows, seen = len(trainer.rows), 0

    def passing(images: torch.Tensor) -> torch.Tensor:
        nonlocal seen
        seen += len(images)
        clock.now += 0.01 * len(images)
        return images[:, 0, 0, :1]

    def hook(at: Clock, data: TrainingData) -> None:
        if at.epoch == 75:
            clock.now += 100.0  # once
        if at.epoch % 5 == 0:
            assert data.infer(passing).shape == (rows, 1)

    monkeypatch.setattr(trainer.method, "on_epoch_start", hook)
    monkeypatch.setattr(pace, "clock", clock)
    trainer.epoch = 75
    per_epoch, once = pace._hooks(trainer, share=1.0)
    assert seen == 64  # half a second of them
    assert per_epoch == pytest.approx(0.01 * rows / 5, rel=0.05) and once == pytest.approx(100, rel=0.01)
    assert trainer.epoch == 75


def test_annotators_are_in_it_once_per_data_set_until_they_are_there(tmp_path: Path) -> None:
    specs = specs_of("quick", methods="proden,cc", datasets="digits,glyphs")
    place = RunOptions(tmp_path, NOWHERE)
    found = annotators_of(specs, place)
    assert [spec.label for spec in found] == ["annotator of digits", "annotator of glyphs"]
    assert found[0].train.epochs == specs[0].annotator.epochs and found[0].method == "supervised"
    prepare(specs[0], place)
    assert [spec.dataset for spec in annotators_of(specs, place)] == [
        name for name in ("digits", "glyphs") if name != specs[0].dataset
    ]


def test_data_that_are_not_here_stop_a_command_before_anything_trains(tiny_benchmark: TinyBenchmark) -> None:
    words = ("--datasets", "digits,cifar100,cub200", "--seeds", "0")
    done = tiny_benchmark.run("run", *words)
    assert done.returncode == 1 and not tiny_benchmark.results.exists()
    lines = done.stderr.splitlines()
    assert "Nothing was trained, because data are missing. To go on with the others: --datasets digits." in lines[-3]
    assert lines[-2].startswith("cifar100 is not here: nothing in") and lines[-1].startswith("cub200 is not here")
    planned = tiny_benchmark.run("run", *words, "--dry-run")
    assert planned.returncode == 0 and planned.stdout.count("Missing data") == 2
    assert "`estimate --dry-run` counts it" in planned.stdout


def test_shapes_of_sets_that_are_not_here_are_known() -> None:
    from datasets import registry

    small, large = (Outline.of_source(registry.get(name), {}) for name in ("cifar100", "cub200"))
    assert small == Outline("cifar100", 50_000, 10_000, 100, CIFAR)
    assert large is not None and (large.recipe, large.backbone) == (FINE_GRAINED, "resnet34-imagenet")
    assert Outline.of_source(registry.get("lost"), {}) is None


@pytest.mark.soak
def test_an_estimate_is_within_30_percent_of_what_the_runs_then_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In seconds of the processor, so that a busy machine does not matter; the quick profile, one seed."""
    monkeypatch.setattr(pace, "clock", time.process_time)
    some = {"methods": "proden,cc,pico,pop,nepll,valen", "settings": ("dataset.train=800",), "epochs": 12}
    for words, limit in (({}, 300.0), (some, 20.0)):
        specs = specs_of("quick", seeds="0", **words)  # type: ignore[arg-type]
        place = RunOptions(tmp_path / str(limit), NOWHERE)
        estimate = Estimate(specs, place)
        estimate.measure(limit)
        for spec in specs:
            prepare(spec, place)
        started = time.process_time()
        assert all(execute(spec, place).status == "done" for spec in specs)
        took = time.process_time() - started
        assert sum(estimate.cost(spec).seconds for spec in specs) == pytest.approx(took, rel=0.3)
