"""Rows of a user, with candidates and with true labels or without, and how they become a `Dataset`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from datasets.base import (
    UNKNOWN,
    DataError,
    Dataset,
    Scaling,
    Split,
    check_candidates,
    check_finite,
    check_labels,
    hold_out,
    plural,
    row_name,
)
from datasets.views.recipes import CIFAR, FINE_GRAINED

if TYPE_CHECKING:
    import numpy as np

SMALL = 64  # images of at most this side get the recipe and network of CIFAR
FORM = "see docs/own-data.md"
SEPARATOR = "|"  # between candidates in a text


@dataclass(frozen=True)
class Rows:
    """All rows of one user's data, those of a test part included."""

    where: str  # for sentences
    x: np.ndarray | Split  # features (N, d) float64, images (N, 3, H, W) uint8, or images of many sizes as a split
    labels: np.ndarray  # (N,) int64, UNKNOWN where nobody knows
    classes: tuple[str, ...]
    candidates: np.ndarray | None = None  # (N, C) bool; those of test rows are not used
    parts: np.ndarray | None = None  # (N,) bool, True for rows of the test part; None: not said
    names: tuple[str, ...] = ()  # of the rows
    columns: tuple[str, ...] = ()  # names of the features


def split_of(rows: Rows, seed: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Return training and test rows: as the data say; else `share` of those with a label is held out by the seed."""
    import numpy as np

    if rows.parts is not None:
        return np.flatnonzero(~rows.parts), np.flatnonzero(rows.parts)
    labelled = np.flatnonzero(rows.labels != UNKNOWN)
    if not len(labelled):  # nothing could be scored
        return np.arange(len(rows.labels)), labelled
    _, test = hold_out(len(labelled), seed, share)
    return np.setdiff1d(np.arange(len(rows.labels)), labelled[test]), labelled[test]


def dataset_from(
    rows: Rows, name: str, seed: int = 0, test_share: float = 0.2, missing_truth: str = "refuse"
) -> Dataset:
    """Build a dataset: split, scale and check the rows."""
    import numpy as np
    import torch

    labels, keep = rows.labels, missing_truth == "keep"
    if len(labels) < 2:
        raise DataError(f"{rows.where} has {plural(len(labels), 'row')}; two or more are needed.")
    check_labels(rows.where, labels[labels != UNKNOWN], len(rows.classes))
    train, test = split_of(rows, seed, test_share)
    candidates = None if rows.candidates is None else rows.candidates[train]
    if candidates is not None:
        check_candidates(rows.where, candidates, labels[train], len(rows.classes), train, rows.names, keep)
    if len(train) < 2:
        raise DataError(f"{rows.where} has {plural(len(train), 'training row')}; two or more are needed.")
    all_labels = torch.from_numpy(labels)
    scaling = None
    if isinstance(rows.x, Split):
        parts = [replace(rows.x, labels=all_labels).rows(torch.from_numpy(part)) for part in (train, test)]
        small, backbone = rows.x.offsets is None, None
    else:
        inputs = [rows.x[train], rows.x[test]]
        if rows.x.ndim == 2:
            scaling = Scaling.of(inputs[0])
            inputs = [scaling(part) for part in inputs]
        tensors = [torch.from_numpy(np.ascontiguousarray(part)) for part in inputs]
        parts = [Split(x, all_labels[part]) for x, part in zip(tensors, (train, test), strict=True)]
        small, backbone = max(rows.x.shape[2:], default=0) <= SMALL, "mlp" if rows.x.ndim == 2 else None
    return Dataset(
        name=name,
        num_classes=len(rows.classes),
        class_names=rows.classes,
        train=parts[0],
        test=parts[1],
        recipe=None if scaling is not None else CIFAR if small else FINE_GRAINED,
        candidates=None if candidates is None else torch.from_numpy(candidates),
        may_lack_truth=keep,
        backbone=backbone or ("resnet18-cifar" if small else "resnet34-imagenet"),
        annotator="small-cnn" if small and backbone is None else "",
        scaling=scaling,
        columns=rows.columns,
        train_names=tuple(rows.names[row] for row in train.tolist()) if rows.names else tuple(map(str, train.tolist())),
    )


# Parts of a file ------------------------------------------------------------------------------------------------------


def inputs_of(where: str, values: np.ndarray) -> np.ndarray:
    """Return features (N, d) float64, or images (N, 3, H, W) uint8 from (N, 3, H, W), (N, H, W, 3) or grey (N, H, W)."""
    import numpy as np

    if values.ndim == 2 and values.dtype.kind in "fiub":
        features = values.astype(np.float64)
        check_finite(where, features)
        return features
    if values.dtype == np.uint8 and values.ndim == 3:
        return np.repeat(values[:, None], 3, axis=1)
    if values.dtype == np.uint8 and values.ndim == 4 and 3 in (values.shape[1], values.shape[3]):
        return values if values.shape[1] == 3 else values.transpose(0, 3, 1, 2)
    raise DataError(
        f"{where} has shape {values.shape} and type {values.dtype}; features are (N, d) numbers, images (N, 3, H, W), "
        f"(N, H, W, 3) or (N, H, W) of type uint8."
    )


def words_of(text: str) -> set[str]:
    """Return the candidates that a text names."""
    return {word.strip() for word in text.split(SEPARATOR)} - {""}


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Return class names in order; by number when all are whole numbers."""
    classes = set(names)
    return tuple(sorted(classes, key=int) if all(name.isdecimal() for name in classes) else sorted(classes))


def numbered(
    where: str, sets: Sequence[set[str]] | None, truth: Sequence[str], classes: str, ids: Sequence[str]
) -> tuple[tuple[str, ...], np.ndarray | None, np.ndarray]:
    """Return class names, candidates (N, C) and labels (N,) from words; `classes` may fix the names and their order."""
    import numpy as np

    named: set[str] = set(truth).union(*(sets or ())) - {""}
    names = tuple(dict.fromkeys(word.strip() for word in classes.split(SEPARATOR) if word.strip())) or ordered(named)
    if named - set(names):
        strange = min(named - set(names))
        row = next(i for i, label in enumerate(truth) if label == strange or (sets and strange in sets[i]))
        raise DataError(
            f"{where}: {row_name(row, ids)} names the class '{strange}', which is not among the {len(names)} given "
            f"({', '.join(names[:10])}{', …' if len(names) > 10 else ''})."
        )
    if len(names) < 2:
        raise DataError(f"{where} names {'one class' if names else 'no class'}; two or more are needed.")
    number: dict[Any, int] = {name: label for label, name in enumerate(names)} | {"": UNKNOWN}
    labels = np.array([number[label] for label in truth], dtype=np.int64)
    if sets is None:
        return names, None, labels
    candidates = np.zeros((len(truth), len(names)), dtype=bool)
    for row, allowed in enumerate(sets):
        candidates[row, [number[name] for name in allowed]] = True
    return names, candidates, labels


def test_part(where: str, words: Sequence[str], ids: Sequence[str]) -> np.ndarray:
    """Return the test rows as (N,) bool, from a column `split` of train and test."""
    import numpy as np

    parts = [word.strip().lower() for word in words]
    for row, part in enumerate(parts):
        if part not in ("train", "test"):
            raise DataError(f"{where}: {row_name(row, ids)}: the split is '{words[row]}'; it is train or test.")
    if "train" not in parts:
        raise DataError(f"{where}: no row has the split 'train'.")
    return np.array([part == "test" for part in parts])
