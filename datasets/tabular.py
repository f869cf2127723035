"""Read real-world partial-label sets: features in `.mat` files, `data` n×d, `partial_target` and `target` q×n.

These sets have their own candidates. How rows are split, features scaled and rare classes left out are settings: the
defaults are ours, the others are what publications did.
"""

from __future__ import annotations

import hashlib
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
    min_max,
    plural,
    read_mat,
    rows_without_truth,
    z_score,
)
from datasets.splits import SPLITS, Options, rows_of
from datasets.views.recipes import NOISE, Noise

if TYPE_CHECKING:
    import numpy as np

PAGE = "https://palm.seu.edu.cn/zhangml/Resources.htm"
KEYS = ("data", "partial_target", "target")


@dataclass(frozen=True)
class Table:
    """One set: rows, features and classes; `confirmed` if they were read from the file itself, not from papers."""

    name: str
    title: str
    rows: int
    features: int
    classes: int
    stems: tuple[str, ...]  # file names in use, lower case, letters and digits only
    confirmed: bool = True
    downloadable: bool = False  # listed in datasets.storage.archives
    labels_digest: str = ""  # of candidates and labels in row order: the published splits are splits of these rows
    features_digest: str = ""


TABLES = (
    Table(
        "lost",
        "Lost",
        1_122,
        108,
        16,
        ("lost",),
        True,
        True,
        "1e64cfde008a3a807a7065928956006568d3eca5ed5edd948723b370b463eb0a",
        "3512f065eef6d0be4d83f16bc99596063f2e9a51c1c34763b20743edd9e2b438",
    ),
    Table(
        "msrcv2",
        "MSRCv2",
        1_758,
        48,
        23,
        ("msrcv2",),
        True,
        True,
        "f579a8cd5ba9d3c3bf8c1b3612ad61747a4105a4c6d3ca322c30a12d1b6eb840",
        "ebf66a7be8cba6232d318cc56e83ffa2cf4f8097bd1ecf0886afbe2dd7686f72",
    ),
    Table(
        "birdsong",
        "BirdSong",
        4_998,
        38,
        13,
        ("birdsong",),
        True,
        True,
        "e6452ef2d102ae9612ab6d34850f3beba2f2e0cfe9d8b4e81d3375acfbcfe182",
        "4fa8408a0a1f68d767ce138f1616c0196bf1933e9f13b9a214be5d9c75803715",
    ),
    Table("soccer", "Soccer Player", 17_472, 279, 171, ("soccer", "soccerplayer"), downloadable=True),
    Table("yahoo", "Yahoo! News", 22_991, 163, 219, ("yahoo", "yahoonews"), downloadable=True),
    Table("fgnet", "FG-NET", 1_002, 262, 78, ("fgnet",), confirmed=False, downloadable=True),
    Table("mirflickr", "Mirflickr", 2_780, 1_536, 14, ("mirflickr",), confirmed=False, downloadable=True),
    Table("malagasy", "Malagasy", 5_303, 384, 44, ("malagasy",), confirmed=False),
    Table("italian", "Italian", 21_878, 519, 90, ("italian",), confirmed=False, downloadable=True),
    Table("english", "English", 24_000, 300, 45, ("english",), confirmed=False),
)


# Reading ------------------------------------------------------------------------------------------------------------


def _dense(value: Any, key: str, path: Path) -> np.ndarray:
    """Return a numeric float64 matrix from a dense or sparse MATLAB variable."""
    import numpy as np

    value = value.toarray() if hasattr(value, "toarray") else np.asarray(value)
    if value.dtype.kind not in "fiub" or value.ndim != 2:
        raise DataError(f"{path}: `{key}` is not a numeric matrix.")
    return value.astype(np.float64)


def _indicator(matrix: np.ndarray, key: str, path: Path) -> np.ndarray:
    """Return a 0/1 or −1/1 matrix as bool; soft labels are refused."""
    import numpy as np

    values = np.unique(matrix)
    if not np.isin(values, (-1.0, 0.0, 1.0)).all():
        raise DataError(f"{path}: `{key}` contains values other than 0 and 1, for example {values[-1]:g}.")
    return matrix > 0


