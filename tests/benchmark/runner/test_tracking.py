"""Optional trackers: a real TensorBoard file read back; nothing is sent anywhere unless asked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmark.config.selection import select
from benchmark.config.spec import RunSpec
from benchmark.errors import UsageError
from benchmark.runner.tracking import check_tracker, following
from tests.conftest import TINY, TinyBenchmark, make_tiny

Make = Callable[..., TinyBenchmark]


def spec_of(folder: Path) -> RunSpec:
    return select(str(make_tiny(folder).profile)).specs()[0]


def record(epoch: int, accuracy: float) -> dict[str, Any]:
    return {"epoch": epoch, "result": {"test_accuracy": accuracy, "extra": None}, "time": {"seconds": 0.5}}


def scalars(folder: Path, tag: str) -> list[tuple[int, Any]]:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard"
    )
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, pytest.approx(event.value)) for event in events.Scalars(tag)]


def test_a_run_leaves_the_same_curve_in_tensorboard_as_in_its_records(forked_benchmark: Make) -> None:
    bench = forked_benchmark("bench", TINY)
    done = bench.run("run", "--methods", "cc", "--seeds", "0", "--track", "tensorboard")
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (path.parent for path in bench.results.glob("runs/*/*/*/run.json"))
    from benchmark.store import StoredRun

    expected = [(e["epoch"], e["result"]["test_accuracy"]) for e in StoredRun(folder).epochs()]
    assert scalars(folder / "tensorboard", "result/test_accuracy") == expected
    untracked = forked_benchmark("untracked", TINY)
    assert untracked.run("run", "--methods", "cc", "--seeds", "0").returncode == 0
    assert untracked.results_only() == bench.results_only()  # following changes nothing
    assert not list(untracked.results.glob("runs/**/tensorboard"))


def test_epochs_that_are_trained_again_replace_the_old_ones(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    for first, last, accuracy in ((0, 4, 10.0), (2, 6, 20.0)):
        with following("tensorboard", tmp_path, spec, "1" * 64) as on_epoch:
            for epoch in range(first, last):
                on_epoch(record(epoch, accuracy))
    values = dict(scalars(tmp_path / "tensorboard", "result/test_accuracy"))
    assert values == {0: 10.0, 1: 10.0, 2: 20.0, 3: 20.0, 4: 20.0, 5: 20.0}


@pytest.mark.parametrize("mode", ["offline", "online"])
def test_weights_and_biases_is_offline_unless_asked_and_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], mode: str
) -> None:
    """Against a stand-in, because the package may not be installed: what is called, with which mode, in which order."""
    calls: list[Any] = []

    def log(values: dict[str, float], step: int) -> None:
        calls.append((step, values))
        if step == 1:
            raise OSError("no space")

    def init(**options: Any) -> SimpleNamespace:
        calls.append((options["mode"], options["id"], options["dir"]))
        return SimpleNamespace(log=log, finish=lambda: calls.append("finish"))

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.setenv("WANDB_MODE", mode)
    if mode == "offline":
        monkeypatch.delenv("WANDB_MODE")
    with following("wandb", tmp_path, spec_of(tmp_path), "1" * 64) as on_epoch:
        for epoch in range(3):
            on_epoch(record(epoch, 3.0))
    numbers = {"result/test_accuracy": 3.0, "time/seconds": 0.5}
    assert calls == [(mode, "1" * 16, str(tmp_path)), (0, numbers), (1, numbers), "finish"]
    assert capfd.readouterr().err.count("wandb stopped following") == 1


def test_a_missing_package_is_one_sentence_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmark.runner.tracking.find_spec", lambda name: None)
    check_tracker("")
    for name in ("tensorboard", "wandb"):
        with pytest.raises(UsageError, match=f"pip install {name}"):
            check_tracker(name)
