"""Comparisons by test row, from the predictions that real runs keep."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from benchmark.analysis.comparisons import compare_runs
from benchmark.analysis.contents import contents_of
from benchmark.analysis.rows import Kept, _test_labels, add_rows, kept
from benchmark.plan.selection import Choice, Selection, select
from benchmark.run.standing import frame_of
from tests.conftest import TINY, TinyBenchmark, make_tiny


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TinyBenchmark:
    made = make_tiny(tmp_path_factory.mktemp("rows"), TINY)
    made.run("run", "--jobs", "1", "--epochs", "1", check=True)
    return made


def selected(bench: TinyBenchmark) -> Selection:
    return select(str(bench.profile), Choice(epochs=1))


def found_in(bench: TinyBenchmark, data: Path) -> tuple[Selection, Kept, list[dict]]:
    selection = selected(bench)
    specs = selection.specs()
    runs = frame_of(specs, bench.results, {spec.digest: spec.method for spec in specs})
    found = kept(specs, runs, data)
    contents = dataclasses.replace(contents_of(selection, "cpu"), reference="proden")
    records = compare_runs(runs, contents)
    add_rows(records, found)
    return selection, found, records


def test_right_and_wrong_of_a_run_make_its_accuracy(trained: TinyBenchmark, tmp_path: Path) -> None:
    _, found, (record,) = found_in(trained, tmp_path)
    for side, method in (("reference_values", "proden"), ("method_values", "cc")):
        for seed, (rows, right) in found.right["digits", method].items():
            assert len(rows) == 1500 and 100 * right.mean() == pytest.approx(record[side][seed])
    assert record["rows_low"] <= record["mean_difference"] <= record["rows_high"]
    assert len(record["mcnemar_p"]) == 2 and not found.notes({})[1:]


def test_runs_without_predictions_and_other_rows_get_a_sentence(trained: TinyBenchmark, tmp_path: Path) -> None:
    _, found, (record,) = found_in(trained, tmp_path)
    found.right["digits", "cc"] = {s: (rows + 1, right) for s, (rows, right) in found.right["digits", "cc"].items()}
    add_rows([record], found)
    assert math.isnan(record["rows_low"]) and record["mcnemar_p"] == {}
    assert "test rows are not the same: CC on Digits" in found.notes({"cc": "CC", "digits": "Digits"})[-1]
    for path in trained.results.glob("runs/*/digits/cc/*/predictions.npz"):
        path.write_bytes(path.read_bytes()[:-1] + b"x" if "seed0" in str(path) else b"")
    _, damaged, (record,) = found_in(trained, tmp_path)
    assert len(damaged.unread) == 2 and "SHA-256" in damaged.unread[0] and np.isnan(record["rows_low"])
    for path in trained.results.glob("runs/*/digits/cc/*/predictions.npz"):
        path.unlink()
    _, cleaned, _ = found_in(trained, tmp_path)
    assert cleaned.without == 2 and "2 finished runs kept no predictions" in " ".join(cleaned.notes({}))


def test_test_rows_that_all_seeds_share_are_the_same_rows_whatever_the_split_is_called(tmp_path: Path) -> None:
    """The user's own data are split by seed unless they bring their test rows."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)).astype(np.float32), np.arange(60) % 3
    drawn, given = tmp_path / "drawn.npz", tmp_path / "given.npz"
    np.savez(drawn, x=x, y=y, candidates=np.eye(3, dtype=bool)[y])
    np.savez(given, x=x, y=y, candidates=np.eye(3, dtype=bool)[y], x_test=x[:9], y_test=y[:9])
    for path, same in ((drawn, False), (given, True)):
        specs = select("quick", Choice(methods="proden", datasets=str(path), seeds="0,1")).specs()
        first, second = (_test_labels(spec, tmp_path)[0] for spec in specs)
        assert np.array_equal(first, second) == same