def orient(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """Return features (n, d), candidates (n, q) bool, labels (n,), and notes on transposed matrices.

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
            f"do not have the same number of rows."
        )
    if data.shape[0] != n:
        data = data.T
        notes.append("`data` was stored d×n")
    matrices = []
    for key, matrix in (("partial_target", candidates), ("target", target)):
        if matrix.shape[1] == n:
            matrix = matrix.T
        else:
            notes.append(f"`{key}` was stored n×q")
        matrices.append(matrix)
    partial_targets = _indicator(matrices[0], "partial_target", path)
    if matrices[1].shape[1] == 1 and partial_targets.shape[1] > 1:  # a column of labels from 1
        labels = matrices[1][:, 0].astype(np.int64) - 1
        if labels.min() < 0 or labels.max() >= partial_targets.shape[1]:
            raise DataError(f"{path}: `target` contains labels outside 1 … {partial_targets.shape[1]}.")
    else:
        truth = _indicator(matrices[1], "target", path)
        if truth.shape != partial_targets.shape:
            raise DataError(
                f"{path}: `partial_target` has {partial_targets.shape[1]} classes and `target` {truth.shape[1]}."
            )
        unclear = np.flatnonzero(truth.sum(1) != 1)
        if len(unclear):
            raise DataError(
                f"{path}: {plural(len(unclear), 'row')} of `target` without exactly one true label, "
                f"the first is row {unclear[0]}."
            )
        labels = truth.argmax(1)
    check_finite(str(path), data)
    return data, partial_targets, labels, notes


# The datasets ------------------------------------------------------------------------------------------------------


def locate(table: Table, root: Path) -> Path | None:
    """Find `root/<name>/*.mat`, `root/realworld/*.mat` or `root/*.mat`, whatever the spelling: "Soccer Player.mat"."""
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
    split: str = "ten-fold",
    folds: int = 5,
    test_share: float = 0.2,
    validation_share: float = 0.0,
    classes: Literal["all", "present", "frequent"] = "all",
    scaling: Literal["z-score", "min-max", "none"] = "z-score",
    scaling_from: Literal["train", "all"] = "train",
    strong_noise: float = NOISE["strong"].deviation,
    strong_dropout: float = NOISE["strong"].dropped,
    fixed_views: bool = False,
    missing_truth: Literal["refuse", "drop", "keep"] = "refuse",
    check_sizes: bool = True,
) -> Dataset:
    """Load one set, split by seed: `split` names a recipe of `datasets.splits`, `classes` a filter of `chosen_classes`."""
    import numpy as np
    import torch

    path = locate(table, root)
    if path is None:
        raise DataError(f"{table.name}: {table.stems[0]}.mat is not in {Path(root) / table.name}; {_how(table)}.")
    data, candidates, labels, notes = orient(path)
    if check_sizes:
        notes += check_known(table, path, data, candidates, labels, split in SPLITS and SPLITS[split].published)
    if missing_truth == "drop":
        without_truth = rows_without_truth(candidates, labels)
        if len(without_truth):
            notes.append(f"{plural(len(without_truth), 'row')} without the true label among the candidates left out")
        data, candidates, labels = (np.delete(array, without_truth, axis=0) for array in (data, candidates, labels))
    columns = chosen_classes(str(path), candidates, labels, classes)
    keep = np.isin(labels, columns)
    if len(columns) < candidates.shape[1]:
        rare = f"{len(columns)} of {candidates.shape[1]} classes kept, {plural(int((~keep).sum()), 'row')} left out"
        notes.append(f"{rare} (classes={classes})")
    data, candidates, labels = data[keep], candidates[keep][:, columns], np.searchsorted(columns, labels[keep])
    check_candidates(str(path), candidates, labels, len(columns), may_lack_truth=missing_truth == "keep")
    file_folds = stored_folds(path, len(labels)) if split == "stored" else ()
    options = Options(folds, test_share, validation_share, file_folds)
    train_rows, test_rows = rows_of(table.name, split, labels, seed, options)
    train, test = scale_features(data, train_rows, test_rows, scaling, scaling_from)
    return Dataset(
        name=table.name,
        num_classes=len(columns),
        class_names=tuple(f"class {number + 1}" for number in columns),
        train=Split(torch.from_numpy(train), torch.from_numpy(labels[train_rows])),
        test=Split(torch.from_numpy(test), torch.from_numpy(labels[test_rows])),
        recipe=None,
        candidates=torch.from_numpy(candidates[train_rows]),
        may_lack_truth=missing_truth == "keep",
        backbone="mlp",
        notes=tuple(notes),
        noise=Noise(strong_noise, strong_dropout, fixed_views),
    )


def check_known(
    table: Table, path: Path, data: np.ndarray, candidates: np.ndarray, labels: np.ndarray, published: bool
) -> list[str]:
    """Return notes on a file that differs from the known one; DataError if it cannot stand for the set."""
    known_sizes, sizes = (table.rows, table.features, table.classes), (*data.shape, candidates.shape[1])
    if sizes != known_sizes:
        form = "{} rows × {} features, {} classes"
        message = f"has {form.format(*sizes)}; {form.format(*known_sizes)} are known"
        if table.confirmed:
            raise DataError(f"{path} {message}; {_how(table)}, or pass --set dataset.check_sizes=false to accept it.")
        return [f"{path.name} {message}"]
    if not table.labels_digest:
        return []
    if content_digest(candidates, labels) != table.labels_digest:
        message = "has other labels, candidates or another order of rows than the known copy"
        if published:
            raise DataError(
                f"{path} {message}, so this split would not be the published one; run `./reproduce.sh fetch {table.name}` in "
                f"another data folder, or pass --set dataset.check_sizes=false."
            )
        return [f"{path.name} {message}"]
    if content_digest(data) != table.features_digest:
        return [
            f"{path.name} has other features than the known copy: another scale or sign of columns, or other numbers; "
            f"published accuracies may not be reached with it"
        ]
    return []


def content_digest(*arrays: np.ndarray) -> str:
    """Return the SHA-256 of the arrays' content, as little-endian float64 in row order."""
    import numpy as np

    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
    return digest.hexdigest()


def chosen_classes(
    where: str, candidates: np.ndarray, labels: np.ndarray, rule: Literal["all", "present", "frequent"]
) -> np.ndarray:
    """Return the columns in use, ascending. The caller drops rows whose true label is in no other column.

    "present": classes with a true example. "frequent": as many as cover 99 % of the true labels, but those that are
    candidates most often (the released code of Fuchs and Kalinke, UAI 2025).
    """
    import numpy as np

    total = candidates.shape[1]
    examples = np.bincount(labels, minlength=total)
    if rule == "all":
        columns = np.arange(total)
    elif rule == "present":
        columns = np.flatnonzero((examples > 0) & candidates.any(0))
    else:
        is_covered = np.cumsum(np.sort(examples)[::-1] / len(labels)) > 0.99
        count = min(int(np.flatnonzero(is_covered)[0]) + 1, total)
        columns = np.sort(np.argsort(np.count_nonzero(candidates, axis=0))[-count:])
    remaining_classes = np.unique(labels[np.isin(labels, columns)])
    if len(remaining_classes) < 2:
        raise DataError(
            f"{where}: classes={rule} leaves {len(remaining_classes)} with examples; two classes are needed."
        )
    return columns


def scale_features(
    data: np.ndarray, train_rows: np.ndarray, test_rows: np.ndarray, scaling: str, scaling_from: str
) -> tuple[np.ndarray, np.ndarray]:
    """Scale training and test features. Min-max leaves out columns that are constant over the whole set."""
    import numpy as np

    reference = data if scaling_from == "all" else data[train_rows]
    if scaling == "z-score":
        return z_score(reference, data[train_rows])[1], z_score(reference, data[test_rows])[1]
    if scaling == "min-max":
        varies = data.std(0) > 1e-10 * np.maximum(np.abs(data).max(0), 1e-10)
        train, test = min_max(reference[:, varies], data[train_rows][:, varies], data[test_rows][:, varies])
        return train, test
    return data[train_rows].astype(np.float32), data[test_rows].astype(np.float32)


def stored_folds(path: Path, count: int) -> tuple[np.ndarray, ...]:
    """Return the test rows of the folds in a file's `te`: a list of row numbers from 1 for each."""
    import numpy as np
    from scipy.io import whosmat

    if "te" not in (name for name, *_ in whosmat(path)):
        return ()
    cells = read_mat(path, "te", squeeze=True)[0]
    folds = tuple(np.sort(np.atleast_1d(cell).astype(np.int64).ravel()) - 1 for cell in cells)
    if not np.array_equal(np.sort(np.concatenate(folds)), np.arange(count)):
        raise DataError(f"{path}: the folds in `te` do not contain each of the {count:,} rows exactly once.")
    return folds


def _how(table: Table) -> str:
    by_hand = f"unpack {table.title} from {PAGE} and put the .mat file there, see docs/data.md"
    return f"run `./reproduce.sh fetch {table.name}`, or {by_hand}" if table.downloadable else by_hand


def find(table: Table, root: Path) -> Availability:
    """Report the file as found if it exists; its content is checked on loading."""
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
