"""Compare the program with its golden numbers; see `record.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmark.verify import allowed
from tests.golden import record


def differences(stored: Any, now: Any, path: str = "") -> list[str]:
    """Return every place where two JSON values differ."""
    if isinstance(stored, dict) and isinstance(now, dict):
        keys = sorted(stored.keys() | now.keys())
        return [line for key in keys for line in differences(stored.get(key), now.get(key), f"{path}.{key}")]
    return [] if stored == now else [f"{path}: {stored} -> {now}"]


def test_run_specifications() -> None:
    stored, now = record.stored("specs"), record.specs()
    assert sorted(stored) == sorted(now)
    changed = [
        line
        for name in stored
        if stored[name] != now[name]
        for line in differences(json.loads(stored[name][2]), json.loads(now[name][2]), name) or [f"{name}: other seeds"]
    ]
    assert not changed, "\n".join(changed[:20])


@pytest.fixture(scope="module")
def trainings() -> dict[str, Any]:
    return record.trainings()


def test_trainings(trainings: dict[str, Any], record_property: Any) -> None:
    stored = record.stored("trainings")
    assert sorted(stored["runs"]) == sorted(trainings["runs"])
    if stored["kind"] == trainings["kind"]:
        record_property("comparison", "bits")
        changed = differences(stored["runs"], trainings["runs"])
        assert not changed, "\n".join(changed[:20])
        return
    record_property("comparison", "accuracies within the tolerance of verify")
    print(f"Recorded on {stored['kind']}, compared on {trainings['kind']}: accuracies within the tolerance of verify.")
    for method, before in stored["runs"].items():
        now = trainings["runs"][method]
        for key in ("status", "candidates", "identity", "test_rows"):
            assert now[key] == before[key], (method, key)
        accuracies = [run["summary"]["accuracy"] for run in (before, now)]
        assert abs(accuracies[0] - accuracies[1]) <= allowed(accuracies[1], now["test_rows"]), (method, accuracies)


def test_candidate_sets() -> None:
    """Annotator logits decide them, so bits are compared on the recorded kind of CPU and names elsewhere."""
    stored, now = record.stored("candidates"), record.candidates()
    assert sorted(stored["sets"]) == sorted(now["sets"])
    if stored["kind"] == now["kind"]:
        assert stored["sets"] == now["sets"]
    else:
        print(f"Recorded on {stored['kind']}, compared on {now['kind']}: only the names of the sets.")


@pytest.mark.parametrize("name", record.TABLES)
def test_tables(name: str) -> None:
    assert record.tables(name)[name] == record.stored("tables")[name]
