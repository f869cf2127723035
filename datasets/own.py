"""The user's own data: an `.npz` file, or a folder of images with a `candidates.csv`. See docs/data.md for the form."""

from __future__ import annotations

import csv
import hashlib
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from datasets.base import (
    Availability,
    DataError,
    Dataset,
    Source,
    Split,
    check_candidates,
    check_finite,
    check_labels,
    hold_out,
    z_score,
)
from datasets.storage import cache
from datasets.views.recipes import CIFAR, FINE_GRAINED

if TYPE_CHECKING:
    import numpy as np

TABLE = "candidates.csv"
SMALL = 64  # images of at most this side get the recipe and network of CIFAR
FORM = "see `Your own data` in docs/data.md"


def source(path: Path) -> Source:
    """The path as a data set; sizes are known after loading."""
    load = load_npz if path.suffix == ".npz" else load_folder
    name = name_of(path)
    return Source(name, name, "Own", None, None, None, partial(load, path), partial(find, path), True, True)


def name_of(path: Path) -> str:
    """The file without its ending, or the folder: results must not depend on where the data lie."""
    return path.stem if path.suffix == ".npz" else path.resolve().name


def find(path: Path, root: Path) -> Availability:
    wanted = path if path.suffix == ".npz" else path / TABLE
    if wanted.is_file():
        return Availability("found", str(wanted), "")
    return Availability("missing", f"{wanted} does not exist", FORM)


# .npz ---------------------------------------------------------------------------------------------------------------


def _arrays(path: Path) -> dict[str, np.ndarray]:
    import numpy as np

    if path.is_file() and not zipfile.is_zipfile(path):
        raise DataError(f"{path} is not an .npz file, as numpy.savez writes it, or is cut off.")
    try:
        with np.load(path, allow_pickle=False) as content:
            arrays = {key: content[key] for key in content.files}
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except Exception as error:
        raise DataError(f"{path} is not a readable .npz file of plain arrays: {error}.") from None
    lacking = [key for key in ("x", "candidates", "y") if key not in arrays]
    if lacking:
        raise DataError(f"{path} has no array `{lacking[0]}`; x, candidates and y are needed, {FORM}.")
    if ("x_test" in arrays) != ("y_test" in arrays):
        raise DataError(f"{path} has only one of `x_test` and `y_test`.")
    return arrays


def _inputs(path: Path, key: str, values: np.ndarray) -> np.ndarray:
    """Features (N, d) float64, or images (N, 3, H, W) uint8 from (N, 3, H, W), (N, H, W, 3) or grey (N, H, W)."""
    import numpy as np

    if values.ndim == 2 and values.dtype.kind in "fiub":
        features = values.astype(np.float64)
        check_finite(f"{path} (`{key}`)", features)
        return features
    if values.dtype == np.uint8 and values.ndim == 3:
        return np.repeat(values[:, None], 3, axis=1)
    if values.dtype == np.uint8 and values.ndim == 4 and values.shape[1] == 3:
        return values
    if values.dtype == np.uint8 and values.ndim == 4 and values.shape[3] == 3:
        return values.transpose(0, 3, 1, 2)
    raise DataError(
        f"{path}: `{key}` has shape {values.shape} and type {values.dtype}; features are (N, d) numbers, images "
        f"(N, 3, H, W), (N, H, W, 3) or (N, H, W) of type uint8."
    )


def _labels(path: Path, key: str, values: np.ndarray, count: int) -> np.ndarray:
    import numpy as np

    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise DataError(
            f"{path}: `{key}` has shape {values.shape} and type {values.dtype}; whole numbers (N,) are needed."
        )
    if len(values) != count:
        raise DataError(f"{path}: `{key}` has {len(values):,} labels for {count:,} rows.")
    if not count:
        raise DataError(f"{path}: `{key}` is empty.")
    return values.astype(np.int64)


def _candidate_matrix(path: Path, values: np.ndarray) -> np.ndarray:
    import numpy as np

    if values.ndim != 2 or values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
        raise DataError(f"{path}: `candidates` is not a matrix (N, C) of 0 and 1.")
    return values.astype(bool)


def load_npz(
    path: Path,
    root: Path | None = None,
    seed: int = 0,
    missing_truth: Literal["refuse", "keep"] = "refuse",
    *,
    test_share: float = 0.2,
) -> Dataset:
    """`x`, `candidates` (N, C), `y` (N,) and optionally `x_test`, `y_test`; otherwise `test_share` is held out by seed."""
    import numpy as np
    import torch

    arrays = _arrays(path)
    x = _inputs(path, "x", arrays["x"])
    y = _labels(path, "y", arrays["y"], len(x))
    candidates = _candidate_matrix(path, arrays["candidates"])
    num_classes = candidates.shape[1]
    check_labels(f"{path} (`y`)", y, num_classes)
    check_candidates(str(path), candidates, y, num_classes, may_lack_truth=missing_truth == "keep")
    if "x_test" in arrays:
        x_test = _inputs(path, "x_test", arrays["x_test"])
        y_test = _labels(path, "y_test", arrays["y_test"], len(x_test))
        check_labels(f"{path} (`y_test`)", y_test, num_classes)
        if x_test.shape[1:] != x.shape[1:]:
            raise DataError(f"{path}: a row of `x` has shape {x.shape[1:]}, one of `x_test` {x_test.shape[1:]}.")
    elif len(y) < 2:
        raise DataError(f"{path} has a single row, too few to hold out a test part.")
    else:
        rows, held = hold_out(len(y), seed, test_share)
        x, x_test, y, y_test, candidates = x[rows], x[held], y[rows], y[held], candidates[rows]
    are_images = x.ndim == 4
    if not are_images:
        x, x_test = z_score(x, x_test)
    small = are_images and max(x.shape[2:]) <= SMALL
    names = arrays.get("class_names", np.arange(num_classes)).tolist()
    if len(names) != num_classes:
        raise DataError(f"{path}: `class_names` has {len(names)} names for {num_classes} classes.")
    return Dataset(
        name=name_of(path),
        num_classes=num_classes,
        class_names=tuple(map(str, names)),
        train=Split(torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(y)),
        test=Split(torch.from_numpy(np.ascontiguousarray(x_test)), torch.from_numpy(y_test)),
        recipe=CIFAR if small else FINE_GRAINED if are_images else None,
        candidates=torch.from_numpy(candidates),
        may_lack_truth=missing_truth == "keep",
        backbone="resnet18-cifar" if small else "resnet34-imagenet" if are_images else "mlp",
    )


