"""The user's own data, in three forms: an `.npz` file, a table (`.csv`, `.parquet`), or a folder of images with a `candidates.csv`.

All three become `rows.Rows` and then a `Dataset` by one function. True labels are optional. See docs/own-data.md.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from datasets.base import Availability, Source
from datasets.own.images import LIST, load_folder
from datasets.own.npz import load_npz
from datasets.own.table import load_table

LOADERS = {".npz": load_npz, ".csv": load_table, ".parquet": load_table}


def is_own(path: Path) -> bool:
    """Whether a path names data of the user's: by its ending, or a folder by what is in it."""
    return path.suffix in LOADERS or (path / LIST).is_file()


def content_of(path: Path) -> Path:
    """The file whose content stands for the data."""
    return path if path.suffix in LOADERS else path / LIST


def name_of(path: Path) -> str:
    """The file without its ending, or the folder: results must not depend on where the data lie."""
    return path.stem if path.suffix in LOADERS else path.resolve().name


def source(path: Path) -> Source:
    """The path as a data set; sizes are known after loading."""
    name = name_of(path)
    load = partial(LOADERS.get(path.suffix, load_folder), path)
    return Source(name, name, "Own", None, None, None, load, partial(find, path), True, True)


def find(path: Path, root: Path) -> Availability:
    wanted = content_of(path)
    if wanted.is_file():
        return Availability("found", str(wanted), "")
    return Availability("missing", f"{wanted} does not exist", "see docs/own-data.md")
