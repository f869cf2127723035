"""Data without true labels: trained, not scored, and nothing pretends otherwise."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmark import store
from benchmark.analysis.comparisons import measure
from benchmark.analysis.contents import Contents
from benchmark.analysis.selection import score
from benchmark.cli import main as cli
from benchmark.cli.results import list_runs
from benchmark.config.selection import select
from benchmark.exhibits.table2 import COVERING_NOTE
from benchmark.runner.options import Outcome, RunOptions
from benchmark.runner.progress import outcome_line
from benchmark.runner.worker import execute
from benchmark.trainer.summary import LABEL_FREE
from tests.conftest import TINY, TinyBenchmark, make_tiny

CLASSES = 3
PROFILE = TINY.replace("seeds = [0, 1]", "seeds = [0]").replace("epochs = 3", "epochs = 2\nholdout = 0.1")


def arrays(rows: int = 60) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, rows)
    candidates = rng.random((rows, CLASSES)) < 0.4
    candidates[np.arange(rows), y] = True
    return {"x": rng.normal(size=(rows, 5)) + 4 * np.eye(CLASSES, 5)[y], "candidates": candidates, "y": y}


@pytest.fixture
def bench(tmp_path: Path) -> TinyBenchmark:
    return make_tiny(tmp_path, PROFILE)


def data_file(bench: TinyBenchmark, name: str, *left_out: str, **changes: Any) -> Path:
    """Write an .npz file of `arrays`, without some of them or with others."""
    path = bench.folder / f"{name}.npz"
    np.savez(path, **{key: value for key, value in (arrays() | changes).items() if key not in left_out})
    return path


def run_one(bench: TinyBenchmark, path: Path, method: str, *settings: str, seed: str = "0") -> tuple[Outcome, dict]:
    (spec,) = select(str(bench.profile), methods=method, datasets=str(path), seeds=seed, settings=settings).specs()
    outcome = execute(spec, RunOptions(bench.results, bench.folder / "data"))
    found = store.find(bench.results, spec)
    return outcome, {} if found is None else found.document


def command(bench: TinyBenchmark, *words: str) -> int:
    return cli.main(bench.arguments(*words)[3:])


def test_without_labels_nothing_is_scored_and_the_label_free_measures_are_shown(bench, capsys):
    path = data_file(bench, "mine", "y")
    outcome, document = run_one(bench, path, "pop")
    assert outcome.status == "done" and outcome.accuracy is None
    assert set(document["summary"]) == {*LABEL_FREE, "average_set_size"}
    assert document["scored"] is False
    assert all(words in outcome.label_free for words in ("covering rate", "approximated accuracy", "%"))
    (spec,) = select(str(bench.profile), methods="pop", datasets=str(path), seeds="0").specs()
    assert "mine pop seed 0: covering rate" in outcome_line(spec, outcome) and "nan" not in outcome_line(spec, outcome)
    # every reader
    frame = store.runs(bench.results)
    assert frame["status"].tolist() == ["done"] and frame["accuracy"].isna().all()
    epochs = store.load(bench.results)
    assert "test_accuracy" not in epochs and "train_accuracy" not in epochs and epochs["covering_rate"].notna().all()
    contents = Contents("tiny", (), (), (0,), "cpu")
    cell = measure(frame, contents, "mine", "pop")
    assert cell.n == 0 and cell.problems == ("seed 0 has no accuracy: its test rows have no true labels",)
    (row,) = list_runs({"results": bench.results, "profile": None, "plugins": ()})
    assert row["accuracy"] == "–" and row["status"] == "done"
    kept = store.predictions(frame["path"][0])
    assert kept is not None and kept.test_logits.shape == (0, CLASSES) and len(kept.train_rows) == 54
    assert execute(spec, RunOptions(bench.results, bench.folder / "data")).skipped  # done is done
    words = ("--datasets", str(path), "--methods", "pop")
    for reader in (("status",), ("report",), ("candidates", *words), ("table1", *words), ("export", "--out", "-")):
        assert command(bench, *reader) == 0, reader
        told = capsys.readouterr()
        assert "Traceback" not in told.err and "nan" not in told.out.lower(), reader
    page = (bench.results / "report.html").read_text()
    assert "the test rows have no true labels: mine" in page and "Covering rate" in page


def test_table2_shows_covering_rates_where_there_are_no_true_labels(bench, capsys):
    scored, unscored = data_file(bench, "scored"), data_file(bench, "mine", "y")
    for path, method, seed in itertools.product((scored, unscored), ("proden", "supervised"), "01"):
        run_one(bench, path, method, seed=seed)  # supervised cannot be trained on `mine`
    words = ("table2", "--no-run", "--methods", "proden,supervised", "--out", str(bench.folder / "t"))
    assert command(bench, *words, "--seeds", "0,1", "--datasets", f"{unscored},{scored}") == 0
    told = capsys.readouterr()
    assert "nan" not in (told.out + told.err).lower() and "its test rows have no true labels" not in told.out
    table = json.loads((bench.folder / "t.json").read_text())
    assert table["columns"] == ["Type", "Method", "mine (CR)", "scored"] and table["complete"]
    assert any("CR: covering rate" in note for note in table["notes"]) and COVERING_NOTE in table["notes"]
    frame = store.load(bench.results)
    last = frame[(frame["dataset"] == "mine") & (frame["method"] == "proden") & (frame["epoch"] == 1)]
    expected = score(last.to_dict("records"))
    (cell,) = (row[2] for row in table["rows"] if row[1]["text"] == "PRODEN")
    text = f"{expected.covering_rate:.2f}±{expected.standard_error:.2f}"
    assert cell == {"text": text, "bold": False, "underline": False} and expected.standard_error > 0
    lines = pd.read_csv(bench.folder / "t.csv").query("method == 'proden'").set_index(["dataset", "seed"])
    assert lines.loc["mine", "covering_rate"].tolist() == last.sort_values("seed")["covering_rate"].tolist()
    assert lines.loc["mine", "accuracy"].isna().all() and lines.loc["scored", "accuracy"].notna().all()
    assert command(bench, *words, "--seeds", "0,1", "--datasets", str(unscored)) == 0
    output = capsys.readouterr().out
    assert "Test accuracy" not in output and "sample standard deviation" not in output
    assert command(bench, *words, "--seeds", "0-2", "--datasets", str(unscored)) == 3  # a seed is missing
    assert "(2/3)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "methods", "settings", "reason"),
    [
        (("table3", "--reference", "cc"), "proden,cc", (), "mine: no test row has a true label"),
        (("table2", "--set", "train.holdout=0"), "proden", ("train.holdout=0",), "train.holdout is 0"),
    ],
)
def test_a_table_without_numbers_says_why(bench, capsys, words, methods, settings, reason):
    path = data_file(bench, "mine", "y")
    for method in methods.split(","):
        run_one(bench, path, method, *settings)
    assert command(bench, *words, "--methods", methods, "--no-run", "--datasets", str(path)) == 3
    assert reason in " ".join(capsys.readouterr().out.split())


def test_a_labelled_test_part_is_scored_and_training_rows_are_not(bench):
    content = arrays()
    path = data_file(bench, "mine", "y", x_test=content["x"][:20], y_test=content["y"][:20])
    _, document = run_one(bench, path, "proden")
    assert document["summary"]["accuracy"] > 60 and "train_accuracy" not in document["summary"]
    assert "scored" not in document


def test_true_labels_of_some_rows_score_those_rows_alone(bench):
    content = arrays()
    known = np.where(np.arange(60) < 30, content["y"], -1)
    path = data_file(bench, "some", y=known, x_test=content["x"], y_test=known)
    _, document = run_one(bench, path, "proden", "train.holdout=0")
    folder = next(bench.results.glob("runs/some/*/*"))
    kept = store.predictions(folder)
    assert kept is not None and kept.belief is not None
    right = kept.test_logits.argmax(1)[:30] == known[:30]
    assert document["summary"]["accuracy"] == pytest.approx(100 * right.mean())
    assert document["summary"]["train_accuracy"] == pytest.approx(
        100 * (kept.belief.argmax(1)[:30] == known[:30]).mean()
    )


def test_labels_change_no_weight(bench):
    """The same rows with and without `y` end in the same network: true labels reach evaluation only."""
    content = arrays()
    test = {"x_test": content["x"][:9], "y_test": content["y"][:9]}
    paths = data_file(bench, "with", **test), data_file(bench, "without", "y", **test)
    assert len({run_one(bench, path, "pop")[1]["weights_sha256"] for path in paths}) == 1


def test_methods_and_settings_that_need_labels_say_so(bench):
    path = data_file(bench, "mine", "y")
    outcome, _ = run_one(bench, path, "supervised")
    assert outcome.status == "failed" and "supervised trains on true labels" in outcome.reason
    outcome, _ = run_one(bench, path, "proden", "data.generator=uniform")
    assert "makes candidates from true labels, which 60 training rows lack" in outcome.reason


def test_ordinary_labels_as_candidates_are_said_and_a_generator_needs_no_candidates(bench, capfd):
    run_one(bench, data_file(bench, "ordinary", candidates=np.eye(CLASSES)[arrays()["y"]]), "proden")
    told = capfd.readouterr().err
    assert "every candidate set of ordinary holds one label only" in told and "--set data.generator=uniform" in told
    path = data_file(bench, "plain", "candidates")
    outcome, document = run_one(bench, path, "proden", "data.generator=uniform", "data.rate=0.3")
    assert outcome.status == "done", outcome.reason
    assert document["config"]["dataset"]["generator"] == "uniform"
    outcome, _ = run_one(bench, path, "proden")
    assert "plain has no candidate sets; add them, or generate them with" in outcome.reason


def test_a_done_run_without_a_result_is_still_damaged(bench):
    _, document = run_one(bench, data_file(bench, "mine"), "proden")
    store.check_document(json.loads(json.dumps(document)))
    del document["summary"]["accuracy"]
    with pytest.raises(ValueError, match="done without a result"):
        store.check_document(document)
