"""Load the data and the method that the specification of a run names."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path

import torch

from benchmark.config.spec import RunSpec
from datasets import registry
from datasets.base import UNKNOWN, DataError, Dataset, long_tail
from datasets.base import load as load_cut
from methods.registry import Entry, discover, scan


def dataset_of(spec: RunSpec, data: Path) -> Dataset:
    """Return the data of a run; with `data.split = -1` the split follows the data's seed."""
    split = spec.data_seed if spec.data.split < 0 else spec.data.split
    name = spec.paths.get("dataset") or spec.dataset
    settings = spec.dataset_settings
    if spec.data.missing_truth == "keep" and registry.get(name).own_candidates:
        settings = {"missing_truth": "keep"} | settings
    return _load_dataset(name, str(data), split, json.dumps(settings, sort_keys=True), spec.data.imbalance)


@functools.lru_cache(maxsize=2)
def _load_dataset(name: str, root: str, split: int, settings: str, imbalance: float) -> Dataset:
    try:
        dataset = load_cut(registry.get(name), Path(root), split, **json.loads(settings))
        dataset = replace(dataset, root=Path(root))
    except TypeError as error:
        raise DataError(f"{name}: {error}; see the settings of the dataset in docs/data.md.") from None
    if imbalance == 1:
        return dataset
    if (dataset.train.labels == UNKNOWN).any():
        raise DataError(f"{name}: data.imbalance needs the true label of every training row, and some have none.")
    # By the split, not by the run's seed: the runs of all seeds share the rows, and so the annotator.
    rows = torch.from_numpy(long_tail(dataset.train.labels.numpy(), dataset.num_classes, imbalance, split))
    return dataset.with_training_rows(rows)


def entry_of(spec: RunSpec) -> Entry:
    """Return the method of a run from its file."""
    plugin = spec.paths.get("plugin")
    if plugin:
        return next(e for e in scan(Path(plugin)) if e.name == spec.method)
    return discover().get(spec.method)
