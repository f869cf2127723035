"""Damaged, foreign and hostile checkpoints: never a wrong result, never code that runs."""

from __future__ import annotations

import io
import os
import pickle
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmark.config.selection import select
from benchmark.config.spec import RunSpec
from benchmark.store import StoredRun
from benchmark.trainer import checkpoint
from benchmark.trainer.loading import dataset_of, entry_of
from benchmark.trainer.trainer import Hooks, Interrupted, Trainer, weights_digest
from methods.registry import load
from tests.conftest import TINY, make_tiny

IDENTITY = "1" * 64
SHORT = (
    TINY.replace("test = 1500", "test = 1740")
    .replace("epochs = 3", "epochs = 4\neval_every = 4")
    .replace("batch = 32", "batch = 16")
)
Result = tuple[list[dict[str, Any]], str]


class Bench:
    """One run that was stopped in the middle of its third epoch, with both generations of checkpoints."""

    def __init__(self, folder: Path) -> None:
        profile = make_tiny(folder, SHORT).profile
        self.specs = select(str(profile), seeds="0").specs()
        self.dataset = dataset_of(self.specs[0], folder / "data")
        classes = self.dataset.num_classes
        self.candidates = torch.rand(len(self.dataset.train), classes, generator=torch.manual_seed(0)) < 0.3
        self.candidates[torch.arange(len(self.dataset.train)), self.dataset.train.labels] = True
        self.stopped = folder / "stopped"
        self.bomb = folder / "the bomb went off"
        self.expected = self.run(self.specs[0], folder / "whole")
        self.stop_after(self.specs[0], self.stopped, 8)
        self.other = folder / "other"
        self.stop_after(self.specs[1], self.other, 5)
        assert {p.name for p in self.stopped.iterdir()} >= {checkpoint.CURRENT, checkpoint.PREVIOUS, "metrics.jsonl"}

    def trainer(self, spec: RunSpec, hooks: Hooks | None = None) -> Trainer:
        return Trainer(spec, load(entry_of(spec)), self.dataset, self.candidates, torch.device("cpu"), hooks)

    def run(self, spec: RunSpec, folder: Path) -> Result:
        folder.mkdir(exist_ok=True)
        trainer = self.trainer(spec)
        records = trainer.run(StoredRun(folder), IDENTITY)
        return [record["result"] for record in records], weights_digest(trainer.method)

    def stop_after(self, spec: RunSpec, folder: Path, steps: int) -> None:
        folder.mkdir()
        left = iter(range(steps))
        hooks = Hooks(lambda: next(left, None) is None, checkpoint_seconds=0.0)
        with pytest.raises(Interrupted):
            self.trainer(spec, hooks).run(StoredRun(folder), IDENTITY)

    def copy(self, name: Path) -> Path:
        shutil.rmtree(name, ignore_errors=True)
        shutil.copytree(self.stopped, name)
        return name

    def changed(self, change: Callable[[dict[str, Any]], Any]) -> bytes:
        """A whole checkpoint with a changed state, as somebody who knows the format can make it."""
        state = checkpoint.read(self.stopped / checkpoint.CURRENT, IDENTITY)
        change(state)
        return checkpoint.sealed(saved(state), IDENTITY)

    def check_damaged(self, folder: Path, name: str, both: bool, rng: random.Random) -> None:
        """Damage the newest generation of a copy of the run, or both, and train it to the end."""
        files = [checkpoint.CURRENT, checkpoint.PREVIOUS][: 2 if both else 1]
        damaged = [MUTATIONS[name](self, (folder / file).read_bytes(), rng) for file in files]
        for file, content in zip(files, damaged, strict=True):
            (folder / file).write_bytes(content)
        check(self, folder)
        assert sorted(path.name for path in folder.glob("*.damaged")) == sorted(f"{file}.damaged" for file in files)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("checkpoints"))


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def saved(state: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def drop_weight(state: dict[str, Any]) -> None:
    state["method"].popitem()


def widen_weight(state: dict[str, Any]) -> None:
    name = next(iter(state["method"]))
    state["method"][name] = torch.zeros(3, 3)


def momentum_of_another(state: dict[str, Any]) -> None:
    state["optimizer"]["torch"]["state"][0]["momentum_buffer"] = torch.zeros(2)


def flip(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


Mutation = Callable[[Bench, bytes, random.Random], bytes]
MUTATIONS: dict[str, Mutation] = {
    **{f"truncated-{k}": lambda v, d, r: d[: r.randrange(1, len(d))] for k in range(3)},
    **{f"bit-flipped-{k}": lambda v, d, r: flip(d, r) for k in range(3)},
    "empty": lambda v, d, r: b"",
    "header only": lambda v, d, r: d.partition(b"\n")[0],
    "header and newline": lambda v, d, r: d.partition(b"\n")[0] + b"\n",
    "zeros": lambda v, d, r: bytes(len(d)),
    "longer": lambda v, d, r: d + b"tail",
    "another identity": lambda v, d, r: checkpoint.sealed(d.partition(b"\n")[2], "2" * 64),
    "another method": lambda v, d, r: (v.other / checkpoint.CURRENT).read_bytes(),
    "a pickle": lambda v, d, r: pickle.dumps(Bomb(v.bomb)),
    "a pickle behind a header": lambda v, d, r: checkpoint.sealed(pickle.dumps(Bomb(v.bomb)), IDENTITY),
    "a bomb in a state": lambda v, d, r: checkpoint.sealed(saved({"method": Bomb(v.bomb)}), IDENTITY),
    "no state": lambda v, d, r: checkpoint.sealed(saved([1, 2, 3]), IDENTITY),
    "a weight less": lambda v, d, r: v.changed(drop_weight),
    "a weight of another shape": lambda v, d, r: v.changed(widen_weight),
    "momentum of another shape": lambda v, d, r: v.changed(momentum_of_another),
    "an epoch beyond the end": lambda v, d, r: v.changed(lambda s: s.update(epoch=99)),
    "an epoch that is text": lambda v, d, r: v.changed(lambda s: s.update(epoch="1")),
    "an epoch without records": lambda v, d, r: v.changed(lambda s: s.update(epoch=3)),
    "an optimiser of another kind": lambda v, d, r: v.changed(lambda s: s.update(optimizer=3)),
}


def check(bench: Bench, folder: Path) -> None:
    assert bench.run(bench.specs[0], folder) == bench.expected
    assert not bench.bomb.exists()


BOTH = ("truncated-0", "bit-flipped-0", "empty", "another method", "a bomb in a state", "a weight less")


@pytest.mark.parametrize(("name", "both"), [(name, False) for name in MUTATIONS] + [(name, True) for name in BOTH])
def test_a_damaged_checkpoint_changes_no_result_and_runs_no_code(
    bench: Bench, tmp_path: Path, name: str, both: bool
) -> None:
    bench.check_damaged(bench.copy(tmp_path / "run"), name, both, random.Random(name))


def test_whole_checkpoints_are_used_not_trained_again(bench: Bench, tmp_path: Path) -> None:
    folder = bench.copy(tmp_path / "run")
    before = (folder / "metrics.jsonl").read_text()
    assert before.count("\n") == 2
    check(bench, folder)
    assert (folder / "metrics.jsonl").read_text().startswith(before)


def test_a_checkpoint_of_other_records_than_those_in_metrics_is_not_used(bench: Bench, tmp_path: Path) -> None:
    whole = (bench.stopped / "metrics.jsonl").read_text()
    edited = re.sub(r'"loss":[^,}]*', '"loss":0.25', whole, count=1)
    damaged = ("", "garbage\n", '{"epoch":1}\n', '{"epoch":0,"result":{"loss":"text"},"time":{"seconds":1}}\n')
    for text in (*damaged, edited):
        folder = bench.copy(tmp_path / "run")
        assert text != whole
        (folder / "metrics.jsonl").write_text(text)
        check(bench, folder)


def test_a_folder_in_the_place_of_a_checkpoint_is_set_aside(bench: Bench, tmp_path: Path) -> None:
    folder = bench.copy(tmp_path / "run")
    (folder / checkpoint.CURRENT).unlink()
    (folder / checkpoint.CURRENT).mkdir()
    check(bench, folder)


def test_a_kill_between_the_two_renames_of_a_save_loses_one_generation_at_most(bench: Bench, tmp_path: Path) -> None:
    folder = bench.copy(tmp_path / "run")
    (folder / checkpoint.CURRENT).rename(folder / "checkpoint-new.pt")
    check(bench, folder)


@pytest.mark.soak
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), name=st.sampled_from(sorted(MUTATIONS)), both=st.booleans())
def test_five_hundred_mutations(bench: Bench, tmp_path: Path, seed: int, name: str, both: bool) -> None:
    bench.check_damaged(bench.copy(tmp_path / "run"), name, both, random.Random(seed))
