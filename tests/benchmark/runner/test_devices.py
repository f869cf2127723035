"""A command takes the GPUs that torch can use, a different one for every worker."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmark.cli.options import default_profile
from benchmark.config.selection import select
from benchmark.contract.pretend import PretendCuda
from benchmark.errors import UsageError
from benchmark.runner import devices
from benchmark.runner.options import RunOptions
from benchmark.runner.pool import Session
from benchmark.runner.progress import Progress
from benchmark.runner.schedule import Schedule
from tests.conftest import ROOT


@pytest.fixture
def nvidia(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A machine with an NVIDIA device; whether torch can use it depends on the test."""
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter([Path("/dev/nvidia0")]))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    devices.usable_gpus.cache_clear()
    yield monkeypatch
    devices.usable_gpus.cache_clear()


def test_a_gpu_that_torch_cannot_use_is_reported_once_and_left_out(
    nvidia: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def too_old() -> bool:
        warnings.warn("The NVIDIA driver on your system is too old (found version 12040).", stacklevel=1)
        return False

    nvidia.setattr(torch.cuda, "is_available", too_old)
    assert default_profile({})[0] == "quick" and devices.resolve("auto") == ["cpu"]
    with pytest.raises(UsageError, match="no GPU that torch can use"):
        devices.resolve("cuda")
    assert capfd.readouterr().err.count("driver on your system is too old") == 1


def test_gpus_that_torch_can_use_are_listed(nvidia: pytest.MonkeyPatch) -> None:
    with PretendCuda(index=1):
        assert devices.resolve("cuda") == devices.resolve("auto") == ["cuda:0", "cuda:1"]
        assert devices.resolve("cuda:1") == ["cuda:1"] and default_profile({})[0] == "paper"
        nvidia.setenv("CUDA_VISIBLE_DEVICES", "")
        assert devices.resolve("auto") == ["cpu"]


def test_workers_that_see_the_same_gpus_take_different_ones(tmp_path: Path) -> None:
    """GPU 5 is one, whatever a worker calls it, and that of a dead worker is free again."""
    code = (
        "import sys; from benchmark.runner import devices; "
        "print(devices.claim(['cuda:0', 'cuda:1']), flush=True); sys.stdin.read()"
    )
    for count in (3, 2):  # of three workers two share a GPU
        processes = []
        for visible in ("5,4", "5,4", "4,5")[-count:]:
            environment = os.environ | {"TMPDIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": visible}
            command = [sys.executable, "-c", code]
            process = subprocess.Popen(command, cwd=ROOT, env=environment, text=True, stdin=-1, stdout=-1)
            processes.append((visible.split(","), process))
        taken = [names[int(p.stdout.readline().strip()[-1])] for names, p in processes if p.stdout]
        for _, process in processes:
            process.communicate()
        assert len(taken) == count and set(taken) == {"4", "5"}


@pytest.mark.parametrize(("grace", "saved"), [(0.1, False), (30.0, True)])
def test_a_checkpoint_that_takes_long_is_waited_for_as_long_as_asked(grace: float, saved: bool, tmp_path: Path) -> None:
    (spec,) = select("quick", methods="proden", datasets="digits", seeds="0").specs()
    progress = Progress(1, running={0: spec})  # which is saving
    session = Session(Schedule([], 1), [], RunOptions(tmp_path, tmp_path, grace=grace), progress)
    saving = threading.Timer(0.4, progress.running.clear)
    saving.start()
    session._stop_workers()
    assert bool(progress.running) != saved
    saving.join()


@pytest.mark.parametrize("text", ["0", "-1", "two", "2/cpu", "1/gpu", "", "²", "1.5", "9999999999"])
def test_jobs_that_mean_nothing_are_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="--jobs"):
        devices.parse_jobs(text, ["cpu"])


def test_jobs_are_spread_over_devices() -> None:
    two = ["cuda:0", "cuda:1"]
    assert devices.parse_jobs(None, two) == two
    assert devices.parse_jobs("3", two) == ["cuda:0", "cuda:1", "cuda:0"]
    assert devices.parse_jobs("2/gpu", two) == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]
    assert devices.parse_jobs("4", ["cpu"]) == ["cpu"] * 4
