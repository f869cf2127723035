"""`letter`: UCI Letter Recognition (Frey and Slate, 1991), a classic of controlled partial-label experiments.

20,000 letters in 20 fonts, described by 16 integers from 0 to 15; the file ships with Candid
(datasets/embedded/NOTICE-letter.txt, CC BY 4.0). The rows are in UCI's order, of which the first 16,000 are customarily
used for training and the rest for testing.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from datasets.base import Availability, DataError, Dataset, Source, Split, z_score

EMBEDDED = Path(__file__).parent / "embedded" / "letter.npz"
SHA256 = "995ccb68672af4fd3bfa393a81ca094669007f8a9d38027272e988f142ca8f3a"  # of the arrays x and y
TRAIN, TEST, CLASSES = 16_000, 4_000, 26


def load(root: Path, seed: int = 0, *, train: int = TRAIN, test: int = TEST) -> Dataset:
    """Return the first `train` of the 16,000 training rows and the first `test` of the 4,000 test rows.

    Features are standardised with the training rows, as those of all tables: the noise of the views is in standard
    deviations, and a dropped feature is set to its mean, 0.
    """
    import torch

    for name, count, most in (("train", train, TRAIN), ("test", test, TEST)):
        if not CLASSES <= count <= most:
            raise DataError(f"letter: {name}={count} is not possible; take {CLASSES} to {most:,}.")
    x, y = load_arrays()
    _, features = z_score(x[:train], x)
    rows = torch.from_numpy(features)
    labels = torch.from_numpy(y.astype(np.int64))
    return Dataset(
        name="letter",
        num_classes=CLASSES,
        class_names=tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        train=Split(rows[:train], labels[:train]),
        test=Split(rows[TRAIN : TRAIN + test], labels[TRAIN : TRAIN + test]),
        recipe=None,
        backbone="mlp",
    )


def load_arrays() -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels of the embedded file after checking their SHA-256."""
    advice = "restore it, for example by `git checkout datasets/embedded/letter.npz`"
    try:
        with np.load(EMBEDDED, allow_pickle=False) as file:
            x, y = file["x"], file["y"]
    except Exception as error:  # a damaged archive raises errors of many kinds
        raise DataError(f"letter: {EMBEDDED} is missing or damaged ({error}); {advice}.") from None
    if hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest() != SHA256:
        raise DataError(f"letter: {EMBEDDED} does not hold the known rows (its SHA-256 differs); {advice}.")
    return x, y


def find(root: Path) -> Availability:
    """Return whether the embedded file is there."""
    if not EMBEDDED.is_file():
        return Availability("missing", f"{EMBEDDED} is missing", "restore the checkout")
    return Availability("found", "ships with Candid", "")


SOURCES = (Source("letter", "Letter", "Embedded", TRAIN, TEST, CLASSES, load, find),)
