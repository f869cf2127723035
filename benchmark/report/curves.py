"""Accuracy curves of many runs in few bytes: common grids of epochs, 16-bit values, base64. Needs NumPy only."""

from __future__ import annotations

import base64
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmark.store import RunFolder

CURVE_VALUES = 400_000  # in all curves together: about 1.1 MB of base64
MOST_POINTS, LEAST_POINTS = 500, 12  # of one curve
MOST_METRICS = 16
MISSING = 65535
FIRST_METRICS = ("test_accuracy", "train_accuracy", "covering_rate", "approximated_accuracy", "loss")

Source = tuple[str, str, int, RunFolder]  # label, data set, seed, folder


@dataclass(frozen=True)
class Series:
    """The metrics of one run, a value per epoch, nan where one was not recorded."""

    label: str
    dataset: str
    seed: int
    metrics: Mapping[str, np.ndarray]


def curves(views: Sequence[Sequence[Source]]) -> list[dict[str, Any]]:
    """Per view its labels and the curves of every metric, thinned and quantised to fit a page together."""
    read = [[Series(label, dataset, seed, columns(folder)) for label, dataset, seed, folder in own] for own in views]
    counts = Counter(name for own in read for s in own for name in s.metrics)
    chosen = _in_order(counts)[:MOST_METRICS]
    # Test accuracy, which most readers want, gets twice the points of the others.
    weight = sum(counts[name] * _share(name) for name in chosen)
    points = max(LEAST_POINTS, CURVE_VALUES // max(1, weight))
    found = []
    for own in read:
        labels = sorted({s.label for s in own})
        metrics = [_metric(name, own, labels, points * _share(name)) for name in chosen]
        found.append({"labels": labels, "metrics": [metric for metric in metrics if metric["series"]]})
    return found


def _share(name: str) -> int:
    return 2 if name == "test_accuracy" else 1


def _in_order(counts: Counter[str]) -> list[str]:
    first = [name for name in FIRST_METRICS if name in counts]
    return [*first, *sorted(set(counts) - set(first), key=lambda name: (-counts[name], name))]


def columns(folder: RunFolder) -> dict[str, np.ndarray]:
    """The metrics of a run by name, (epochs,) each; the learning rate, which is no result, is left out."""
    results = [record["result"] for record in folder.epochs()]
    # A metric is there from the first epoch, or from the first evaluation on: the last epoch is always evaluated.
    names = dict.fromkeys(name for result in results[:1] + results[-1:] for name in result if name != "lr")
    found = {}
    for name in names:
        try:
            column = np.array([result.get(name) for result in results], dtype=np.float64)
        except OverflowError:
            continue
        if np.isfinite(column).any():
            found[name] = column
    return found


def _metric(name: str, series: Sequence[Series], labels: Sequence[str], points: int) -> dict[str, Any]:
    own = [s for s in series if name in s.metrics]
    longest: dict[str, int] = defaultdict(int)
    for s in own:
        longest[s.dataset] = max(longest[s.dataset], len(s.metrics[name]))
    recorded = {dataset: np.zeros(epochs, dtype=bool) for dataset, epochs in longest.items()}
    for s in own:  # not every epoch is evaluated
        recorded[s.dataset][: len(s.metrics[name])] |= np.isfinite(s.metrics[name])
    grids = {
        dataset: epoch_grid(np.flatnonzero(epochs), min(points, MOST_POINTS)) for dataset, epochs in recorded.items()
    }
    place = {label: k for k, label in enumerate(labels)}
    listed, values = [], []
    for s in own:
        codes, low, high = quantise(thin(s.metrics[name], grids[s.dataset]))
        listed.append([place[s.label], s.dataset, s.seed, low, high])
        values.append(codes)
    packed = np.concatenate(values).astype("<u2").tobytes() if values else b""
    return {
        "name": name[:60],
        "series": listed,
        "grids": {dataset: grid.tolist() for dataset, grid in grids.items()},
        "values": base64.b64encode(packed).decode(),
    }


def epoch_grid(epochs: np.ndarray, points: int) -> np.ndarray:
    """At most so many of the epochs, the first and the last among them."""
    return epochs[np.unique(np.linspace(0, len(epochs) - 1, min(points, len(epochs))).round().astype(int))]


def thin(values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """The last value recorded between one epoch of the grid and the next; nan where there is none."""
    known = np.flatnonzero(np.isfinite(values))
    if not len(known):
        return np.full(len(grid), math.nan)
    last = np.searchsorted(known, grid, side="right") - 1
    epoch = known[np.maximum(last, 0)]
    before = np.concatenate([[-1], grid[:-1]])
    return np.where((last >= 0) & (epoch > before), values[epoch], math.nan)


def quantise(values: np.ndarray) -> tuple[np.ndarray, float, float]:
    """16-bit codes between the smallest and the largest value; 65535 is missing."""
    known = np.isfinite(values)
    if not known.any():
        return np.full(len(values), MISSING), 0.0, 0.0
    low, high = float(values[known].min()), float(values[known].max())
    span = high - low
    if not math.isfinite(span):  # two ends of the range of floats: nothing that a curve could show
        return np.full(len(values), MISSING), 0.0, 0.0
    scaled = np.zeros(len(values)) if span == 0 else (np.where(known, values, low) - low) / span * (MISSING - 1)
    return np.where(known, scaled.round(), MISSING).astype(np.int64), low, high
