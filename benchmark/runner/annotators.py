"""The state of annotators in training, read from their folders beside the candidate sets. Needs no torch."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmark.files import file_name, is_locked
from benchmark.store import ANNOTATOR_DOCUMENT, StoredRun, printable


@dataclass(frozen=True)
class AnnotatorStatus:
    """One annotator; its status is done, running, interrupted or failed."""

    dataset: str
    network: str
    status: str
    reason: str
    host: str
    epochs: int
    epochs_done: int
    accuracy: float | None  # of the last epoch, over its training views, in %
    seconds_left: float | None

    def words(self) -> str:
        """'annotator small-cnn, epoch 3/60, 45.1 % right'; the time left is for the caller to format."""
        right = "" if self.accuracy is None else f", {self.accuracy:.1f} % right"
        return f"annotator {self.network}, epoch {self.epochs_done}/{self.epochs}{right}"


def annotators(results: Path, dataset: str = "*") -> Iterator[AnnotatorStatus]:
    """Yield every annotator of this results folder, finished or not; damaged documents are left out."""
    name = dataset if dataset == "*" else file_name(dataset)
    for path in sorted((results / "candidates").glob(f"{name}/annotator-*/{ANNOTATOR_DOCUMENT}")):
        try:
            yield _status_of(path.parent, json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue


def _status_of(folder: Path, document: dict[str, Any]) -> AnnotatorStatus:
    run = StoredRun(folder)
    records, epochs = run.epochs(), int(document["epochs"])
    status = document["status"]
    if status == "running" and not is_locked(folder.with_name(f"{folder.name}.lock")):
        status = "interrupted"
    last = records[-1]["result"].get("train_accuracy") if records else None
    pace = median(record["time"]["seconds"] for record in records) if records else None
    since = time.time() - run.metrics.stat().st_mtime if records else 0.0  # in the epoch that is going on
    return AnnotatorStatus(
        dataset=_text(document["dataset"]),
        network=_text(document["network"]),
        status=_text(status),
        reason=_text(document.get("reason", "")),
        host=_text(document.get("host", "")),
        epochs=epochs,
        epochs_done=len(records),
        accuracy=last,
        seconds_left=None if pace is None else pace * (epochs - len(records)) - min(max(since, 0.0), pace),
    )


def _text(value: Any) -> str:
    return str(printable(str(value)))
