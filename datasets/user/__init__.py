"""The user's own data: `.csv`, `.parquet` or `.npz` files, folders of images, or folders of several people's answers.

All become `rows.Rows` and then a `Dataset` by one function. True labels are optional. See docs/own-data.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from datasets.base import Availability, Dataset, Source
from datasets.user.crowd import ANSWERS, DATA, load_crowd
from datasets.user.images import LIST, load_folder
from datasets.user.npz import load_npz
from datasets.user.rows import FORM
from datasets.user.table import load_table

LOADERS: dict[str, Callable[..., Dataset]] = {".npz": load_npz, ".csv": load_table, ".parquet": load_table}
FOLDERS: dict[str, Callable[..., Dataset]] = {LIST: load_folder, ANSWERS: load_crowd}  # by a file that they must hold


def is_own(path: Path) -> bool:
    """Tell whether a path names the user's own data: a file by its ending, a folder by what is in it."""
    return path.suffix in LOADERS or any((path / name).is_file() for name in FOLDERS)


def content_of(path: Path) -> list[Path]:
    """Return the files whose content identifies the data."""
    if path.suffix in LOADERS:
        return [path]
    if (path / LIST).is_file() or not (path / ANSWERS).is_file():
        return [path / LIST]
    return [path / ANSWERS, *(path / name for name in DATA if (path / name).is_file())]


def name_of(path: Path) -> str:
    """Return the file's name without its ending, or the folder's: results must not depend on where the data are."""
    return path.stem if path.suffix in LOADERS else path.resolve().name


def source(path: Path) -> Source:
    """Return the path as a dataset, whose sizes are known after loading."""
    name = name_of(path)
    load = partial(LOADERS.get(path.suffix) or FOLDERS[content_of(path)[0].name], path)
    return Source(name, name, "Own", None, None, None, load, partial(find, path), True, True)


def find(path: Path, root: Path) -> Availability:
    file = content_of(path)[0]
    if file.is_file():
        return Availability("found", str(file), "")
    return Availability("missing", f"{file} does not exist", FORM)
