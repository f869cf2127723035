"""Killing the processes of a command at random moments, and what a command leaves behind, for the tests on resuming."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmark.files import Lock, is_locked
from tests.conftest import TinyBenchmark
from tests.support.forking import Command

THIRTEEN = "cel,dirk,nepll,pop,idgp,able,valen,pico,cr-dpll,lws,rc,cc,proden"
EPOCHS = 6
SMALL = f"""
include = ["quick"]
title = "small"
seeds = [0]
controls = []
references = []
datasets = ["digits"]

[train]
epochs = {EPOCHS}
batch = 16
eval_every = 3

[data.digits]
settings = {{ test = 1700 }}
train = {{ epochs = {EPOCHS} }}
generator = "uniform"
rate = 0.2
"""
OFTEN = ("--checkpoint-seconds", "0.03")


def documents(bench: TinyBenchmark) -> dict[Path, dict[str, Any]]:
    """run.json by folder; written by rename, so it is whole whenever it is read."""
    found = {}
    for path in bench.results.glob("runs/*/*/*/run.json"):
        try:
            found[path.parent] = json.loads(path.read_text())
        except FileNotFoundError:
            continue
    return found


def epochs_recorded(folder: Path) -> int:
    try:
        return (folder / "metrics.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def kill_workers(
    bench: TinyBenchmark, command: Command, per_run: int, rng: random.Random, seconds: float = 0.04
) -> Counter[str]:
    """Kill the worker of every run `per_run` times, each at a random moment, until the command ends; kills by method.

    A moment is up to two epochs after those that the sitting found, and up to `seconds` more: it falls into start,
    steps, saving, evaluation and recording alike, on a fast machine as on a slow one.
    """
    kills: Counter[str] = Counter()
    moments: dict[tuple[Path, int], tuple[int, float]] = {}
    due: dict[tuple[Path, int], float] = {}
    while command.poll() is None:
        for folder, document in documents(bench).items():
            name, sitting = document["method"], (folder, document["time"]["sittings"])
            if document["status"] != "running" or kills[name] >= per_run:
                continue
            if sitting not in moments:
                moments[sitting] = (epochs_recorded(folder) + rng.randrange(3), rng.uniform(0, seconds))
            if sitting not in due and epochs_recorded(folder) >= moments[sitting][0]:
                due[sitting] = time.monotonic() + moments[sitting][1]
            if time.monotonic() >= due.get(sitting, float("inf")):
                due[sitting] = float("inf")
                kill(document["time"]["pid"])
                kills[name] += 1
        time.sleep(0.003)
    return kills


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def wait_until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """The first true value of `condition`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.003)
    raise AssertionError(f"{what} did not happen within {seconds:g} s")


def running(bench: TinyBenchmark, epochs: int = 1) -> list[Path]:
    """Folders of runs that are being trained and have recorded that many epochs."""
    return [
        folder
        for folder, document in documents(bench).items()
        if document["status"] == "running" and epochs_recorded(folder) >= epochs and is_locked(folder / "lock")
    ]


def locked(bench: TinyBenchmark) -> list[Path]:
    return [folder for folder in documents(bench) if is_locked(folder / "lock")]


@contextlib.contextmanager
def held_by_another_process(path: Path) -> Iterator[int]:
    """Have a process hold a lock, and kill it at the end; yields its id."""
    context = multiprocessing.get_context("fork")
    event = context.Event()
    owner = context.Process(target=_hold, args=(path, event))
    owner.start()
    try:
        assert event.wait(30)
        yield owner.pid or 0
    finally:
        owner.kill()
        owner.join()


def _hold(path: Path, event: multiprocessing.synchronize.Event) -> None:
    Lock(path).acquire()
    event.set()
    time.sleep(60)


def finish(command: Command, seconds: float = 120) -> tuple[int, str, str]:
    """Exit code and both outputs."""
    out, err = command.communicate(timeout=seconds)
    return command.returncode, out, err