# A folder of images -------------------------------------------------------------------------------------------------


def _read_table(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Rows of candidates.csv with their line numbers."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream)
            columns = reader.fieldnames or []
            lacking = [column for column in ("file", "label", "candidates") if column not in columns]
            if lacking:
                raise DataError(f"{path} has no column `{lacking[0]}`; file, label and candidates are needed, {FORM}.")
            rows = [(reader.line_num, row) for row in reader]
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}.") from None
    for line, row in rows:
        if any(not isinstance(value, str) for value in row.values()):
            raise DataError(f"{path}: line {line} does not have {len(columns)} fields.")
    return rows


def _order(names: set[str]) -> list[str]:
    """Class names in order; by number when all are whole numbers."""
    return sorted(names, key=int) if all(name.isdecimal() for name in names) else sorted(names)


def load_folder(
    path: Path,
    root: Path | None = None,
    seed: int = 0,
    missing_truth: Literal["refuse", "keep"] = "refuse",
    *,
    test_share: float = 0.2,
    short_side: int = cache.SHORT_SIDE,
    cache_folder: Path | None = None,
) -> Dataset:
    """Images with `candidates.csv`: file, label, candidates separated by |, and optionally split (train or test)."""
    import numpy as np
    import torch

    table = path / TABLE
    rows = _read_table(table)
    if len(rows) < 2:
        raise DataError(f"{table} lists fewer than two images.")
    sets = [{name.strip() for name in row["candidates"].split("|")} - {""} for _, row in rows]
    truth = [row["label"].strip() for _, row in rows]
    for (line, row), label in zip(rows, truth, strict=True):
        if not label:
            raise DataError(f"{table}: line {line} ({row['file']}) has no label; evaluation needs it.")
    names = _order(set(truth).union(*sets))
    number = {name: label for label, name in enumerate(names)}
    labels = np.array([number[label] for label in truth])
    train, held = _parts(table, rows, seed, test_share)
    candidates = np.zeros((len(rows), len(names)), dtype=bool)
    for i, allowed in enumerate(sets):
        candidates[i, [number[name] for name in allowed]] = True
    candidates = candidates[train]

    def row_name(row: int) -> str:
        line, fields = rows[train[row]]
        return f"line {line} ({fields['file']}, label '{truth[train[row]]}')"

    check_candidates(str(table), candidates, labels[train], len(names), row_name, missing_truth == "keep")
    files = [path / row["file"].strip() for _, row in rows]
    for (line, _), file in zip(rows, files, strict=True):
        if not file.is_file():
            raise DataError(f"{table}: line {line} names {file}, which does not exist.")
    # Not into the user's folder, which may be read-only; folders of one name elsewhere must not share a store.
    where = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    store = cache_folder or cache.folder(root or path, f"{name_of(path)}-{where}")
    everything = cache.open_images(files, labels.tolist(), path, store, "all", short_side)
    return Dataset(
        name=name_of(path),
        num_classes=len(names),
        class_names=tuple(names),
        train=everything.rows(torch.from_numpy(train)),
        test=everything.rows(torch.from_numpy(held)),
        recipe=FINE_GRAINED,
        candidates=torch.from_numpy(candidates),
        may_lack_truth=missing_truth == "keep",
        backbone="resnet34-imagenet",
    )


def _parts(
    table: Path, rows: list[tuple[int, dict[str, str]]], seed: int, test_share: float
) -> tuple[np.ndarray, np.ndarray]:
    """Training and test rows, by the split column when there is one."""
    import numpy as np

    if "split" not in rows[0][1]:
        return hold_out(len(rows), seed, test_share)
    parts: Mapping[str, list[int]] = {"train": [], "test": []}
    for i, (line, row) in enumerate(rows):
        part = row["split"].strip().lower()
        if part not in parts:
            raise DataError(f"{table}: line {line}: the split is '{row['split']}'; it is train or test.")
        parts[part].append(i)
    empty = next((part for part, members in parts.items() if not members), None)
    if empty is not None:
        raise DataError(f"{table}: no row has the split '{empty}'.")
    return np.array(parts["train"]), np.array(parts["test"])
