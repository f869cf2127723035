"""Which test rows each run got right, from its kept predictions, and comparisons by row."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmark import store
from benchmark.analysis import statistics as st
from benchmark.errors import CandidError
from benchmark.plan.spec import RunSpec
from datasets.base import UNKNOWN, DataError, plural

if TYPE_CHECKING:
    import pandas as pd

Right = tuple[np.ndarray, np.ndarray]  # ids of test rows, right or wrong


@dataclass
class Kept:
    """By data set and method, then by seed; and what is missing, by the reason."""

    right: dict[tuple[str, str], dict[int, Right]] = field(default_factory=dict)
    without: int = 0  # finished runs that kept no predictions
    unread: list[str] = field(default_factory=list)  # one sentence each
    apart: list[tuple[str, str]] = field(default_factory=list)  # method and data set whose rows are not the reference's

    def notes(self, titles: Mapping[str, str]) -> list[str]:
        notes = [
            "Over test rows: 95 % interval of the difference when test rows are drawn again, seeds kept; McNemar: seeds "
            "whose exact test finds a difference between the two."
        ]
        if not self.right:
            notes = []
        if self.without:
            notes.append(
                f"{plural(self.without, 'finished run')} kept no predictions (older than those files, cleaned, or packed); "
                f"comparisons by test row need them."
            )
        notes += self.unread[:5]
        if self.apart:
            cells = ", ".join(f"{titles[method]} on {titles[dataset]}" for method, dataset in self.apart)
            notes.append(f"Not compared by test row, because the test rows are not the same: {cells}.")
        return notes


def kept(specs: Sequence[RunSpec], runs: pd.DataFrame, data: Path) -> Kept:
    """Right and wrong of every finished run that kept its predictions. True labels are read here and nowhere handed on."""
    found = Kept()
    paths = dict(zip(runs["config_digest"], zip(runs["status"], runs["path"], strict=True), strict=True))
    for spec in specs:
        status, path = paths.get(spec.digest, ("missing", ""))
        if status != "done":
            continue
        try:
            predictions = store.predictions(path)
            if predictions is None:
                found.without += 1
                continue
            ids, labels = _test_labels(spec, data)
            scored = labels[predictions.test_rows] != UNKNOWN
            rows = predictions.test_rows[scored]
            right = predictions.test_logits[scored].argmax(axis=1) == labels[rows]
        except (CandidError, IndexError) as error:
            found.unread.append(f"Left out by test row: {spec.label} on {spec.dataset}, seed {spec.seed}: {error}")
            continue
        if len(rows):
            found.right.setdefault((spec.dataset, spec.method), {})[spec.seed] = (ids[rows], right)
    return found


def _test_labels(spec: RunSpec, data: Path) -> tuple[np.ndarray, np.ndarray]:
    """Ids that tell the rows of different splits apart, and true labels."""
    from benchmark.train.loading import dataset_of

    try:
        test = dataset_of(spec, data).test
    except DataError as error:
        raise CandidError(str(error)) from None
    # A split by seed may still be the same for all, where the user's data bring their test rows: the content tells.
    content = test.images if test.offsets is None else test.offsets
    split = zlib.crc32(content.contiguous().numpy().tobytes()) >> 1 if spec.data.split < 0 else spec.data.split
    return np.arange(len(test.labels)) + (split << 32), test.labels.numpy()


def add_rows(records: Sequence[dict[str, Any]], found: Kept) -> None:
    """Add the comparison by test row to records that have reference, method and dataset."""
    for record in records:
        sides = [found.right.get((record["dataset"], record[side]), {}) for side in ("reference", "method")]
        record |= {"rows_low": math.nan, "rows_high": math.nan, "mcnemar_p": {}, "mcnemar_significant": None}
        if not sides[0].keys() & sides[1].keys():
            continue
        try:
            result = st.compare_rows(sides[0], sides[1])
        except ValueError:
            found.apart.append((record["method"], record["dataset"]))
            continue
        record |= {"rows_low": result.low, "rows_high": result.high, "mcnemar_significant": result.significant()}
        record["mcnemar_p"] = {seed: test.p for seed, test in result.tests.items()}
