"""Shared by all tests: one thread, a tiny benchmark in a temporary folder, and the command line as a real process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

from benchmark.cli.main import application
from tests.support.forking import Command, Limit

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]

TINY = """
title = "tiny"
seeds = [0, 1]
methods = ["proden", "cc"]
datasets = ["digits"]

[train]
epochs = 3
batch = 32
lr = 0.05

[data.digits]
settings = { test = 1500 }
generator = "uniform"
rate = 0.2
"""


def command_of(words: Sequence[str]) -> tuple[click.Command, list[str]]:
    """Return the command that a command line calls and the words that are left for it."""
    command: click.Command = application
    rest = list(words)
    while isinstance(command, click.Group):
        command = command.commands[rest.pop(0)]
    return command, rest


@dataclass
class TinyBenchmark:
    """A results folder and a profile that trains in a second or two. Commands are forked, see tests/support/forking.py."""

    folder: Path
    profile: Path

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def arguments(self, *words: str) -> list[str]:
        """A command in this folder: the options that say so, as far as the command takes them and `words` do not."""
        places = {"results": self.results, "data": self.folder / "data", "profile": self.profile, "device": "cpu"}
        taken = places.keys() & {parameter.name for parameter in command_of(words)[0].params}
        options = [
            word
            for name in places
            if name in taken and f"--{name}" not in words
            for word in (f"--{name}", str(places[name]))
        ]
        return [sys.executable, "-m", "benchmark", *words, *options]

    def run(
        self, *words: str, check: bool = False, folder: Path = ROOT, limit: Limit | None = None
    ) -> subprocess.CompletedProcess[str]:
        """One command to its end."""
        command = self.start(*words, folder=folder, limit=limit)
        out, err = command.communicate(timeout=600)
        assert not check or command.returncode == 0, out + err
        return subprocess.CompletedProcess(words, command.returncode, out, err)

    def start(self, *words: str, folder: Path = ROOT, limit: Limit | None = None) -> Command:
        """The same without waiting, in its own process group."""
        return Command(self.arguments(*words)[3:], folder, limit)

    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.results.glob("runs/*/*/*/run.json"))]

    def results_only(self) -> dict[str, Any]:
        """What must be equal between any two ways to the same run: result fields of every epoch, summary, weights."""
        found = {}
        for path in sorted(self.results.glob("runs/*/*/*/run.json")):
            document = json.loads(path.read_text())
            lines = (path.parent / "metrics.jsonl").read_text().splitlines()
            epochs = [json.dumps(json.loads(line)["result"], sort_keys=True) for line in lines]
            key = f"{document['dataset']}/{document['label']}/{document['seed']}/{document['identity']}"
            digests = (document.get("weights_sha256"), document.get("files"))
            found[key] = (document["status"], document.get("summary"), digests, epochs)
        return found


@pytest.fixture
def tiny_benchmark(tmp_path: Path) -> TinyBenchmark:
    return make_tiny(tmp_path)


def make_tiny(folder: Path, text: str = TINY) -> TinyBenchmark:
    profile = folder / "tiny.toml"
    profile.write_text(text)
    return TinyBenchmark(folder, profile)


@pytest.fixture
def forked_benchmark(tmp_path: Path) -> Callable[..., TinyBenchmark]:
    """Several tiny benchmarks in one test: `forked_benchmark("a", text)`."""

    def make(name: str, text: str = TINY) -> TinyBenchmark:
        folder = tmp_path / name
        folder.mkdir()
        return make_tiny(folder, text)

    return make
