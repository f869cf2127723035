"""Find datasets: every file of this folder may have a tuple `SOURCES`; a path is the user's own data.

To add a dataset, put a file here with a tuple `SOURCES` of `datasets.base.Source`. Such a file imports torch inside
its functions only, so that listing needs no torch.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path

import datasets
from datasets import user
from datasets.base import GROUPS, DataError, Source


def _collect() -> dict[str, Source]:
    """Return all sources by name, those that need no download first."""
    sources: dict[str, Source] = {}
    for file in pkgutil.iter_modules(datasets.__path__):
        if file.ispkg or file.name == "registry":
            continue
        for source in getattr(import_module(f"datasets.{file.name}"), "SOURCES", ()):
            if source.name in sources:
                raise ValueError(f"The dataset name '{source.name}' is used twice; see datasets/{file.name}.py.")
            sources[source.name] = source
    return dict(sorted(sources.items(), key=lambda item: GROUPS.index(item[1].group)))


SOURCES = _collect()


def get(name: str) -> Source:
    """Return the source of that name, or the user's own data if the name is a path (a file, or a folder of images)."""
    if name in SOURCES:
        return SOURCES[name]
    path = Path(name).expanduser()
    if user.is_own(path):
        return user.source(path)
    if path.is_dir():
        raise DataError(
            f"{path} contains neither candidates.csv nor answers.csv; see docs/own-data.md for the format of your own data."
        )
    raise DataError(f"Unknown dataset '{name}' (see `list datasets`).")
