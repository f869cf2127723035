"""Summaries of a run for run.json: its accuracies and its cost, from the records of all epochs."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmark.accuracy import ACCURACIES

LABEL_FREE = ("covering_rate", "approximated_accuracy", "candidate_log_likelihood", "held_out_rows")  # on held-out rows
DIAGNOSTICS = ("train_accuracy", "true_labels_missing", "true_labels_lost", "average_set_size")  # of the training set


def summarise(records: list[dict[str, Any]]) -> dict[str, float | None]:
    """Summarise a run for tables: the last epoch is the result; the names of other numbers say what they are.

    Without true labels of test rows there is no accuracy, only the label-free metrics of the last epoch.
    """
    results = [r["result"] for r in records if r["result"].get("test_accuracy") is not None]
    if not results:
        last = records[-1]["result"]
        return {key: last[key] for key in (*LABEL_FREE, *DIAGNOSTICS) if key in last}
    accuracies = [r["test_accuracy"] for r in results]
    late = [r["result"]["test_accuracy"] for r in records[-10:] if r["result"].get("test_accuracy") is not None]
    summary: dict[str, float | None] = {
        "accuracy": accuracies[-1],
        "accuracy_last10": sum(late) / len(late),
        "accuracy_oracle": max(accuracies),
    }
    for accuracy in ACCURACIES:
        metric = accuracy.chosen_by
        scores = [r.get(metric) for r in results] if metric else []
        if scores and all(s is not None for s in scores):
            best = max(range(len(scores)), key=lambda k: (scores[k], k))  # the latest of equal epochs
            summary[accuracy.key] = accuracies[best]
            summary[f"{metric}_selected"] = scores[best]
    for key, value in results[-1].items():
        if key.startswith("test_accuracy_") or key in DIAGNOSTICS:
            summary[key] = value
    return summary


def cost_of(records: list[dict[str, Any]]) -> dict[str, float]:
    """Return time and memory of a run. An epoch costs its training and its share of the evaluations."""
    times = [record["time"] for record in records]
    evaluations = [
        t["seconds"] - t["train_seconds"]
        for t, r in zip(times, records, strict=True)
        if r["result"].keys() & {"test_accuracy", *LABEL_FREE}
    ]
    evaluating = median(evaluations) * len(evaluations) / len(times) if evaluations else 0.0
    cost = {
        "seconds_per_epoch": round(median(t["train_seconds"] for t in times) + evaluating, 4),
        "images_per_second": round(median(t["images_per_second"] for t in times), 1),
        "peak_memory_mb": max(t["peak_memory_mb"] for t in times),
    }
    if "compile_seconds" in times[-1]:
        cost["compile_seconds"] = round(sum(t.get("compile_seconds", 0.0) for t in times), 4)
    return cost
