"""Split tables that have no official split: folds, rows held out, and the recipes of published protocols.

A recipe is a function of the labels and the seed. Those of a publication draw from its generator and reproduce its splits
row by row; ours draw from `permutation`, which no upgrade changes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from datasets.base import DataError, hold_out, permutation

if TYPE_CHECKING:
    import numpy as np

    Rows = tuple[np.ndarray, np.ndarray]  # of the training and of the test part


@dataclass(frozen=True)
class Recipe:
    """Recipe of a split, `rows(labels, seed, options)`; `published`: the splits of a publication, on its rows."""

    sentence: str
    rows: Callable[[np.ndarray, int, Options], Rows]
    published: bool = False


@dataclass(frozen=True)
class Options:
    """Options of split recipes."""

    folds: int = 5
    test_share: float = 0.2
    validation_share: float = 0.0  # in neither part: their true labels chose the epoch in the publication
    file_folds: tuple[np.ndarray, ...] = ()  # test rows of every fold, as the file has them


def k_fold(count: int, seed: int, k: int) -> Rows:
    """Return fold `seed % k` of shuffle `seed // k`: seeds 0 … k − 1 are one k-fold validation."""
    import numpy as np

    folds = np.array_split(permutation(count, seed // k), k)
    test = folds.pop(seed % k)
    return np.sort(np.concatenate(folds)), np.sort(test)


def random_80(labels: np.ndarray, seed: int, options: Options) -> Rows:
    """Return 80 % down to a multiple of 16, drawn and shuffled by PCG64(seed): Fuchs and Kalinke, UAI 2025."""
    import numpy as np

    count = int(0.8 * len(labels)) // 16 * 16
    generator = np.random.Generator(np.random.PCG64(seed))
    train = generator.choice(len(labels), size=count, replace=False, shuffle=False)
    test = np.setdiff1d(np.arange(len(labels)), train)
    generator.shuffle(train)
    generator.shuffle(test)
    return train, test


def stratified(labels: np.ndarray, seed: int, options: Options) -> Rows:
    """Return scikit-learn's stratified folds, shuffled by 42, the next round of seeds by 43: Fuchs and Klein."""
    import numpy as np
    from sklearn.model_selection import StratifiedKFold

    folds = StratifiedKFold(options.folds, shuffle=True, random_state=42 + seed // options.folds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes with fewer rows than folds, as the publication has them
        train, test = list(folds.split(np.zeros(len(labels)), labels))[seed % options.folds]
    return train, test


def fixed(labels: np.ndarray, seed: int, options: Options) -> Rows:
    """Return torch's random_split with generator 42, the same for every seed: Xu et al., ICML 2023."""
    import torch
    from torch.utils.data import random_split

    generator = torch.Generator().manual_seed(42)
    shares = [1 - options.validation_share - options.test_share, options.validation_share, options.test_share]
    parts: list[Any] = random_split(range(len(labels)), shares, generator)  # type: ignore[arg-type]
    train, _, test = parts
    return _array(train.indices), _array(test.indices)


def stored(labels: np.ndarray, seed: int, options: Options) -> Rows:
    """Return fold `seed` of those in the file."""
    import numpy as np

    if not options.file_folds:
        raise DataError("the file has no folds `tr` and `te`; use the split k-fold")
    test = options.file_folds[seed % len(options.file_folds)]
    return np.setdiff1d(np.arange(len(labels)), test), test


def _array(rows: Any) -> np.ndarray:
    import numpy as np

    return np.asarray(rows, dtype=np.int64)


SPLITS = {
    "ten-fold": Recipe(
        "fold seed % 10 of shuffle seed // 10", lambda labels, seed, options: k_fold(len(labels), seed, 10)
    ),
    "k-fold": Recipe(
        "fold seed % folds of shuffle seed // folds",
        lambda labels, seed, options: k_fold(len(labels), seed, options.folds),
    ),
    "hold-out": Recipe(
        "test_share of the rows, drawn by the seed",
        lambda labels, seed, options: hold_out(len(labels), seed, options.test_share),
    ),
    "random-80": Recipe("80 % down to a multiple of 16 by PCG64(seed): Fuchs and Kalinke 2025", random_80, True),
    "stratified": Recipe("scikit-learn's stratified folds, shuffled by 42: Fuchs and Klein", stratified, True),
    "fixed": Recipe("torch's random_split with generator 42, whatever the seed: Xu et al. 2023", fixed, True),
    "stored": Recipe("the folds `tr` and `te` of the file", stored, True),
}


NEED_FOLDS = ("k-fold", "stratified")


def rows_of(where: str, name: str, labels: np.ndarray, seed: int, options: Options) -> Rows:
    """Return training and test rows of a recipe; DataError if there are too few rows for it."""
    if name not in SPLITS:
        raise DataError(f"{where}: the split '{name}' is unknown; it is {' or '.join(map(repr, SPLITS))}.")
    if options.folds < 2:
        raise DataError(f"{where}: folds is {options.folds}; at least 2 are needed.")
    if name in NEED_FOLDS and options.folds > len(labels):
        raise DataError(f"{where}: {options.folds} folds of {len(labels)} rows would be empty; use fewer folds.")
    if options.test_share <= 0 or not 0 <= options.validation_share < 1 - options.test_share:
        raise DataError(f"{where}: test_share and validation_share leave no training rows.")
    try:
        train, test = SPLITS[name].rows(labels, seed, options)
    except (ValueError, DataError) as error:  # messages of scikit-learn and of this module
        raise DataError(f"{where}: the split {name} cannot be made: {str(error).rstrip('.')}.") from None
    if len(train) < 2 or not len(test):
        raise DataError(
            f"{where}: the split {name} leaves {len(train)} training and {len(test)} test rows of {len(labels)}; "
            f"the set is too small for it."
        )
    return train, test
