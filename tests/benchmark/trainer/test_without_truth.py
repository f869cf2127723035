"""Data without true labels: trained, not scored, and nothing pretends otherwise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmark import store
from benchmark.analysis.comparisons import measure
from benchmark.analysis.contents import Contents
from benchmark.cli import main as cli
from benchmark.cli.results import list_runs
from benchmark.config.selection import select
from benchmark.runner.options import Outcome, RunOptions
from benchmark.runner.progress import outcome_line
from benchmark.runner.worker import execute
from benchmark.trainer.summary import LABEL_FREE
from tests.conftest import TINY, TinyBenchmark, make_tiny

CLASSES = 3
PROFILE = TINY.replace("seeds = [0, 1]", "seeds = [0]").replace("epochs = 3", "epochs = 2\nholdout = 0.1")


def arrays(rows: int = 60) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, rows)
    candidates = rng.random((rows, CLASSES)) < 0.4
    candidates[np.arange(rows), y] = True
    return {"x": rng.normal(size=(rows, 5)) + 4 * np.eye(CLASSES, 5)[y], "candidates": candidates, "y": y}


@pytest.fixture
def bench(tmp_path: Path) -> TinyBenchmark:
    return make_tiny(tmp_path, PROFILE)


def run_one(bench: TinyBenchmark, path: Path, method: str, *settings: str) -> tuple[Outcome, dict]:
    (spec,) = select(str(bench.profile), methods=method, datasets=str(path), seeds="0", settings=settings).specs()
    outcome = execute(spec, RunOptions(bench.results, bench.folder / "data"))
    found = store.find(bench.results, spec)
    return outcome, {} if found is None else found.document


def test_without_labels_nothing_is_scored_and_the_label_free_measures_are_shown(bench, capsys):
    content = arrays()
    del content["y"]
    np.savez(bench.folder / "mine.npz", **content)
    outcome, document = run_one(bench, bench.folder / "mine.npz", "pop")
    assert outcome.status == "done" and outcome.accuracy is None
    assert set(document["summary"]) == {*LABEL_FREE, "average_set_size"}
    assert document["scored"] is False
    assert (
        "covering rate" in outcome.label_free
        and "approximated accuracy" in outcome.label_free
        and "%" in outcome.label_free
    )
    (spec,) = select(str(bench.profile), methods="pop", datasets=str(bench.folder / "mine.npz"), seeds="0").specs()
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
    words = ("--datasets", str(bench.folder / "mine.npz"), "--methods", "pop")
    assert cli.main(bench.arguments("table2", "--reference", "pop", *words)[3:]) == 3
    told = capsys.readouterr()
    assert "its test rows have no true labels" in told.out and "nan" not in (told.out + told.err).lower()
    for command in (("status",), ("report",), ("candidates", *words), ("table1", *words), ("export", "--out", "-")):
        assert cli.main(bench.arguments(*command)[3:]) == 0, command
        told = capsys.readouterr()
        assert "Traceback" not in told.err and "nan" not in told.out.lower(), command
    page = (bench.results / "report.html").read_text()
    assert "the test rows have no true labels: mine" in page and "Covering rate" in page


def test_a_labelled_test_part_is_scored_and_training_rows_are_not(bench):
    content = arrays()
    test = {"x_test": content["x"][:20], "y_test": content.pop("y")[:20]}
    np.savez(bench.folder / "mine.npz", **content, **test)
    _, document = run_one(bench, bench.folder / "mine.npz", "proden")
    assert document["summary"]["accuracy"] > 60 and "train_accuracy" not in document["summary"]
    assert "scored" not in document


def test_true_labels_of_some_rows_score_those_rows_alone(bench):
    content = arrays()
    known = np.where(np.arange(60) < 30, content["y"], -1)
    np.savez(bench.folder / "some.npz", **content | {"y": known, "x_test": content["x"], "y_test": known})
    _, document = run_one(bench, bench.folder / "some.npz", "proden", "train.holdout=0")
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
    np.savez(bench.folder / "with.npz", **content, **test)
    np.savez(bench.folder / "without.npz", **{k: v for k, v in content.items() if k != "y"}, **test)
    weights = [run_one(bench, bench.folder / f"{name}.npz", "pop")[1]["weights_sha256"] for name in ("with", "without")]
    assert weights[0] == weights[1]


def test_methods_and_settings_that_need_labels_say_so(bench):
    content = arrays()
    del content["y"]
    np.savez(bench.folder / "mine.npz", **content)
    outcome, _ = run_one(bench, bench.folder / "mine.npz", "supervised")
    assert outcome.status == "failed" and "supervised trains on true labels" in outcome.reason
    outcome, _ = run_one(bench, bench.folder / "mine.npz", "proden", "data.generator=uniform")
    assert "makes candidates from true labels, which 60 training rows lack" in outcome.reason


def test_ordinary_labels_as_candidates_are_said_and_a_generator_needs_no_candidates(bench, capfd):
    content = arrays()
    content["candidates"] = np.eye(CLASSES)[content["y"]]
    np.savez(bench.folder / "ordinary.npz", **content)
    run_one(bench, bench.folder / "ordinary.npz", "proden")
    told = capfd.readouterr().err
    assert "every candidate set of ordinary holds one label only" in told and "--set data.generator=uniform" in told
    del content["candidates"]
    np.savez(bench.folder / "plain.npz", **content)
    outcome, document = run_one(bench, bench.folder / "plain.npz", "proden", "data.generator=uniform", "data.rate=0.3")
    assert outcome.status == "done", outcome.reason
    assert document["config"]["dataset"]["generator"] == "uniform"
    outcome, _ = run_one(bench, bench.folder / "plain.npz", "proden")
    assert "plain brings no candidate sets; add them, or make them with" in outcome.reason


def test_a_done_run_without_a_result_is_still_damaged(bench):
    content = arrays()
    np.savez(bench.folder / "mine.npz", **content)
    _, document = run_one(bench, bench.folder / "mine.npz", "proden")
    store.check_document(json.loads(json.dumps(document)))
    del document["summary"]["accuracy"]
    with pytest.raises(ValueError, match="done without a result"):
        store.check_document(document)
