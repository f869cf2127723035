"""The results folder: which runs count for which profile, what tuning runs may show, folders of an earlier version."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmark.cli.main import main
from benchmark.config.resolution import Override
from benchmark.config.selection import select
from benchmark.errors import CandidError, UsageError
from benchmark.report.page import collect
from benchmark.runner.options import RunOptions
from benchmark.runner.worker import execute
from benchmark.store import TUNING, Store, load, runs
from tests.conftest import TinyBenchmark
from tests.support.fake_store import write_store
from tests.support.killing import documents

METHODS = ("cel", "proden")


@pytest.mark.parametrize("read", [runs, load])
def test_a_folder_that_is_not_there_is_one_sentence_and_an_empty_one_an_empty_frame(
    tmp_path: Path, read: Callable[..., Any]
) -> None:
    for where in (tmp_path / "nowhere", str(tmp_path / "nowhere")):
        with pytest.raises(CandidError, match=r"There is no results folder .*nowhere"):
            read(where)
    assert len(read(tmp_path)) == 0


# Profiles -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def shared(tmp_path: Path) -> tuple[Path, Path]:
    """Runs of `quick`, and a profile of somebody's own that has some of them and one with another learning rate."""
    write_store(tmp_path / "results", profile="quick", methods=[*METHODS, "cc"], datasets=["fashion"])
    profile = tmp_path / "own.toml"
    profile.write_text(
        'include = ["quick"]\nmethods = ["cel", "proden"]\ndatasets = ["fashion"]\n'
        '[[values]]\nmethod = "proden"\ndataset = "fashion"\nsource = "tuned"\nlr = 0.3\n'
    )
    return tmp_path / "results", profile


