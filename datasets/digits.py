"""`digits`: 1,797 handwritten digits of 8×8 pixels (Alpaydin & Kaynak, UCI, 1998), as they ship inside scikit-learn.

scikit-learn is a dependency for this set: no other required package contains labelled real images.
Images are enlarged to 16×16 and repeated over three channels, so that the same networks and views serve all sets.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from datasets.base import Availability, DataError, Dataset, Source, Split, check_size, stratified
from datasets.views.recipes import DIGITS

TOTAL, CLASSES, TEST_SIZE = 1_797, 10, 500
HOW = "pip install scikit-learn"


def load(root: Path, seed: int = 0, *, test: int = TEST_SIZE, shuffle: int = 0) -> Dataset:
    """Load the set with `test` images held out, stratified; another `shuffle` holds out others.

    Data folder and seed have no effect.
    """
    import torch

    path = _file()
    if path is None:
        raise DataError(f"digits: scikit-learn, which holds the images, is not installed; `{HOW}`.")
    try:
        table = np.loadtxt(path, delimiter=",")
    except (OSError, ValueError) as error:
        raise DataError(f"digits: {path} is missing or damaged ({error}); `{HOW} --force-reinstall`.") from None
    check_size(str(path), "images", len(table), TOTAL)
    pixels, labels = table[:, :64], table[:, 64].astype(np.int64)
    if shuffle < 0:
        raise DataError(f"digits: shuffle={shuffle} must not be negative.")
    if not CLASSES <= test <= TOTAL - CLASSES:
        raise DataError(f"digits: test={test} is not possible; take {CLASSES} to {TOTAL - CLASSES}.")
    images = torch.from_numpy(_enlarge(pixels.reshape(-1, 8, 8)))
    targets = torch.from_numpy(labels)
    is_test = stratified(labels, test, shuffle)
    train_rows, test_rows = torch.from_numpy(np.flatnonzero(~is_test)), torch.from_numpy(np.flatnonzero(is_test))
    return Dataset(
        name="digits",
        num_classes=CLASSES,
        class_names=tuple("0123456789"),
        train=Split(images[train_rows], targets[train_rows]),
        test=Split(images[test_rows], targets[test_rows]),
        recipe=DIGITS,
        backbone="small-cnn",
    )


def _enlarge(pixels: np.ndarray) -> np.ndarray:
    """Enlarge (N, 8, 8) in 0 … 16 to (N, 3, 16, 16) uint8, bilinear; the weights 1/4 and 3/4 are exact."""
    big = pixels
    for axis in (1, 2):
        border = np.pad(big, [(1, 1) if a == axis else (0, 0) for a in range(3)], mode="edge")
        before, here, after = (np.take(border, np.arange(8) + k, axis=axis) for k in range(3))
        pair = np.stack([before + 3 * here, 3 * here + after], axis=axis + 1) / 4
        big = pair.reshape([16 if a == axis else size for a, size in enumerate(big.shape)])
    grey = np.minimum(big * 16, 255).astype(np.uint8)
    return np.repeat(grey[:, None], 3, axis=1)


def _file() -> Path | None:
    """Return the table inside scikit-learn, without importing the package, which takes longer than a short epoch."""
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        return None
    return Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"


def find(root: Path) -> Availability:
    """Return whether scikit-learn is installed; the data folder is not used."""
    path = _file()
    if path is None or not path.is_file():
        return Availability("missing", "scikit-learn is not installed", HOW)
    return Availability("found", "inside scikit-learn", "")


SOURCES = (Source("digits", "Digits", "Embedded", TOTAL - TEST_SIZE, TEST_SIZE, CLASSES, load, find),)
