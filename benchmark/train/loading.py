"""The data and the method of a run, loaded from what its specification names."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from benchmark.plan.spec import RunSpec
from datasets import registry
from datasets.base import DataError, Dataset
from methods.registry import Entry, discover, scan


def dataset_of(spec: RunSpec, data: Path) -> Dataset:
    """The data of a run; `data.split = -1` makes the split follow the seed."""
    split = spec.seed if spec.data.split < 0 else spec.data.split
    name = spec.paths.get("dataset") or spec.dataset
    settings = spec.config.dataset_settings
    if spec.data.missing_truth == "keep" and registry.get(name).own_candidates:
        settings = {"missing_truth": "keep"} | settings
    return _load_dataset(name, str(data), split, json.dumps(settings, sort_keys=True))


@functools.lru_cache(maxsize=2)
def _load_dataset(name: str, root: str, split: int, settings: str) -> Dataset:
    try:
        return registry.get(name).load(Path(root), split, **json.loads(settings))
    except TypeError as error:
        raise DataError(f"{name}: {error}; see the data set's settings in docs/data.md.") from None


def entry_of(spec: RunSpec) -> Entry:
    """The method of a run from its one file."""
    plugin = spec.paths.get("plugin")
    if plugin:
        return next(e for e in scan(Path(plugin)) if e.name == spec.method)
    return discover().get(spec.method)