def test_all_commands_agree_about_the_runs_of_a_profile(
    shared: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    results, profile = shared
    write_store(results, profile=str(profile), methods=["proden"], datasets=["fashion"])
    words = ["--profile", str(profile), "--results", str(results)]
    frame = runs(results, str(profile))
    assert set(frame.profile) == {"own"} and sorted(frame.method.value_counts().items()) == [("cel", 3), ("proden", 3)]
    assert {json.loads((Path(path) / "run.json").read_text())["profile"] for path in frame.path} == {"quick", "own"}
    assert main(["table2", *words, "--methods", ",".join(METHODS), "--device", "cpu"]) == 0
    assert "6 done, 0 to do" in capsys.readouterr().out
    assert main(["status", *words, "--methods", ",".join(METHODS)]) == 0
    assert capsys.readouterr().out == f"{profile}: 6 done\n"
    assert main(["list", "runs", *words]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6
    (view,) = collect(results, str(profile))[0]
    assert view["name"] == "own" and view["parts"][0].table.complete
    means = {r["method"]: r["mean"] for r in view["parts"][0].table.data}
    assert means == pytest.approx(frame.groupby("method").accuracy.mean().to_dict())
    assert main(["plot", "curves", *words, "--out", str(results / "curves.png")]) == 0
    assert set(load(results, str(profile)).identity) == set(frame.identity)


def test_other_seeds_and_changed_settings_count_and_earlier_settings_do_not(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def earlier(document: dict[str, Any]) -> None:
        document["config"]["train"]["epochs"] = 7

    quick: dict[str, Any] = {"profile": "quick", "methods": ["cel"], "datasets": ["fashion"]}
    write_store(tmp_path, **quick, seeds=[0, 9])
    write_store(tmp_path, **quick, seeds=[0], overrides=[Override("train", "lr", "0.5")])
    assert sorted(runs(tmp_path, "quick").label) == ["cel", "cel", "cel[train.lr=0.5]"]
    write_store(tmp_path, **quick, seeds=[1], edit=earlier)
    capfd.readouterr()
    assert len(runs(tmp_path, "quick")) == 3 and len(runs(tmp_path)) == 4
    assert "1 run with earlier settings of profile quick" in capfd.readouterr().err
    assert runs(tmp_path, "nobodys").empty


def test_a_worker_leaves_a_run_alone_that_another_profile_has_just_done(tmp_path: Path) -> None:
    outcomes = []
    for name in ("first", "second"):
        profile = tmp_path / f"{name}.toml"
        profile.write_text('include = ["quick"]\n[data.digits]\ngenerator = "uniform"\ntarget_size = 0.0\n')
        (spec,) = select(str(profile), methods="cc", datasets="digits", seeds="0", epochs=1).specs()
        outcomes.append(execute(spec, RunOptions(tmp_path / "results", tmp_path / "data")))
    assert [o.status for o in outcomes] == ["done", "done"] and [o.skipped for o in outcomes] == [False, True]
    assert outcomes[0].accuracy == outcomes[1].accuracy


@pytest.mark.parametrize("name", ["/etc/hostname", "own.toml", "x" * 5000])
def test_a_stored_profile_name_is_never_taken_for_a_file(tmp_path: Path, name: str) -> None:
    def rename(document: dict[str, Any]) -> None:
        document["profile"] = name

    write_store(tmp_path, profile="quick", methods=["cc"], datasets=["fashion"], seeds=[0], epochs=2, edit=rename)
    write_store(tmp_path, profile="quick", methods=["cc"], datasets=["digits"], seeds=[0], epochs=2)
    for words in (("status",), ("report",)):
        assert main([*words, "--results", str(tmp_path)]) == 0


# Tuning ---------------------------------------------------------------------------------------------------------------


def test_tuning_runs_are_no_results_and_their_test_accuracy_is_not_shown(tiny_benchmark: TinyBenchmark) -> None:
    bench = tiny_benchmark
    tune = "tune --methods proden --seeds 100 --lr 0.05 --weight-decay 0.0005,0.001 --set train.holdout=0.1"
    output = bench.run(*tune.split(), check=True).stdout
    assert output.count(": trained in") == 2 and not re.search(r"test \d", output)
    assert {d["purpose"] for d in documents(bench).values()} == {TUNING}
    assert runs(bench.results).empty and load(bench.results).empty and runs(bench.results, str(bench.profile)).empty
    assert len(runs(bench.results, tuning=True)) == 2
    assert f"{bench.profile}, tuning: 2 done\n" in bench.run("status", check=True).stdout
    with pytest.raises(CandidError, match="no runs"):
        collect(bench.results, str(bench.profile))

    # The plan of a table may have one of them: the same run is not trained again, and counts.
    (chosen,) = select(
        str(bench.profile),
        methods="proden",
        seeds="100",
        settings=("train.lr=0.05", "train.weight_decay=0.001", "train.holdout=0.1"),
    ).specs()
    store = Store(bench.results)
    assert store.status([chosen]).todo == []
    assert len(store.runs_of_plan([chosen], {chosen.digest: "proden"})) == 1


def test_a_tuning_run_that_a_table_trains_to_its_end_is_a_result(tiny_benchmark: TinyBenchmark) -> None:
    bench = tiny_benchmark
    options = RunOptions(bench.results, bench.folder / "data")
    (spec,) = select(str(bench.profile), methods="cc", seeds="0", epochs=1).specs()
    assert execute(replace(spec, purpose=TUNING), options).status == "done"
    (path,) = bench.results.glob("runs/*/*/*/run.json")
    document = json.loads(path.read_text())
    assert document["purpose"] == TUNING
    path.write_text(json.dumps(document | {"status": "interrupted"}))  # as a killed process leaves it
    assert execute(spec, options).status == "done"
    (document,) = documents(bench).values()
    assert document["status"] == "done" and "purpose" not in document


def test_a_folder_of_the_earlier_layout_is_refused(shared: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copytree(shared[0] / "runs" / "fashion", tmp_path / "runs" / "quick" / "fashion")
    with pytest.raises(UsageError, match="layout of an earlier version"):
        runs(tmp_path)
