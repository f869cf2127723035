"""`.npz` files of plain arrays: `x`, and `candidates`, `y`, `x_test`, `y_test`, `class_names` where they are known."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from datasets.base import UNKNOWN, DataError, Dataset, check_candidates, check_labels
from datasets.user.rows import FORM, Rows, dataset_from, inputs_of

if TYPE_CHECKING:
    import numpy as np


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a file; pickled ones are refused."""
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
    if "x" not in arrays:
        raise DataError(f"{path} has no array `x`; {FORM}.")
    return arrays


def labels_of(path: Path, key: str, values: np.ndarray | None, count: int) -> np.ndarray:
    """Return (N,) true labels, UNKNOWN (−1) where the file has none."""
    import numpy as np

    if values is None:
        return np.full(count, UNKNOWN, dtype=np.int64)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise DataError(
            f"{path}: `{key}` has shape {values.shape} and type {values.dtype}; whole numbers (N,) are needed, "
            f"{UNKNOWN} where the label is unknown."
        )
    if len(values) != count:
        raise DataError(f"{path}: `{key}` has {len(values):,} labels for {count:,} rows.")
    if not count:
        raise DataError(f"{path}: `{key}` is empty.")
    return values.astype(np.int64)


def read_npz(path: Path) -> Rows:
    """Read a file and check that its arrays fit each other; candidates are those of the training rows."""
    import numpy as np

    arrays = arrays_of(path)
    x = inputs_of(f"{path}: `x`", arrays["x"])
    y, parts = labels_of(path, "y", arrays.get("y"), len(x)), None
    if "y_test" in arrays and "x_test" not in arrays:
        raise DataError(f"{path} has only one of `x_test` and `y_test`: labels without their rows.")
    if "x_test" in arrays:
        x_test = inputs_of(f"{path}: `x_test`", arrays["x_test"])
        if x_test.shape[1:] != x.shape[1:]:
            raise DataError(f"{path}: a row of `x` has shape {x.shape[1:]}, one of `x_test` {x_test.shape[1:]}.")
        y = np.concatenate([y, labels_of(path, "y_test", arrays.get("y_test"), len(x_test))])
        parts = np.arange(len(y)) >= len(x)
        x = np.concatenate([x, x_test])
    candidates = arrays.get("candidates")
    if candidates is not None:
        if candidates.ndim != 2 or candidates.dtype.kind not in "biuf" or not np.isin(candidates, (0, 1)).all():
            raise DataError(f"{path}: `candidates` is not a matrix (N, C) of 0 and 1.")
        candidates = candidates.astype(bool)
    names = tuple(map(str, arrays["class_names"].tolist())) if "class_names" in arrays else ()
    return Rows(str(path), x, y, names, candidates, parts)


def classes_of(rows: Rows) -> tuple[str, ...]:
    """Return the names of the classes, numbers where the file has no names."""
    if rows.candidates is not None:
        count = rows.candidates.shape[1]
    elif rows.classes:
        count = len(rows.classes)
    elif (rows.labels != UNKNOWN).any():
        count = int(rows.labels.max()) + 1
    else:
        raise DataError(f"{rows.where} has neither `candidates` nor `y`: nothing can be learnt from `x` alone, {FORM}.")
    names = rows.classes or tuple(map(str, range(count)))
    if len(names) != count:
        raise DataError(f"{rows.where}: `class_names` has {len(names)} names for {count} classes.")
    if len(set(names)) < len(names):
        raise DataError(f"{rows.where}: `class_names` has a name twice.")
    return names


def load_npz(
    path: Path,
    root: Path | None = None,
    seed: int = 0,
    missing_truth: Literal["refuse", "keep"] = "refuse",
    *,
    test_share: float = 0.2,
) -> Dataset:
    """Load a file; `y` is optional. Without `x_test`, `test_share` of the rows with a label is held out by the seed."""
    import numpy as np

    rows = read_npz(path)
    rows = replace(rows, classes=classes_of(rows))
    if rows.candidates is not None:  # of all rows, before some are held out
        y = rows.labels if rows.parts is None else rows.labels[~rows.parts]
        check_labels(f"{path} (`y`)", y[y != UNKNOWN], len(rows.classes))
        check_candidates(rows.where, rows.candidates, y, len(rows.classes), may_lack_truth=missing_truth == "keep")
        rows = replace(rows, candidates=np.pad(rows.candidates, ((0, len(rows.labels) - len(y)), (0, 0))))
    return dataset_from(rows, path.stem, seed, test_share, missing_truth)
