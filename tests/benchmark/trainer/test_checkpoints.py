"""Damaged, foreign and hostile checkpoints: never a wrong result, never code that runs."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
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
from tests.support.killing import documents
from tests.support.plugins import write_plugin

IDENTITY = "1" * 64
SHORT = (
    TINY.replace("test = 1500", "test = 1740")
    .replace("epochs = 3", "epochs = 4\neval_every = 4")
    .replace("batch = 32", "batch = 16")
)
Result = tuple[list[dict[str, Any]], str]


@dataclass(frozen=True)
class Victim:
    """A stopped run whose checkpoints are to be damaged, the folder of another one, and where the bomb would leave a mark."""

    folder: Path
    identity: str
    other: Path
    bomb: Path

    def sealed(self, payload: bytes, identity: str = "") -> bytes:
        """A file whose digest is right, as somebody who knows the format can make it."""
        digest = hashlib.sha256(payload).hexdigest()
        header = {"magic": checkpoint.MAGIC, "identity": identity or self.identity, "sha256": digest}
        return json.dumps(header).encode() + b"\n" + payload

    def changed(self, change: Callable[[dict[str, Any]], Any]) -> bytes:
        """A whole checkpoint with a changed state."""
        state = checkpoint.read(self.folder / checkpoint.CURRENT, self.identity)
        change(state)
        return self.sealed(saved(state))

    def damage(self, name: str, folder: Path, rng: random.Random, both: bool) -> list[str]:
        """Damage the newest generation of a copy of the run, or both; returns the names of the files."""
        files = [checkpoint.CURRENT, checkpoint.PREVIOUS][: 2 if both else 1]
        damaged = [MUTATIONS[name](self, (folder / file).read_bytes(), rng) for file in files]
        for file, content in zip(files, damaged, strict=True):
            (folder / file).write_bytes(content)
        return files


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
        other = folder / "other"
        self.stop_after(self.specs[1], other, 5)
        self.victim = Victim(self.stopped, IDENTITY, other, self.bomb)
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


Mutation = Callable[[Victim, bytes, random.Random], bytes]
MUTATIONS: dict[str, Mutation] = {
    **{f"truncated-{k}": lambda v, d, r: d[: r.randrange(1, len(d))] for k in range(6)},
    **{f"bit-flipped-{k}": lambda v, d, r: flip(d, r) for k in range(6)},
    "empty": lambda v, d, r: b"",
    "one byte": lambda v, d, r: b"{",
    "header only": lambda v, d, r: d.partition(b"\n")[0],
    "header and newline": lambda v, d, r: d.partition(b"\n")[0] + b"\n",
    "zeros": lambda v, d, r: bytes(len(d)),
    "longer": lambda v, d, r: d + b"tail",
    "not JSON's kind": lambda v, d, r: b"[1, 2]\n" + d.partition(b"\n")[2],
    "nested without end": lambda v, d, r: b"[" * 100_000 + b"\n",
    "another identity": lambda v, d, r: v.sealed(d.partition(b"\n")[2], "2" * 64),
    "another method": lambda v, d, r: (v.other / checkpoint.CURRENT).read_bytes(),
    "a pickle": lambda v, d, r: pickle.dumps(Bomb(v.bomb)),
    "a pickle behind a header": lambda v, d, r: v.sealed(pickle.dumps(Bomb(v.bomb))),
    "a bomb in a state": lambda v, d, r: v.sealed(saved({"method": Bomb(v.bomb)})),
    "no state": lambda v, d, r: v.sealed(saved([1, 2, 3])),
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
    folder = bench.copy(tmp_path / "run")
    files = bench.victim.damage(name, folder, random.Random(name), both)
    check(bench, folder)
    assert sorted(path.name for path in folder.glob("*.damaged")) == sorted(f"{file}.damaged" for file in files)


STOPS = """        if clock.step == 8 and not os.path.exists({marker!r}):
            raise ValueError("stopped as asked")"""


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.soak)])
def test_a_sweep_over_damaged_checkpoints_gives_the_results_of_an_undamaged_one(
    forked_benchmark: Callable[..., Any], tmp_path: Path, every: int
) -> None:
    """The whole program: one stopped run per kind of damage, and the same command again."""
    mutations = list(MUTATIONS)[::every]
    marker, bomb = tmp_path / "go on", tmp_path / "the bomb went off"
    plugin = write_plugin(tmp_path, "stops", STOPS.format(marker=str(marker)))
    seeds = ",".join(str(seed) for seed in range(len(mutations) + 1))  # the last one stays whole
    words = ("run", "--plugin", str(plugin), "--methods", "stops", "--seeds", seeds, "--checkpoint-seconds", "0")
    bench = forked_benchmark("damaged", SHORT)
    assert bench.run(*words).returncode == 1
    folders = {document["seed"]: (path, document) for path, document in documents(bench).items()}
    assert all(document["status"] == "failed" for _, document in folders.values())
    other = folders[len(mutations)][0]
    for seed, name in enumerate(mutations):
        path, document = folders[seed]
        victim = Victim(path, document["identity"], other, bomb)
        victim.damage(name, path, random.Random(name), both=seed % 3 == 0)
    marker.touch()
    again = bench.run(*words)
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stderr.count("was set aside") >= len(mutations) and len(MUTATIONS) >= 30
    assert not bomb.exists()
    undamaged = forked_benchmark("undamaged", SHORT)
    assert undamaged.run(*words).returncode == 0
    assert bench.results_only() == undamaged.results_only()


def test_whole_checkpoints_are_used_not_trained_again(bench: Bench, tmp_path: Path) -> None:
    folder = bench.copy(tmp_path / "run")
    before = (folder / "metrics.jsonl").read_text()
    assert before.count("\n") == 2
    check(bench, folder)
    assert (folder / "metrics.jsonl").read_text().startswith(before)


def test_a_checkpoint_ahead_of_damaged_records_is_not_used(bench: Bench, tmp_path: Path) -> None:
    for text in ("", "garbage\n", '{"epoch":1}\n', '{"epoch":0,"result":{"loss":"text"},"time":{"seconds":1}}\n'):
        folder = bench.copy(tmp_path / "run")
        (folder / "metrics.jsonl").write_text(text)
        check(bench, folder)


def test_an_epoch_that_was_edited_before_the_resume_is_trained_again(bench: Bench, tmp_path: Path) -> None:
    folder = bench.copy(tmp_path / "run")
    first, *rest = (folder / "metrics.jsonl").read_text().splitlines()
    record = json.loads(first)
    record["result"]["test_accuracy"] = 99.9
    (folder / "metrics.jsonl").write_text("\n".join([json.dumps(record), *rest]) + "\n")
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
    folder = bench.copy(tmp_path / "run")
    bench.victim.damage(name, folder, random.Random(seed), both)
    check(bench, folder)
