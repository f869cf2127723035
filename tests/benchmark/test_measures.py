"""More than accuracy: against scikit-learn and numbers by hand, and from the predictions that runs keep."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss, recall_score, top_k_accuracy_score

from benchmark.cli import main as cli
from benchmark.config.selection import select
from benchmark.measures import MEASURES, calibration_error, measures
from benchmark.runner.options import RunOptions
from benchmark.runner.worker import execute
from tests.conftest import make_tiny


def test_measures_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(400, 9)), rng.integers(0, 9, 400)
    logits[np.arange(400), labels] += 1
    found = measures(logits, labels)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert found["accuracy"] == pytest.approx(100 * accuracy_score(labels, logits.argmax(1)))
    assert found["top5"] == pytest.approx(100 * top_k_accuracy_score(labels, logits, k=5))
    assert found["macro"] == pytest.approx(100 * balanced_accuracy_score(labels, logits.argmax(1)))
    assert found["worst_class"] == pytest.approx(100 * recall_score(labels, logits.argmax(1), average=None).min())
    assert found["nll"] == pytest.approx(log_loss(labels, shares))
    assert set(found) == set(MEASURES)


def test_the_calibration_error_by_hand():
    confidence = np.array([0.95, 0.95, 0.55, 0.55])
    right = np.array([True, True, True, False])
    assert calibration_error(confidence, right) == pytest.approx((2 * 0.05 + 2 * 0.05) / 4)
    assert calibration_error(np.ones(3), np.ones(3, bool)) == 0
    assert calibration_error(np.ones(4), np.array([1, 1, 1, 0], bool)) == pytest.approx(0.25)


def test_classes_without_a_row_and_sets_without_rows():
    assert measures(np.eye(4)[[0, 1]] * 9, np.array([0, 1]))["worst_class"] == 100
    assert all(np.isnan(value) for value in measures(np.zeros((0, 3)), np.zeros(0, int)).values())


def test_export_has_the_measures_of_saved_predictions_and_empty_cells_elsewhere(tmp_path, capfd):
    bench = make_tiny(tmp_path)
    place = RunOptions(bench.results, tmp_path / "data")
    for method, settings in (("cc", ()), ("proden", ("train.measures=true",))):
        (spec,) = select(str(bench.profile), methods=method, seeds="0", settings=settings).specs()
        assert execute(spec, place).status == "done"
    words = ["export", "--runs", "--results", str(bench.results), "--data", str(tmp_path / "data")]

    def exported():
        assert cli.main(words) == 0
        return pd.read_csv(bench.results / "runs.csv").set_index("method")

    row = exported().loc["cc"]
    document = next(d for d in bench.documents() if d["method"] == "cc")
    assert row["accuracy"] == pytest.approx(document["summary"]["accuracy"])
    assert row["top5"] >= row["accuracy"] and row["nll"] > 0 and 0 <= row["ece"] <= 100
    assert row["worst_class"] <= row["macro"] <= 100
    lines = next(bench.results.glob("runs/*/proden/*/metrics.jsonl")).read_text().splitlines()
    last = json.loads(lines[-1])["result"]
    measured = exported().loc["proden", ["top5", "macro", "worst_class", "ece", "nll"]]
    # predictions are stored in half precision
    assert list(measured) == pytest.approx([last[f"test_{name}"] for name in measured.index], abs=0.1)
    plain = next(bench.results.glob("runs/*/cc/*/metrics.jsonl")).read_text()
    assert "test_ece" not in plain
    next(bench.results.glob("runs/*/cc/*/predictions.npz")).unlink()
    damaged = next(bench.results.glob("runs/*/proden/*/predictions.npz"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    rows = exported()
    assert rows["accuracy"].notna().all() and rows[["top5", "ece", "nll"]].isna().all(axis=None)
    assert str(damaged) in capfd.readouterr().err


def test_a_setting_that_is_off_leaves_identities_as_they_were():
    plain, more = (
        select("quick", methods="cc", datasets="digits", seeds="0", settings=settings).specs()[0]
        for settings in ((), ("train.measures=true",))
    )
    assert "measures" not in plain.to_json()["train"] and plain.digest != more.digest
