"""Own data in an `.npz` file of plain arrays: `x`, and `candidates`, `y`, `x_test`, `y_test`, `class_names` where they are known."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from datasets.base import UNKNOWN, DataError, Dataset, check_candidates, check_labels
from datasets.user.rows import FORM, Rows, dataset_from, inputs_of

if TYPE_CHECKING:
    import numpy as np


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file; pickled ones are refused."""
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
    """(N,) true labels, UNKNOWN (−1) where the file has none."""
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


def matrix_of(where: str, values: np.ndarray) -> np.ndarray:
    """A candidate matrix of 0 and 1 as bool."""
    import numpy as np

    if values.ndim != 2 or values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
        raise DataError(f"{where}: `candidates` is not a matrix (N, C) of 0 and 1.")
    return values.astype(bool)


def _classes(
    path: Path, arrays: dict[str, np.ndarray], candidates: np.ndarray | None, y: np.ndarray
) -> tuple[str, ...]:
    if candidates is not None:
        count = candidates.shape[1]
    elif "class_names" in arrays:
        count = len(arrays["class_names"])
    elif (y != UNKNOWN).any():
        count = int(y.max()) + 1
    else:
        raise DataError(f"{path} has neither `candidates` nor `y`: nothing can be learnt from `x` alone, {FORM}.")
    names = (
        tuple(map(str, arrays["class_names"].tolist())) if "class_names" in arrays else tuple(map(str, range(count)))
    )
    if len(names) != count:
        raise DataError(f"{path}: `class_names` has {len(names)} names for {count} classes.")
    if len(set(names)) < len(names):
        raise DataError(f"{path}: `class_names` has a name twice.")
    return names


def load_npz(
    path: Path,
    root: Path | None = None,
    seed: int = 0,
    missing_truth: Literal["refuse", "keep"] = "refuse",
    *,
    test_share: float = 0.2,
) -> Dataset:
    """`y` may be left out or −1. Without `x_test`, `test_share` of the rows with a label is held out by the seed."""
    import numpy as np

    arrays = arrays_of(path)
    x = inputs_of(f"{path}: `x`", arrays["x"])
    y = labels_of(path, "y", arrays.get("y"), len(x))
    candidates = matrix_of(str(path), arrays["candidates"]) if "candidates" in arrays else None
    names = _classes(path, arrays, candidates, y)
    if candidates is not None:  # of all rows, before some are held out
        check_labels(f"{path} (`y`)", y[y != UNKNOWN], len(names))
        check_candidates(str(path), candidates, y, len(names), may_lack_truth=missing_truth == "keep")
    parts = None
    if "y_test" in arrays and "x_test" not in arrays:
        raise DataError(f"{path} has only one of `x_test` and `y_test`: labels without their rows.")
    if "x_test" in arrays:
        x_test = inputs_of(f"{path}: `x_test`", arrays["x_test"])
        if x_test.shape[1:] != x.shape[1:]:
            raise DataError(f"{path}: a row of `x` has shape {x.shape[1:]}, one of `x_test` {x_test.shape[1:]}.")
        y_test = labels_of(path, "y_test", arrays.get("y_test"), len(x_test))
        parts = np.arange(len(x) + len(x_test)) >= len(x)
        x, y = np.concatenate([x, x_test]), np.concatenate([y, y_test])
        if candidates is not None:
            candidates = np.pad(candidates, ((0, len(x_test)), (0, 0)))
    return dataset_from(Rows(str(path), x, y, names, candidates, parts), path.stem, seed, test_share, missing_truth)
