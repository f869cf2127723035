"""`tune` chooses on held-out candidate labels alone, goes on where it was stopped, and writes what `--profile` takes."""

from __future__ import annotations

import json
import signal
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmark import tuning
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
    return ("tune", "--grid", "small", "--datasets", paths)


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
    scores = last_epochs(bench, "usual", "approximated_accuracy")
    assert len(set(scores)) == len(tune.GRIDS["small"][0])  # there was something to choose
    assert scores == last_epochs(bench, "shuffled", "approximated_accuracy")
    usual, shuffled = choices(bench)["usual"], choices(bench)["shuffled"]
    assert usual | {"dataset": ""} == shuffled | {"dataset": ""}
    assert usual["lr"] == sorted(tune.GRIDS["small"][0])[scores.index(max(scores))]


def test_the_chosen_values_reach_the_runs_of_the_written_profile(bench):
    entry = choices(bench)["usual"]
    assert entry["source"].startswith(
        "tuned: approximated accuracy on 10 % held-out candidate labels, grid small, seed 100"
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
    assert "10 done, 0 to do" in capsys.readouterr().out
    assert choices(bench) == before


def test_a_grid_of_ones_own_is_run_and_named_in_the_source(bench, capsys, tmp_path):
    own = ("--lr", "0.05,0.01", "--weight-decay", "0.0005,0.01", "--out", str(tmp_path / "own.toml"))
    assert cli.main(bench.arguments(*words(bench), *own)[3:]) == 0
    output = capsys.readouterr().out
    assert "8 runs, 4 done, 4 to do" in output.replace("Plan: ", "")  # the small grid's are there
    finished = [line for line in output.splitlines() if line.startswith("[")]
    assert len(finished) == 4 and all("%" not in line for line in finished)  # no test accuracy while one chooses
    entries = tomllib.loads((tmp_path / "own.toml").read_text())["values"]
    assert all("lr 0.05, 0.01; weight decay 0.0005, 0.01, seed 100" in entry["source"] for entry in entries)


def test_diverged_points_are_left_out_and_a_choice_among_none_is_refused(bench, capsys, monkeypatch):
    monkeypatch.setattr(tune, "train", lambda *_: Progress(0))  # a diverged run is not run again
    before, path = choices(bench), bench.results / "tuned-tiny.toml"
    chosen = before["usual"]["lr"]
    folders = [(d["config"]["train"]["lr"], folder) for folder, d in killing.documents(bench).items()]
    for lr, folder in folders:
        if lr == chosen:
            diverge(folder)
    assert cli.main(bench.arguments(*words(bench))[3:]) == 0
    output = capsys.readouterr()
    assert f"Left out: usual proden, lr/weight decay {chosen:g}/0.0005: diverged: the loss became nan" in output.err
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


def test_a_winner_at_the_edge_of_the_grid_is_warned_of(capfd):
    cell = tuning.Cell("digits", "cc", 0.1, tuple(tuning.Point(lr, 1e-4, (), lr) for lr in (0.1, 0.5, 1.0)))
    tune.warn_of_edges([cell], "lr", (0.1, 0.5, 1.0, 2.0))
    tune.warn_of_edges([cell], "weight_decay", (1e-4,))
    assert capfd.readouterr().err == ""
    tune.warn_of_edges([cell], "lr", (0.1, 0.5, 1.0))
    assert "1 is the largest --lr" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--set", "train.lr=0.1"), "tune chooses train.lr itself"),
        (("--set", "train.holdout=0"), "train.holdout must be more than 0"),
        (("--out", "{folder}/choice.txt"), "must end in .toml"),
        (("--out", "{profile}"), "was not written by tune and is left alone"),
        (("--out", "{folder}/tiny.toml/x.toml"), "--out"),
        (("--grid", "huge"), "'huge'"),
        (("--lr", "0.1;0.2"), "write a comma list of numbers"),
        (("--weight-decay", "0.1,0.10"), "a value is named twice"),
        (("--lr", "0"), "train.lr: 0.0"),
        (("--rates", "0.1"), "use --lr"),
        (("--select", "accuracy"), "'accuracy'"),
    ],
)
def test_wrong_input_is_one_sentence_and_starts_nothing(tiny_benchmark, capsys, words, sentence):
    before = tiny_benchmark.profile.read_text()
    filled = [w.format(folder=tiny_benchmark.folder, profile=tiny_benchmark.profile) for w in words]
    code = cli.main([*tiny_benchmark.arguments("tune")[3:], *filled])
    error = capsys.readouterr().err.strip()
    assert code == 2 and sentence in error and len(error.splitlines()) == 1
    assert tiny_benchmark.profile.read_text() == before and not tiny_benchmark.results.exists()


def test_a_dry_run_prints_the_plan_and_writes_nothing(tiny_benchmark, capsys):
    assert cli.main([*tiny_benchmark.arguments("tune")[3:], "--dry-run"]) == 0
    assert "Plan: 36 runs, 0 done, 36 to do" in capsys.readouterr().out  # 2 methods × 18 points × the first seed
    assert not tiny_benchmark.results.exists()


def test_tune_uses_a_seed_that_no_table_reports(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from benchmark.config.selection import select

    selection = select("quick", methods="proden", datasets="digits")
    assert tuning.tuning_seeds(selection) == (100,)
    tune.warn_of_reported(replace(selection, seeds=(100, 101)))
    assert capfd.readouterr().err == ""
    place = ("--results", str(tmp_path), "--device", "cpu")
    assert cli.main(["tune", "--methods", "proden", "--datasets", "digits", "--dry-run", "--seeds", "0", *place]) == 0
    assert "which the tables of profile quick report" in capfd.readouterr().err
