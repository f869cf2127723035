"""Real-world partial-label sets as feature vectors in `.mat` files: `data` n×d, `partial_target` and `target` q×n.

These sets bring their own candidates. Features are scaled to mean 0 and deviation 1 on the training rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from datasets.base import (
    Availability,
    DataError,
    Dataset,
    Source,
    Split,
    check_candidates,
    check_finite,
    fold_of_ten,
    hold_out,
    plural,
    read_mat,
    rows_without_truth,
    z_score,
)

if TYPE_CHECKING:
    import numpy as np

PAGE = "https://palm.seu.edu.cn/zhangml/Resources.htm"
KEYS = ("data", "partial_target", "target")


@dataclass(frozen=True)
class Table:
    """One set: rows, features and classes; `confirmed` when they were seen in the file itself, not in papers alone."""

    name: str
    title: str
    rows: int
    features: int
    classes: int
    stems: tuple[str, ...]  # file names in use, lower case, letters and digits only
    confirmed: bool = True


TABLES = (
    Table("lost", "Lost", 1_122, 108, 16, ("lost",)),
    Table("msrcv2", "MSRCv2", 1_758, 48, 23, ("msrcv2",)),
    Table("birdsong", "BirdSong", 4_998, 38, 13, ("birdsong",)),
    Table("soccer", "Soccer Player", 17_472, 279, 171, ("soccer", "soccerplayer")),
    Table("yahoo", "Yahoo! News", 22_991, 163, 219, ("yahoo", "yahoonews")),
    Table("fgnet", "FG-NET", 1_002, 262, 78, ("fgnet",), confirmed=False),
    Table("mirflickr", "Mirflickr", 2_780, 1_536, 14, ("mirflickr",), confirmed=False),
    Table("malagasy", "Malagasy", 5_303, 384, 44, ("malagasy",), confirmed=False),
)


# Reading ------------------------------------------------------------------------------------------------------------


def _dense(value: Any, key: str, path: Path) -> np.ndarray:
    """A numeric float64 matrix from a dense or sparse MATLAB variable."""
    import numpy as np

    value = value.toarray() if hasattr(value, "toarray") else np.asarray(value)
    if value.dtype.kind not in "fiub" or value.ndim != 2:
        raise DataError(f"{path}: `{key}` is not a numeric matrix.")
    return value.astype(np.float64)


def _indicator(matrix: np.ndarray, key: str, path: Path) -> np.ndarray:
    """A 0/1 or −1/1 matrix as bool; soft labels are refused."""
    import numpy as np

    values = np.unique(matrix)
    if not np.isin(values, (-1.0, 0.0, 1.0)).all():
        raise DataError(f"{path}: `{key}` holds other values than 0 and 1, for example {values[-1]:g}.")
    return matrix > 0


def orient(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """Features (n, d), candidates (n, q) bool, labels (n,), and notes on what was turned round.

    The usual form is data n×d with labels q×n; copies with either matrix transposed exist.
    """
    import numpy as np

    data, candidates, target = (
        _dense(value, key, path) for key, value in zip(KEYS, read_mat(path, *KEYS), strict=True)
    )
    notes = []
    n = next((rows for rows in data.shape if rows in candidates.shape and rows in target.shape), None)
    if n is None:
        raise DataError(
            f"{path}: `data` {data.shape}, `partial_target` {candidates.shape} and `target` {target.shape} "
            f"have no number of rows in common."
        )
    if data.shape[0] != n:
        data = data.T
        notes.append("`data` was stored d×n")
    turned = []
    for key, matrix in (("partial_target", candidates), ("target", target)):
        if matrix.shape[1] == n:
            matrix = matrix.T
        else:
            notes.append(f"`{key}` was stored n×q")
        turned.append(matrix)
    allowed = _indicator(turned[0], "partial_target", path)
    if turned[1].shape[1] == 1 and allowed.shape[1] > 1:  # a column of labels from 1
        labels = turned[1][:, 0].astype(np.int64) - 1
        if labels.min() < 0 or labels.max() >= allowed.shape[1]:
            raise DataError(f"{path}: `target` holds labels outside 1 … {allowed.shape[1]}.")
    else:
        truth = _indicator(turned[1], "target", path)
        if truth.shape != allowed.shape:
            raise DataError(f"{path}: `partial_target` has {allowed.shape[1]} classes and `target` {truth.shape[1]}.")
        unclear = np.flatnonzero(truth.sum(1) != 1)
        if len(unclear):
            raise DataError(
                f"{path}: {plural(len(unclear), 'row')} of `target` without exactly one true label, "
                f"the first is row {unclear[0]}."
            )
        labels = truth.argmax(1)
    check_finite(str(path), data)
    return data, allowed, labels, notes


# The data sets ------------------------------------------------------------------------------------------------------


def locate(table: Table, root: Path) -> Path | None:
    """`root/<name>/*.mat`, `root/realworld/*.mat` or `root/*.mat`, whatever the spelling: "Soccer Player.mat"."""
    for folder in (Path(root) / table.name, Path(root) / "realworld", Path(root)):
        if folder.is_dir():
            for path in sorted(folder.glob("*.mat")):
                if "".join(filter(str.isalnum, path.stem.lower())) in table.stems:
                    return path
    return None


def load(
    table: Table,
    root: Path,
    seed: int = 0,
    *,
    split: Literal["ten-fold", "hold-out"] = "ten-fold",
    test_share: float = 0.2,
    missing_truth: Literal["refuse", "drop"] = "refuse",
    check_sizes: bool = True,
) -> Dataset:
    """One set, split by seed: fold `seed % 10` of shuffle `seed // 10`, or `test_share` of the rows held out."""
    import numpy as np
    import torch

    path = locate(table, root)
    if path is None:
        raise DataError(f"{table.name}: {table.stems[0]}.mat is not in {Path(root) / table.name}; {_how(table)}.")
    data, candidates, labels, notes = orient(path)
    stated = (table.rows, table.features, table.classes)
    if check_sizes and (*data.shape, candidates.shape[1]) != stated:
        form = "{} rows × {} features, {} classes"
        message = f"{path} has {form.format(*data.shape, candidates.shape[1])}; {form.format(*stated)} are known"
        if table.confirmed:
            raise DataError(message + ".")
        notes.append(message)
    if missing_truth == "drop":
        lacking = rows_without_truth(candidates, labels)
        if len(lacking):
            notes.append(f"{plural(len(lacking), 'row')} without the true label among the candidates left out")
        data, candidates, labels = (np.delete(array, lacking, axis=0) for array in (data, candidates, labels))
    check_candidates(str(path), candidates, labels, candidates.shape[1])
    if split not in ("ten-fold", "hold-out"):
        raise DataError(f"{table.name}: the split '{split}' is unknown; it is 'ten-fold' or 'hold-out'.")
    rows, held = fold_of_ten(len(labels), seed) if split == "ten-fold" else hold_out(len(labels), seed, test_share)
    train, test = z_score(data[rows], data[held])
    return Dataset(
        name=table.name,
        num_classes=candidates.shape[1],
        class_names=tuple(f"class {number}" for number in range(1, candidates.shape[1] + 1)),
        train=Split(torch.from_numpy(train), torch.from_numpy(labels[rows])),
        test=Split(torch.from_numpy(test), torch.from_numpy(labels[held])),
        recipe=None,
        candidates=torch.from_numpy(candidates[rows]),
        backbone="mlp",
        notes=tuple(notes),
    )


def _how(table: Table) -> str:
    return f"unpack {table.title} from {PAGE} and put the .mat file there, see docs/data.md"


def find(table: Table, root: Path) -> Availability:
    """Found when the file is there; its content is checked on loading."""
    path = locate(table, root)
    if path is None:
        return Availability("missing", f"no {table.stems[0]}.mat in {Path(root) / table.name}", _how(table))
    if path.stat().st_size < 128:  # shorter than the header of a MATLAB file
        return Availability("incomplete", f"{path} is cut off", _how(table))
    return Availability("found", str(path), "")


SOURCES = tuple(
    Source(
        table.name,
        table.title,
        "Tabular",
        table.rows - -(-table.rows // 10),  # fold 0, the largest test part
        -(-table.rows // 10),
        table.classes,
        partial(load, table),
        partial(find, table),
        own_candidates=True,
        split_by_seed=True,
    )
    for table in TABLES
)
