"""Finding data sets: every file named in FILES hands over its `SOURCES`; a path is the user's own data.

To add a data set, write a file with a tuple `SOURCES` of `datasets.base.Source` and name it here. Such a file imports
torch inside its functions only, so that listing needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from datasets import own
from datasets.base import DataError, Source
from methods.registry import did_you_mean

FILES = ("glyphs", "digits", "cifar", "fine_grained", "tabular")


def _collect() -> dict[str, Source]:
    sources: dict[str, Source] = {}
    for file in FILES:
        for source in import_module(f"datasets.{file}").SOURCES:
            if source.name in sources:
                raise ValueError(f"The data set name '{source.name}' is used twice; see datasets/{file}.py.")
            sources[source.name] = source
    return sources


SOURCES = _collect()


def get(name: str) -> Source:
    """The source of that name, or the user's own data when the name is a path (`.npz`, or a folder of pictures)."""
    if name in SOURCES:
        return SOURCES[name]
    path = Path(name).expanduser()
    if path.suffix == ".npz" or (path / "candidates.csv").exists():
        return own.source(path)
    if path.is_dir():
        raise DataError(f"{path} holds no candidates.csv; see docs/data.md for the form of your own data.")
    raise DataError(f"Unknown data set '{name}'.{did_you_mean(name, SOURCES)} See `list datasets`.")
