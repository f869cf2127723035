"""Folders of images with a `candidates.csv`: file, candidates, and label and split where they are known."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from datasets.base import UNKNOWN, DataError, Dataset, Split
from datasets.storage import cache
from datasets.user.rows import SMALL, dataset_from, row_name
from datasets.user.table import read_texts, rows_of

LIST = "candidates.csv"


def files_of(path: Path, names: Sequence[str]) -> list[Path]:
    """Return the files that a list names, all of which must be there."""
    files = [path / name for name in names]
    for row, file in enumerate(files):
        if not file.is_file():
            raise DataError(f"{path / LIST}: {row_name(row)} names {file}, which does not exist.")
    return files


def load_folder(
    path: Path,
    root: Path | None = None,
    seed: int = 0,
    missing_truth: Literal["refuse", "keep"] = "refuse",
    *,
    test_share: float = 0.2,
    short_side: int = cache.SHORT_SIDE,
    cache_folder: Path | None = None,
    classes: str = "",
) -> Dataset:
    """Load a folder. Without a column `split`, `test_share` of the rows with a label is held out by the seed."""
    import numpy as np

    table = path / LIST
    frame = read_texts(table, ["file"])
    if len(frame) < 2:
        raise DataError(f"{table} lists fewer than two images.")
    rows = rows_of(str(table), frame.assign(id=frame["file"]), np.empty(0), classes)
    files = files_of(path, rows.names)
    where = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    name = path.resolve().name
    # Not into the user's folder, which may be read-only; folders of one name elsewhere must not share a store.
    store = cache_folder or cache.folder(root or path, f"{name}-{where}")
    images = open_images(files, path, store, short_side)  # last, because decoding takes the longest
    return dataset_from(replace(rows, x=images), name, seed, test_share, missing_truth)


def open_images(files: Sequence[Path], base: Path, store: Path, short_side: int = cache.SHORT_SIDE) -> Split:
    """Open images without labels: in memory as they are when all are small, else from the store of decoded images."""
    if all(max(size_of(file)) <= SMALL for file in files):
        return in_memory(files)
    return cache.open_images(files, [UNKNOWN] * len(files), base, store, "all", short_side)


def size_of(file: Path) -> tuple[int, int]:
    """Return width and height from the head of the file."""
    from PIL import Image

    try:
        with Image.open(file) as image:
            return image.size
    except Exception as error:  # Pillow raises whatever its readers do
        raise DataError(f"The image {file} cannot be decoded: {error}.") from None


def in_memory(files: Sequence[Path]) -> Split:
    """Read small images, each in its own size; they are padded to the largest where sizes differ."""
    import numpy as np
    import torch

    pixels = [cache.decode(file, min(size_of(file))) for file in files]
    sizes = np.array([image.shape[1:] for image in pixels])
    height, width = sizes.max(0)
    padded = np.zeros((len(files), 3, height, width), dtype=np.uint8)
    for row, image in zip(padded, pixels, strict=True):
        row[:, : image.shape[1], : image.shape[2]] = image
    equal = bool((sizes == sizes[0]).all())
    labels = torch.full((len(files),), UNKNOWN, dtype=torch.int64)
    return Split(torch.from_numpy(padded), labels, None if equal else torch.from_numpy(sizes))
