"""Own data as a folder of images with a `candidates.csv`: file, candidates, and label and split where they are known."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from datasets.base import UNKNOWN, DataError, Dataset, Split
from datasets.storage import cache
from datasets.user.rows import FORM, SMALL, Rows, dataset_from, numbered, test_part, words_of

LIST = "candidates.csv"


def read_list(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Rows of candidates.csv with their line numbers."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream)
            columns = reader.fieldnames or []
            if "file" not in columns:
                raise DataError(f"{path} has no column `file`, {FORM}.")
            if "candidates" not in columns and "label" not in columns:
                raise DataError(f"{path} has no column `candidates`, {FORM}.")
            rows = [(reader.line_num, row) for row in reader]
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}.") from None
    for line, row in rows:
        if any(not isinstance(value, str) for value in row.values()):
            raise DataError(f"{path}: line {line} does not have {len(columns)} fields.")
    return rows


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
    """Without a column `split`, `test_share` of the rows with a label is held out by the seed."""
    table = path / LIST
    listed = read_list(table)
    if len(listed) < 2:
        raise DataError(f"{table} lists fewer than two images.")
    truth = [row.get("label", "").strip() for _, row in listed]
    files = [row["file"].strip() for _, row in listed]

    def row_name(row: int) -> str:
        told = f", label '{truth[row]}'" if truth[row] else ""
        return f"line {listed[row][0]} ({files[row]}{told})"

    sets = [words_of(row["candidates"]) for _, row in listed] if "candidates" in listed[0][1] else None
    names, candidates, labels = numbered(str(table), sets, truth, classes, row_name)
    parts = None
    if "split" in listed[0][1]:
        parts = test_part(str(table), [row["split"] for _, row in listed], row_name)
    first: dict[str, int] = {}
    for row, file in enumerate(files):
        if not (path / file).is_file():
            raise DataError(f"{table}: line {listed[row][0]} names {path / file}, which does not exist.")
        if first.setdefault(file, row) != row:
            raise DataError(
                f"{table}: {row_name(row)} is listed before, in line {listed[first[file]][0]}; once is enough."
            )
    where = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    name = path.resolve().name
    # Not into the user's folder, which may be read-only; folders of one name elsewhere must not share a store.
    store = cache_folder or cache.folder(root or path, f"{name}-{where}")
    images = open_images([path / file for file in files], path, store, short_side)
    rows = Rows(str(table), images, labels, names, candidates, parts, tuple(files), row_name=row_name)
    return dataset_from(rows, name, seed, test_share, missing_truth)


def open_images(files: Sequence[Path], base: Path, store: Path, short_side: int = cache.SHORT_SIDE) -> Split:
    """Images without labels: in memory as they are when all are small, else from the store of decoded images."""
    labels = [UNKNOWN] * len(files)
    if all(max(size_of(file)) <= SMALL for file in files):
        return in_memory(files)
    return cache.open_images(files, labels, base, store, "all", short_side)


def size_of(file: Path) -> tuple[int, int]:
    """Width and height, from the head of the file."""
    from PIL import Image

    try:
        with Image.open(file) as image:
            return image.size
    except Exception as error:  # Pillow raises whatever its readers do
        raise DataError(f"The image {file} cannot be decoded: {error}.") from None


def in_memory(files: Sequence[Path]) -> Split:
    """Small images, each in its own size; padded to the largest where sizes differ."""
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
