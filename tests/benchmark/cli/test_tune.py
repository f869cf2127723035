"""`tune` chooses on held-out candidate labels alone, goes on where it was stopped, and writes what `--profile` takes."""

from __future__ import annotations

import json
import re
import signal
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmark import tuning
from benchmark.analysis.selection import Score, unreported_seeds
from benchmark.cli import main as cli
from benchmark.cli import tune
from benchmark.config.profile import load_profile
from benchmark.config.resolution import resolve
from benchmark.runner.progress import Progress
from methods.registry import discover
from tests.conftest import TinyBenchmark, make_tiny
from tests.support import killing

PROFILE = """
title = "tiny"
seeds = [0, 1]
methods = ["proden"]

[train]
epochs = 4
batch = 16
"""


def blobs(path: Path, permuted: bool) -> None:
    """Four classes in eight dimensions with candidates; `permuted` shuffles the labels of the test part only."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 300)
    x = rng.normal(size=(300, 8)) + 2 * np.eye(4, 8)[y]
    candidates = rng.random((300, 4)) < 0.4
    candidates[np.arange(300), y] = True
    y_test = rng.permutation(y[200:]) if permuted else y[200:]
    np.savez(path, x=x[:200], y=y[:200], candidates=candidates[:200], x_test=x[200:], y_test=y_test)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> TinyBenchmark:
    """Two grids, on `usual` and on `shuffled` (the same with other test labels), stopped in the first and gone on with."""
    made = make_tiny(tmp_path_factory.mktemp("tune"), PROFILE)
    for name in ("usual", "shuffled"):
        blobs(made.folder / f"{name}.npz", permuted=name == "shuffled")
    command = made.start(*words(made), "--jobs", "1")
    killing.wait_until(lambda: killing.documents(made), 60, "the first run")
    command.send_signal(signal.SIGTERM)
    assert killing.finish(command)[0] == 143
    assert not (made.results / "tuned-tiny.toml").exists()
    done = made.run(*words(made))
    assert done.returncode == 0, done.stderr
    return made


def words(bench: TinyBenchmark) -> tuple[str, ...]:
    paths = ",".join(str(bench.folder / f"{name}.npz") for name in ("usual", "shuffled"))
    return ("tune", "--grid", "small", "--datasets", paths, "--seeds", "100")


def choices(bench: TinyBenchmark) -> dict[str, dict[str, Any]]:
    entries = tomllib.loads((bench.results / "tuned-tiny.toml").read_text())["values"]
    return {entry["dataset"]: entry for entry in entries}


def last_epochs(bench: TinyBenchmark, dataset: str, metric: str) -> list[float]:
    """Of the three runs, by learning rate."""
    found = {}
    for folder, document in killing.documents(bench).items():
        if document["dataset"] == dataset:
            line = (folder / "metrics.jsonl").read_text().splitlines()[-1]
            found[document["config"]["train"]["lr"]] = json.loads(line)["result"][metric]
    return [value for _, value in sorted(found.items())]


def test_shuffled_test_labels_change_neither_scores_nor_choice(bench):
    assert last_epochs(bench, "usual", "test_accuracy") != last_epochs(bench, "shuffled", "test_accuracy")
    for key in ("covering_rate", "approximated_accuracy", "candidate_log_likelihood"):
        scores = last_epochs(bench, "usual", key)
        assert len(set(scores)) > 1 and scores == last_epochs(bench, "shuffled", key)  # there was something to choose
    usual, shuffled = choices(bench)["usual"], choices(bench)["shuffled"]
    assert usual | {"dataset": ""} == shuffled | {"dataset": ""}


def test_the_chosen_values_reach_the_runs_of_the_written_profile(bench):
    entry = choices(bench)["usual"]
    assert re.match(
        r"tuned: one-se on 10 % held-out rows \(CR \d+\.\d+ ± \d\.\d+ %, AA \d+\.\d+ %\), grid lr 0.2, 0.1, .*; "
        r"weight_decay 5e-4, seed 100, \d{4}-",
        entry["source"],
    )
    profile = load_profile(str(bench.results / "tuned-tiny.toml"))
    assert profile.methods == ("proden",) and profile.train["epochs"] == 4
    spec = resolve(profile, discover().get("proden"), str(bench.folder / "usual.npz"), 0)
    assert (spec.train.lr, spec.train.weight_decay) == (entry["lr"], entry["weight_decay"])
    assert spec.train.holdout == 0  # all rows are trained on once the values are chosen
    assert spec.provenance["train.lr"] == entry["source"]


def test_done_runs_are_skipped_and_their_accuracies_unread(bench, capsys):
    before = choices(bench)
    for path in bench.results.glob("runs/*/*/*/metrics.jsonl"):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for record in records:
            record["result"]["test_accuracy"] = 100.0 - record["result"]["approximated_accuracy"]
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert cli.main(bench.arguments(*words(bench))[3:]) == 0
    output = capsys.readouterr().out
    assert "10 done, 0 to do" in output and "trained" not in output
    assert choices(bench) == before


def test_a_methods_own_settings_are_tuned_with_the_rates(bench, capsys, tmp_path):
    grid = ("--lr", "0.05,0.01", "--weight-decay", "0.0005", "--grid", "pop.{}")
    fields = discover().get("pop").config
    key = next(name for name, setting in fields.items() if setting.annotation == "float")
    value = fields[key].default
    own = (*grid[:-1], f"pop.{key}={value},{value / 2}", "--methods", "proden,pop", "--out", str(tmp_path / "own.toml"))
    usual = ("--datasets", str(bench.folder / "usual.npz"))
    assert cli.main([*bench.arguments(*words(bench))[3:], *own, *usual]) == 0
    output = capsys.readouterr().out
    assert "Plan: 6 runs, 2 done, 4 to do" in output  # of the small grid two are there; pop has its own setting too
    finished = [line for line in output.splitlines() if line.startswith("[")]
    assert len(finished) >= 4 and all("%" not in line for line in finished)  # no test accuracy while one chooses
    proden, pop = tomllib.loads((tmp_path / "own.toml").read_text())["values"]
    assert key not in proden and pop[key] in (value, value / 2) and f"pop.{key} {value}, {value / 2}" in pop["source"]
    spec = resolve(load_profile(str(tmp_path / "own.toml")), discover().get("pop"), str(bench.folder / "usual.npz"), 0)
    assert spec.method_config.get(key, value) == pop[key]


def test_diverged_points_are_left_out_and_a_choice_among_none_is_refused(bench, capsys, monkeypatch):
    monkeypatch.setattr(tune, "train", lambda *_: Progress(0))  # a diverged run is not run again
    monkeypatch.setattr(tuning, "EXTENSIONS", 0)
    before, path = choices(bench), bench.results / "tuned-tiny.toml"
    chosen = before["usual"]["lr"]
    folders = [(d["config"]["train"]["lr"], folder) for folder, d in killing.documents(bench).items()]
    for lr, folder in folders:
        if lr == chosen:
            diverge(folder)
    assert cli.main(bench.arguments(*words(bench))[3:]) == 0
    output = capsys.readouterr()
    assert f"Left out: usual proden, lr {chosen:g}, weight_decay 0.0005: diverged: the loss became nan" in output.err
    after = choices(bench)["usual"]
    assert "4/5" in output.out and after["lr"] != chosen and "4 of 5 points" in after["source"]

    text = path.read_text()
    for _, folder in folders:
        diverge(folder)
    assert cli.main(bench.arguments(*words(bench))[3:]) == 1
    assert "Nothing could be selected" in capsys.readouterr().err.splitlines()[-1]
    assert path.read_text() == text


def diverge(folder: Path) -> None:
    document = json.loads((folder / "run.json").read_text())
    document |= {"status": "diverged", "reason": "the loss became nan at step 3"}
    (folder / "run.json").write_text(json.dumps(document))


def test_the_grid_is_extended_for_all_methods_until_no_winner_is_at_its_edge(tiny_benchmark, capfd, monkeypatch):
    plans = []

    def with_peak_at_one(cell, results, rule, failures):
        peak = 1.0 if cell.method == "cc" else 0.2
        scores = [Score(99.0, 1.0, 50 - abs(point.values["train.lr"] - peak)) for point in cell.points]
        points = [replace(p, score=s, state="done") for p, s in zip(cell.points, scores, strict=True)]
        return replace(cell, points=tuple(points))

    monkeypatch.setattr(tune, "train", lambda options, selection, specs: plans.append(specs) or Progress(0))
    monkeypatch.setattr(tune, "with_scores", with_peak_at_one)
    grid = ("--lr", "0.4,0.2,0.1", "--weight-decay", "0.001,0.01", "--seeds", "100")
    assert cli.main(tiny_benchmark.arguments("tune", *grid)[3:]) == 0
    rates = [sorted({(spec.method, spec.train.lr) for spec in plan}) for plan in plans]
    assert [len(plan) for plan in rates] == [6, 8, 10]  # cc moves to 0.8, then 1.6; proden goes with it
    assert ("proden", 1.6) in rates[-1] and "largest" not in capfd.readouterr().err
    monkeypatch.setattr(tuning, "EXTENSIONS", 1)
    assert cli.main(tiny_benchmark.arguments("tune", *grid)[3:]) == 0
    error = capfd.readouterr().err
    assert "0.8 is the largest train.lr of the grid" in error and "cc on digits" in error
    assert "decay" not in error  # of two values both are at an edge


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--set", "train.lr=0.1"), "tune chooses train.lr itself"),
        (("--set", "train.holdout=0"), "train.holdout must be more than 0"),
        (("--out", "{folder}/choice.txt"), "must end in .toml"),
        (("--out", "{profile}"), "was not written by tune and is left alone"),
        (("--out", "{folder}/tiny.toml/x.toml"), "--out"),
        (("--grid", "huge"), "--grid huge"),
        (("--grid", "full", "--grid", "small"), "leave one out"),
        (("--lr", "0.1;0.2"), "train.lr"),
        (("--lr", "0.1", "--grid", "train.lr=0.2"), "train.lr is given twice"),
        (("--grid", "cc.alpha=0.1,x"), "cc has no 'alpha'"),
        (("--grid", "train.momentum=0.1,x"), "'x'"),
        (("--grid", "cel.alpha=0.1"), "'cel' is neither train nor one of the methods"),
        (("--grid", "train.holdout=0.1,0.2"), "held-out rows"),
        (("--set", "train.holdout=0.0001"), "raise train.holdout"),
        (("--select", "accuracy"), "'accuracy'"),
        (("--weight-decay", "0.1,0.10"), "a value is named twice"),
        (("--lr", "0"), "train.lr: 0.0"),
        (("--select", "cover"), "'cover'"),
    ],
)
def test_wrong_input_is_one_sentence_and_starts_nothing(tiny_benchmark, capsys, words, sentence):
    before = tiny_benchmark.profile.read_text()
    filled = [w.format(folder=tiny_benchmark.folder, profile=tiny_benchmark.profile) for w in words]
    code = cli.main([*tiny_benchmark.arguments("tune")[3:], *filled])
    error = capsys.readouterr().err.strip()
    assert code == 2 and sentence in error and len(error.splitlines()) == 1
    assert tiny_benchmark.profile.read_text() == before and not tiny_benchmark.results.exists()


def test_a_dry_run_plans_seeds_that_no_table_reports_and_writes_nothing(tiny_benchmark, capfd):
    assert unreported_seeds((0, 1, 2)) == (100, 101, 102) and unreported_seeds((0, 100)) == (101, 102, 103)
    words = [*tiny_benchmark.arguments("tune")[3:], "--dry-run"]
    assert cli.main(words) == 0
    output = capfd.readouterr()
    assert "Plan: 108 runs, 0 done, 108 to do" in output.out  # 2 methods × 18 points × 3 seeds
    assert "seeds 100, 101" in output.out and output.err == ""
    assert cli.main([*words, "--seeds", "0"]) == 0
    assert "which the tables of profile tiny report" in capfd.readouterr().err
    assert not tiny_benchmark.results.exists()
