"""A results folder, data file or checkpoint from a stranger: nothing in it runs code or chooses where we write."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmark.errors import CandidError
from benchmark.files import Lock, refuse_links
from benchmark.runner.log import captured
from benchmark.store import StoredRun, load, runs
from datasets.base import DataError
from datasets.candidates.candidate_sets import read_arrays
from tests.conftest import ROOT, TINY, TinyBenchmark, make_tiny
from tests.support.killing import documents

Make = Callable[..., TinyBenchmark]
ONE = TINY.replace("0, 1", "0").replace(', "cc"', "").replace("epochs = 3", "epochs = 2")


class Bomb:
    """Unpickling it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with one finished run."""
    bench = make_tiny(tmp_path_factory.mktemp("done"), ONE)
    assert bench.run("run").returncode == 0
    return bench.results


@pytest.fixture
def bench(forked_benchmark: Make, done: Path) -> TinyBenchmark:
    """A copy of that folder, as somebody might have sent it."""
    copy = forked_benchmark("copy", ONE)
    subprocess.run(["cp", "-a", str(done), str(copy.results)], check=True)
    return copy


def run_folder(bench: TinyBenchmark) -> Path:
    (folder,) = documents(bench)
    return folder


def rewrite(folder: Path, **changes: Any) -> None:
    document = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(document | changes))


@pytest.mark.parametrize("place", ["runs/digits", "tables", "candidates", "runs/digits/proden/seed0-00000000"])
def test_links_out_of_the_results_folder_are_refused_before_anything_is_written(
    bench: TinyBenchmark, tmp_path: Path, place: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    link = bench.results / place
    if link.exists():
        subprocess.run(["rm", "-r", str(link)], check=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside)
    for words in (("run",), ("table2", "--no-run")) if place == "tables" else (("run",),):
        refused = bench.run(*words)
        assert refused.returncode == 1
        assert "leads out of the results folder" in refused.stderr and len(refused.stderr.splitlines()) == 1
    assert not list(outside.iterdir())


def test_links_inside_the_results_folder_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to(tmp_path / "a")
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "debug.log").symlink_to("/nowhere/debug.log")  # as Weights & Biases makes it
    refuse_links(tmp_path)
    (tmp_path / "a" / "c").symlink_to("/etc/passwd")
    with pytest.raises(CandidError, match="leads out"):
        refuse_links(tmp_path)


def test_lock_log_and_records_are_never_written_through_a_link(tmp_path: Path) -> None:
    """The second line of defence, should a link appear after the first look."""
    victim = tmp_path / "victim"
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("lock", "log.txt", "metrics.jsonl"):
        (folder / name).symlink_to(victim)
    with pytest.raises(OSError):
        Lock(folder / "lock").acquire()
    with captured(folder / "log.txt"):
        print("into the log")
    with pytest.raises(OSError):
        StoredRun(folder).append_epoch({"epoch": 0})
    StoredRun(folder).truncate_epochs(0)
    assert not victim.exists()


HOSTILE = (
    b"", b"[]", b"3", b"[" * 100_000, b"\xff\xfe\x00",
    b'{"status": "done", "summ', b'{"status": "done", "schema": 1}',
)  # fmt: skip


def test_a_damaged_document_is_set_aside(bench: TinyBenchmark, tmp_path: Path) -> None:
    folder, bomb = run_folder(bench), tmp_path / "bomb"
    for content in (*HOSTILE, pickle.dumps(Bomb(bomb))):
        (folder / "run.json").write_bytes(content)
        assert len(runs(bench.results)) == 0, content[:20]
        (folder / "run.json.damaged").unlink()
    assert not bomb.exists()


def test_the_same_command_repeats_what_was_damaged(bench: TinyBenchmark) -> None:
    before = bench.results_only()
    folder = run_folder(bench)
    (folder / "run.json").write_text("{")
    (folder / "metrics.jsonl").write_text('{"epoch": 0')
    status, table, again = bench.run("status"), bench.run("table2", "--no-run"), bench.run("run")
    assert table.returncode == 3 and "run.json.damaged" in "".join(table.stdout.split())
    assert status.returncode == again.returncode == 0
    assert status.stderr.count("warning:") == 1 and "set aside" in status.stderr and again.stderr == ""
    assert bench.results_only() == before


def test_documents_with_wrong_kinds_never_crash_a_reader(bench: TinyBenchmark) -> None:
    folder = run_folder(bench)
    original = (folder / "run.json").read_text()
    document = json.loads(original)
    for key in document:
        kinds: list[Any] = [None, 3, "text", [], {}, {"accuracy": "high"}]
        for wrong in kinds:
            (folder / "run.json").write_text(json.dumps(document | {key: wrong}))
            frame = runs(bench.results)
            assert len(frame) <= 1
            load(bench.results)
            (folder / "run.json").write_text(original)


def test_a_document_cannot_steer_the_terminal(bench: TinyBenchmark) -> None:
    rewrite(run_folder(bench), status="failed", reason="\x1b]0;owned\x07\x1b[2Jgone", label="cel\x1b[31m")
    for words in (("status",), ("list", "runs")):
        shown = bench.run(*words)
        assert shown.returncode == 0 and "gone" in shown.stdout
        assert "\x1b" not in shown.stdout + shown.stderr and "\x07" not in shown.stdout


def test_names_in_a_profile_cannot_lead_out_of_the_results_folder(bench: TinyBenchmark, tmp_path: Path) -> None:
    profile = tmp_path / "..%2f..%2fevil.toml"
    profile.write_text(ONE)
    there = {path for path in tmp_path.rglob("*") if bench.results not in path.parents}
    done = bench.run("run", "--profile", str(profile), "--epochs", "1")
    assert done.returncode == 0, done.stderr
    written = {path for path in tmp_path.rglob("*") if bench.results not in path.parents} - there
    assert {path for path in written if "data" not in path.parts} == set()


def pickles(folder: Path, bomb: Path) -> Iterator[Path]:
    """Array files that need a pickle to be read."""
    path = folder / "hostile.npz"
    array = np.array([Bomb(bomb)], dtype=object)
    np.savez(path, x=array, y=array, candidates=array, bits=array, shape=array, meta=array)
    yield path
    path.write_bytes(pickle.dumps(Bomb(bomb)))
    yield path


def test_data_files_with_a_pickle_inside_run_nothing(bench: TinyBenchmark, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb"
    for path in pickles(tmp_path, bomb):
        with pytest.raises(DataError):
            read_arrays(path, "candidate", "bits", "shape", "meta")
        shown = bench.run("run", "--datasets", str(path))
        assert shown.returncode != 0 and "Traceback" not in shown.stderr
    assert not bomb.exists()


def test_no_code_of_the_project_reads_pickles() -> None:
    """torch.load only with weights_only=True, numpy only without pickle, no pickle module, no eval or exec of text."""
    suspicious = [
        "import pickle",
        "pickle.load",
        "allow_pickle=True",
        "joblib.load",
        "weights_only=False",
        "yaml.load(",
    ]
    for package in ("benchmark", "datasets", "methods"):
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text()
            for word in suspicious:
                if word == "import pickle" and package == "datasets" and "class " in text and "Unpickler" in text:
                    continue  # CIFAR ships as pickles; they are read by an unpickler that knows arrays only
                assert word not in text, f"{path.name}: {word}"
            for line in text.splitlines():
                if "torch.load(" in line:
                    assert "weights_only=True" in line, f"{path.name}: {line.strip()}"
                assert " eval(" not in line.replace(".eval(", "") or "def " in line, f"{path.name}: {line.strip()}"
