"""clean removes what was named and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmark import store
from benchmark.cli.main import main
from tests.benchmark.test_versions import NEW, OLD, write_version
from tests.support.broken_plugins import plugin
from tests.support.fake_store import write_store


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two finished runs and one each of every other kind, a checkpoint, predictions, a folder without run.json."""
    folder = tmp_path / "results"

    def end(document: dict[str, Any]) -> None:
        ends = {("cel", 1): "failed", ("cel", 2): "running", ("proden", 2): "diverged"}
        document["status"] = ends.get((document["method"], document["seed"]), "done")

    write_store(folder, profile="quick", methods=["cel", "proden"], datasets=["fashion"], edit=end)
    write_version(folder, tmp_path / "mine.py", plugin("mine"), OLD, 80.0)
    write_version(folder, tmp_path / "mine.py", plugin("mine") + "# edited\n", NEW, 90.0)
    (interrupted,) = folder.glob("runs/quick/fashion/cel/seed2-*")
    (interrupted / "checkpoint.pt").write_bytes(b"x" * 2_000_000)
    (done,) = folder.glob("runs/quick/fashion/cel/seed0-*")
    (done / "predictions.npz").write_bytes(b"x")
    known = json.loads((done / "run.json").read_text())
    (done / "run.json").write_text(json.dumps(known | {"files": {"predictions.npz": "0" * 64, "model.json": "1"}}))
    half = folder / "runs" / "quick" / "fashion" / "cc" / "seed0-00000000"
    half.mkdir(parents=True)
    (half / "metrics.jsonl").write_text("")
    return folder


def states(results: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in results.glob("runs/*/*/*/*/run.json"):
        status = json.loads(path.read_text())["status"]
        found[status] = found.get(status, 0) + 1
    return found


def test_without_yes_nothing_goes(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(results.rglob("*"))
    assert main(["clean", "--results", str(results)]) == 0
    shown = capsys.readouterr().out
    for line in ("failed: 2,", "interrupted: 1,", "outdated: 3,", "damaged: 1,", "checkpoints: 1, 2.0 MB"):
        assert line in shown
    assert main(["clean", "--results", str(results), "--failed", "--outdated"]) == 0
    shown = capsys.readouterr().out
    assert (
        "quick fashion cel seed 1: failed" in shown and "another version of the plug-in (of 2026-11-17 11:40)" in shown
    )
    assert "Nothing was removed" in shown and sorted(results.rglob("*")) == before
    assert main(["clean", "--results", str(results), "--yes"]) == 2


def test_with_yes_what_was_named_goes(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert states(results) == {"done": 9, "failed": 1, "running": 1, "diverged": 1}
    assert main(["clean", "--results", str(results), "--failed", "--yes"]) == 0
    assert states(results) == {"done": 9, "running": 1} and "failed: 2" in capsys.readouterr().out
    assert main(["clean", "--results", str(results), "--outdated", "--damaged", "--checkpoints", "--yes"]) == 0
    assert states(results) == {"done": 6, "running": 1} and not list(results.rglob("checkpoint*"))
    assert not (results / "runs/quick/fashion/cc").exists()
    assert sorted(store.runs(results).query("method == 'mine'").accuracy) == [90.0, 91.0, 92.0]
    assert main(["clean", "--results", str(results), "--interrupted", "--predictions", "--yes"]) == 0
    assert states(results) == {"done": 6} and not list(results.rglob("predictions.npz"))
    (done,) = results.glob("runs/quick/fashion/cel/seed0-*/run.json")
    assert json.loads(done.read_text())["files"] == {"model.json": "1"}


def test_a_run_that_somebody_is_doing_is_left_alone(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (busy,) = results.glob("runs/quick/fashion/cel/seed1-*")
    # POSIX locks do not bind the process that holds them, so the question is answered for another process.
    monkeypatch.setattr("benchmark.share.clean.is_locked", lambda path: path == busy / "lock")
    assert main(["clean", "--results", str(results), "--failed", "--yes"]) == 0
    assert busy.is_dir() and "failed: 1" in capsys.readouterr().out
