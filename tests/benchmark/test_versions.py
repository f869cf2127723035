"""Two versions of a plug-in are two methods, and a run that another profile has done is not done again."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from benchmark import store
from benchmark.cli.main import main
from benchmark.config.profile import load_profile
from benchmark.config.resolution import resolve, source_digest
from benchmark.config.selection import select
from benchmark.errors import UsageError
from benchmark.report.page import collect
from benchmark.runner.options import RunOptions
from benchmark.runner.status import frame_of, standing
from benchmark.runner.worker import execute
from methods.registry import discover
from tests.support.broken_plugins import plugin
from tests.support.fake_store import write_run, write_store

OLD, NEW = "2026-11-17T11:40:00+00:00", "2026-11-18T09:00:00+00:00"


def write_version(results: Path, file: Path, text: str, finished: str, accuracy: float, status: str = "done") -> str:
    """Save the plug-in and three runs of it, each with that accuracy; the digest of its source."""
    file.write_text(text)
    entry = discover((file,)).get("mine")

    def edit(document: dict[str, Any]) -> None:
        document["time"]["finished"], document["status"] = finished, status
        document["summary"]["accuracy"] = accuracy + document["seed"]

    for seed in range(3):
        write_run(results, resolve(load_profile("quick"), entry, "fashion", seed), "0" * 64, 7, edit)
    return source_digest(entry)


@pytest.fixture
def edited(tmp_path: Path) -> tuple[Path, Path, str, str]:
    """A results folder with runs of a plug-in before and after an edit, the plug-in, and the two sources."""
    results, file = tmp_path / "results", tmp_path / "mine.py"
    write_store(results, profile="quick", methods=["cel"], datasets=["fashion"])
    before = write_version(results, file, plugin("mine"), OLD, 80.0)
    after = write_version(results, file, plugin("mine") + "# edited\n", NEW, 90.0)
    return results, file, before, after


def test_frames_hold_the_newest_version_and_say_how_many_runs_are_left_out(
    edited: tuple[Path, Path, str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    results, _, _, after = edited
    runs = store.runs(results)
    own = runs[runs.method == "mine"]
    assert set(own.source) == {after[:8]} and sorted(own.accuracy) == [90.0, 91.0, 92.0]
    assert set(runs[runs.method == "cel"].source) == {""}
    assert "3 runs of older versions" in capfd.readouterr().err
    epochs = store.load(results)
    assert set(epochs[epochs.method == "mine"].source) == {after[:8]}


def test_the_version_given_by_plugin_is_exported(
    edited: tuple[Path, Path, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    results, file, before, after = edited
    for text, source in ((plugin("mine"), before), (plugin("mine") + "# edited\n", after)):
        file.write_text(text)
        assert main(["export", "--results", str(results), "--plugin", str(file), "--out", "-"]) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if ",mine," in line]
        assert len(lines) == 21 and all(f",mine,{source[:8]},mine," in line for line in lines)


def test_a_failed_newer_version_does_not_hide_the_finished_one(tmp_path: Path) -> None:
    results, file = tmp_path / "results", tmp_path / "mine.py"
    before = write_version(results, file, plugin("mine"), OLD, 80.0)
    write_version(results, file, plugin("mine") + "# broken\n", NEW, 0.0, status="failed")
    assert set(store.runs(results).source) == {before[:8]}


def test_the_page_has_one_version_and_follows_plugin_and_methods(edited: tuple[Path, Path, str, str]) -> None:
    results, file, _, _ = edited
    (view,) = collect(results)[0]
    (record,) = [r for r in view["parts"][0].table.data if r["method"] == "mine"]
    assert (record["mean"], record["n"], record["kind"]) == (mean([90.0, 91.0, 92.0]), 3, "unregistered")
    assert any("3 runs of older versions" in note for note in view["notes"])
    (view,) = collect(results, plugins=(str(file),))[0]
    (record,) = [r for r in view["parts"][0].table.data if r["method"] == "mine"]
    assert record["kind"] == "PLL" and record["place"]
    file.write_text(plugin("mine"))
    (view,) = collect(results, plugins=(str(file),), methods=("mine",))[0]
    assert [r["mean"] for r in view["parts"][0].table.data] == [81.0]
    with pytest.raises(UsageError, match="no run of 'nobody'"):
        collect(results, methods=("nobody",))


@pytest.fixture
def shared(tmp_path: Path) -> tuple[Path, Path]:
    """Runs of `quick`, and a profile of somebody's own that includes it."""
    write_store(tmp_path / "results", profile="quick", methods=["cel", "proden"], datasets=["fashion"])
    profile = tmp_path / "own.toml"
    profile.write_text('include = ["quick"]\nmethods = ["cel", "proden"]\ndatasets = ["fashion"]\n')
    return tmp_path / "results", profile


def test_a_run_that_another_profile_has_done_is_used(
    shared: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    results, profile = shared
    selection = select(str(profile), methods="cel,proden")
    now = standing(selection.specs(), results)
    assert now.todo == [] and now.borrowed == "6 by profile quick"
    frame = frame_of(selection.specs(), results, {spec.digest: spec.method for spec in selection.specs()})
    assert set(frame.profile) == {"own"} and len(frame) == 6
    words = ["--profile", str(profile), "--results", str(results), "--methods", "cel,proden"]
    assert main(["table2", *words, "--device", "cpu"]) == 0
    assert "6 done (6 by profile quick), 0 to do" in capsys.readouterr().out
    assert main(["status", *words]) == 0
    assert "own.toml: 6 done by profile quick" in capsys.readouterr().out
    assert not (results / "runs" / "own").exists()
    (view,) = collect(results, str(profile), methods=("cel", "proden"))[0]
    assert view["name"] == "own" and view["parts"][0].table.complete
    assert any("6 runs of profile quick" in note for note in view["notes"])


def test_a_worker_leaves_a_run_alone_that_another_profile_has_just_done(tmp_path: Path) -> None:
    outcomes = []
    for name in ("first", "second"):
        profile = tmp_path / f"{name}.toml"
        profile.write_text('include = ["quick"]\n[data.digits]\ngenerator = "uniform"\ntarget_size = 0.0\n')
        (spec,) = select(str(profile), methods="cc", datasets="digits", seeds="0", epochs=1).specs()
        outcomes.append(execute(spec, RunOptions(tmp_path / "results", tmp_path / "data")))
    assert [o.status for o in outcomes] == ["done", "done"] and [o.skipped for o in outcomes] == [False, True]
    assert outcomes[0].accuracy == outcomes[1].accuracy
