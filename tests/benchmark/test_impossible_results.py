"""Copies, leftovers, impossible values and odd files in a results folder change no number and hang no command."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmark import store
from benchmark.cli import main as cli
from tests.support.fake_store import write_store

TABLE = ("--no-run", "--profile", "quick", "--methods", "cc,proden", "--datasets", "fashion")
READERS = (
    ("status",), ("list", "runs"), ("export", "--out", "x.csv"), ("plot", "curves"), ("table2", *TABLE),
    ("table3", *TABLE, "--reference", "cc"),
)  # fmt: skip


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_store(tmp_path / "r", profile="quick", methods=["cc", "proden"], datasets=["fashion"], epochs=3)
    return tmp_path / "r"


def run_folders(results: Path) -> list[Path]:
    return sorted(path.parent for path in results.glob("runs/*/*/*/run.json"))


def edit(path: Path, change: Any) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("name", ["{}.bak", "{} (copy)", ".{}.c_by98u1", "zz", "seed7-00000000"])
def test_copies_and_leftovers_do_not_count(results, capfd, name):
    before, epochs = store.runs(results), store.load(results)
    folder = run_folders(results)[0]
    copy = folder.with_name(name.format(folder.name))
    shutil.copytree(folder, copy)
    edit(copy / "run.json", lambda d: d["summary"].update(accuracy=99.9))
    assert store.runs(results).equals(before) and store.load(results).equals(epochs)
    assert str(copy) in capfd.readouterr().err


def test_no_frame_has_two_runs_of_one_identity(results, capfd):
    before = len(store.runs(results))
    shutil.copytree(results / "runs" / "fashion", results / "runs" / "other")
    assert len(store.runs(results)) == before == store.runs(results)["identity"].nunique()


@pytest.mark.parametrize("value", [150, -50, True, int("9" * 400), 1e308, float("nan"), "high"])
def test_impossible_accuracies_are_refused_with_the_file_name(results, capfd, value):
    folder = run_folders(results)[0]
    edit(folder / "run.json", lambda d: d["summary"].update(accuracy=value))
    runs = store.runs(results)
    assert str(folder) not in set(runs["path"]) and len(runs) == 5
    assert str(folder / "run.json") in capfd.readouterr().err


def test_no_command_fails_on_an_impossible_number(results, capfd):
    first, second, third, fourth, *_ = run_folders(results)
    edit(first / "run.json", lambda d: d["summary"].update(accuracy=int("9" * 400)))
    edit(second / "run.json", lambda d: d["config"].update(rate=float("nan")))
    edit(fourth / "run.json", lambda d: d["environment"].update(code_version="\ud800"))
    lines = (third / "metrics.jsonl").read_text().splitlines()
    lines[1] = with_result(lines[1], test_accuracy=int("9" * 400))
    (third / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    for words in READERS:
        assert cli.main([*words, "--results", str(results)]) in (0, 3), words
    errors = capfd.readouterr().err
    assert all(str(folder) in errors for folder in (first, second, third, fourth))


def with_result(line: str, **values: Any) -> str:
    record = json.loads(line)
    record["result"].update(values)
    return json.dumps(record)


@pytest.mark.parametrize(
    "values",
    [{"test_accuracy": value} for value in (int("9" * 400), 150, True, "high", [1])]
    + [{name: 5} for name in ("method", "seed", "epoch", "status")],  # columns of frames
)
def test_impossible_metrics_are_refused_with_the_file_name(results, capfd, values):
    folder = run_folders(results)[0]
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    lines[1] = with_result(lines[1], **values)
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert len(store.StoredRun(folder).epochs()) == 1
    assert str(folder / "metrics.jsonl") in capfd.readouterr().err


ODD_FILES = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": lambda path: path.mkdir(),
    "loop": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("make", ODD_FILES.values(), ids=ODD_FILES)
def test_odd_files_hang_no_command(results, capfd, make):
    first, second, *_ = run_folders(results)
    for path in (first / "run.json", second / "metrics.jsonl"):
        path.unlink()
        make(path)
    for words in READERS:
        assert cli.main([*words, "--results", str(results)]) in (0, 1, 3), words
    assert len(store.runs(results)) == 5


def test_a_loop_of_links_is_a_sentence(tmp_path, capfd):
    (tmp_path / "loop").symlink_to("loop")
    for words in (("report",), ("export",), ("table2", "--no-run")):
        assert cli.main([*words, "--results", str(tmp_path / "loop")]) in (1, 2), words
        assert str(tmp_path / "loop") in capfd.readouterr().err
