"""The state of the runs of a plan, and how long a run takes compared with others. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.config.spec import RunSpec
from benchmark.store import PlanStatus, Store, StoredRun, run_frame
from datasets import registry as data_registry
from methods.registry import Entry

if TYPE_CHECKING:
    import pandas


def standing(specs: Sequence[RunSpec], results: Path | Store, keep_model: bool = False) -> PlanStatus:
    return _store(results).status(specs, keep_model)


def as_planned(specs: Sequence[RunSpec], results: Path | Store, labels: Mapping[str, str]) -> list[StoredRun]:
    return _store(results).planned(specs, labels)


def frame_of(specs: Sequence[RunSpec], results: Path | Store, labels: Mapping[str, str]) -> pandas.DataFrame:
    return run_frame(as_planned(specs, results, labels))


def data_notes(specs: Sequence[RunSpec], results: Path | Store) -> list[str]:
    return _store(results).data_notes(specs)


def _store(results: Path | Store) -> Store:
    return results if isinstance(results, Store) else Store(results)


def cost(spec: RunSpec, entry: Entry) -> float:
    """Return a number that grows with the length of a run, to start the longest first: passes × images × epochs."""
    return (1 + 2 * passes_of(entry)) * images_of(spec) * spec.train.epochs


def passes_of(entry: Entry) -> float:
    """Return the forward passes of a whole network per sample and step, as the method declares them."""
    digits = "".join(c if c.isdigit() or c == "." else " " for c in entry.forwards).split()
    return float(digits[0]) if digits else 1.0


def images_of(spec: RunSpec) -> float:
    """Return the training images of a run, as far as that is known without loading them."""
    source = data_registry.get(spec.paths.get("dataset") or spec.dataset)
    return float(spec.config.dataset_settings.get("train") or source.train_size or 1000)
