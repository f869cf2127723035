"""examples/merge_results.py, as a real process on results folders as runs leave them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmark import store
from datasets.candidates.candidate_sets import CandidateSet, checksum, save
from tests.conftest import ROOT
from tests.support.fake_store import write_store

SCRIPT = [sys.executable, str(ROOT / "examples" / "merge_results.py")]


def filled(results: Path, methods: list[str], seeds: tuple[int, ...]) -> Path:
    """Write runs with the candidate sets that they were trained on."""

    def with_set(document: dict[str, Any]) -> None:
        matrix = torch.rand(30, 10, generator=torch.Generator().manual_seed(document["seed"])) < 0.5
        document["candidates_sha256"] = checksum(matrix.numpy())
        path = results / "candidates" / "fashion" / f"uniform-seed{document['seed']}.npz"
        save(path, CandidateSet(matrix, document["candidates_sha256"], {}))

    write_store(results, profile="quick", methods=methods, datasets=["fashion"], seeds=seeds, edit=with_set)
    return results


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return filled(tmp_path / "source", ["cel", "proden"], (0, 1))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return filled(tmp_path / "target", ["cel"], (0,))


def merge(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SCRIPT, *map(str, words)], text=True, capture_output=True, timeout=120)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def edit(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_missing_finished_runs_are_copied_with_their_sets(source: Path, target: Path) -> None:
    (failed,) = source.glob("runs/fashion/cel/seed1-*/run.json")
    edit(failed, status="failed")
    (both,) = target.glob("runs/fashion/cel/seed0-*/run.json")
    edit(both, weights_sha256="0" * 64)
    before = files(target)
    planned = merge(source, target, "--dry-run")
    assert planned.returncode == 0 and files(target) == before
    done = merge(source, target)
    assert done.returncode == 0, done.stderr
    assert planned.stdout.splitlines()[:-1] == done.stdout.splitlines()[:-1]
    after = files(target)
    assert before.items() <= after.items()  # nothing is overwritten
    new = {name: after[name] for name in after.keys() - before.keys()}
    assert new.items() <= files(source).items()
    assert len(store.runs(target)) == 3 and len(list(target.glob("candidates/fashion/*.npz"))) == 2
    assert not [path for path in target.iterdir() if path.name.startswith(".")]
    assert "Copied 0 runs" in merge(source, target).stdout and files(target) == after


def test_a_new_folder_gets_everything(source: Path, tmp_path: Path) -> None:
    (link,) = source.glob("runs/fashion/cel/seed1-*")
    (link / "notes").symlink_to("/etc/hostname")
    assert merge(source, tmp_path / "new").returncode == 0
    (link / "notes").unlink()
    assert files(tmp_path / "new") == files(source)


def test_another_candidate_set_of_the_same_name_is_refused(source: Path, target: Path) -> None:
    first, second = sorted(source.glob("candidates/fashion/*.npz"))
    shutil.copy(second, target / first.relative_to(source))
    before = files(target)
    done = merge(source, target)
    assert done.returncode == 1 and first.name in done.stderr and "Traceback" not in done.stderr
    assert files(target) == before


@pytest.mark.parametrize("name", ["runs/fashion/proden/*/run.json", "candidates/fashion/*.npz"])
def test_a_damaged_file_is_named_and_nothing_copied(source: Path, target: Path, name: str) -> None:
    damaged = next(source.glob(name))
    damaged.write_bytes(damaged.read_bytes()[:100])
    before = files(target)
    done = merge(source, target)
    assert done.returncode == 1 and damaged.name in done.stderr and "Traceback" not in done.stderr
    assert files(target) == before


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    done = merge(tmp_path, tmp_path / "target")
    assert done.returncode == 2 and str(tmp_path) in done.stderr and not (tmp_path / "target").exists()


def test_a_kill_leaves_no_part_of_a_run(source: Path, target: Path) -> None:
    """Killed at its first rename, with a run copied under its temporary name."""
    code = (
        "import os, runpy, signal, sys\n"
        "os.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"sys.argv = {[SCRIPT[1], str(source), str(target)]!r}\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    for path in source.glob("candidates/*/*.npz"):
        shutil.copy(path, target / path.relative_to(source))  # so that the first thing to be copied is a run
    before = store.runs(target)
    killed = subprocess.run([sys.executable, "-c", code], timeout=120, env=dict(os.environ))
    assert killed.returncode == -signal.SIGKILL
    assert list(target.glob(".merge-*/seed*/run.json"))
    assert store.runs(target).equals(before)
    assert merge(source, target).returncode == 0 and len(store.runs(target)) == 4
