"""CIFAR-10 (Krizhevsky, 2009), and CIFAR-10N: the same images with the answers of three people each (Wei et al., ICLR 2022).

The images are the python version, as unpacked from the archive. The answers are in the authors' file
`CIFAR-10_human.pt`, put in place by hand; their union contains the true label of 97.9 % of the rows.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from datasets.base import (
    Availability,
    DataError,
    Dataset,
    Source,
    Split,
    check_candidates,
    check_labels,
    check_size,
    first_folder,
    how_to_get,
)
from datasets.candidates.votes import candidates_by_votes, check_votes
from datasets.cifar import RestrictedUnpickler, as_text, read_pickle
from datasets.views.recipes import CIFAR

if TYPE_CHECKING:
    import numpy as np

FOLDER = "cifar-10-batches-py"
TRAIN, TEST, META = tuple(f"data_batch_{k}" for k in range(1, 6)), ("test_batch",), "batches.meta"
ZIPPED, HUMAN = "CIFAR-N.zip", "CIFAR-10_human.pt"
HOW_HUMAN = f"put the authors' {HUMAN} (github.com/UCSC-REAL/cifar-10-100n) into data/cifar10n"
ANSWERS = ("clean_label", "random_label1", "random_label2", "random_label3")
# SHA-256 of these four arrays as uint8, in this order, as the authors' archive CIFAR-N.zip of October 2021 has them. Their
# noise rates are the published ones: 17.23, 18.12 and 17.64 %. The arrays are hashed and not the file, because it has
# been distributed in several containers.
ANSWERS_SHA256 = "b8f9c6638e70878e7535dc6c2636f3ac1c06026072a7dd9302abe8879c29e9bc"


def _folder(root: Path) -> Path | None:
    return first_folder([root / "cifar10" / FOLDER, root / "cifar10", root / FOLDER], *TRAIN, *TEST)


def _part(folder: Path, files: tuple[str, ...], size: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return images (N, 3, 32, 32) uint8 and labels (N,) of some files."""
    import numpy as np

    pixels, labels = [], []
    for file in files:
        content = read_pickle(folder / file, "cifar10")
        data, file_labels = content.get("data"), content.get("labels")
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072:
            raise DataError(f"{folder / file}: `data` is not a uint8 matrix with 3,072 columns.")
        if not isinstance(file_labels, list) or not all(isinstance(label, int) for label in file_labels):
            raise DataError(f"{folder / file}: `labels` is missing; is this CIFAR-100?")
        if len(file_labels) != len(data):
            raise DataError(f"{folder / file} holds {len(data):,} images and {len(file_labels):,} labels.")
        check_labels(str(folder / file), file_labels, 10)
        pixels.append(data)
        labels += file_labels
    check_size(str(folder), "images", len(labels), size)
    return np.concatenate(pixels).reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


def load(root: Path, seed: int = 0, *, check_sizes: bool = True) -> Dataset:
    """Load CIFAR-10 from `root/cifar10`. `check_sizes=False` accepts a cut set."""
    import torch

    folder = _folder(Path(root))
    if folder is None:
        raise DataError(f"cifar10: nothing found in {Path(root) / 'cifar10'}; {how_to_get('cifar10')}.")
    names = read_pickle(folder / META, "cifar10").get("label_names")
    if not isinstance(names, list) or len(names) != 10:
        raise DataError(f"{folder / META} does not name ten classes.")
    splits = []
    for files, size in ((TRAIN, 50_000), (TEST, 10_000)):
        pixels, labels = _part(folder, files, size if check_sizes else None)
        splits.append(Split(torch.from_numpy(pixels.copy()), torch.from_numpy(labels)))
    return Dataset(
        name="cifar10",
        num_classes=10,
        class_names=tuple(str(as_text(name)) for name in names),
        train=splits[0],
        test=splits[1],
        recipe=CIFAR,
    )


def find(root: Path) -> Availability:
    folder = _folder(Path(root))
    if folder is None:
        return Availability("missing", f"nothing in {Path(root) / 'cifar10'}", how_to_get("cifar10"))
    absent_files = [file for file in (*TRAIN, *TEST, META) if not (folder / file).is_file()]
    if absent_files:
        return Availability("incomplete", f"{folder} lacks {', '.join(absent_files)}", how_to_get("cifar10"))
    return Availability("found", str(folder), "")


# CIFAR-10N ----------------------------------------------------------------------------------------------------------


def _human(root: Path) -> Path | None:
    """Return the file of answers, or the archive that contains it."""
    places = [root / "cifar10n" / HUMAN, root / "cifar10n" / ZIPPED, root / "cifar10" / HUMAN]
    return next((place for place in places if place.is_file()), None)


def read_human(path: Path, check_sha256: bool = True) -> dict[str, Any]:
    """Read the arrays of `CIFAR-10_human.pt`, alone or inside the archive, with the restricted unpickler."""
    try:
        content = path.read_bytes()
        if path.suffix == ".zip":
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                content = archive.read(f"CIFAR-N/{HUMAN}")
        with zipfile.ZipFile(io.BytesIO(content)) as container:  # torch.save writes a zip around one pickle
            inside = next(name for name in container.namelist() if name.endswith("data.pkl"))
            answers = RestrictedUnpickler(io.BytesIO(container.read(inside)), encoding="latin1").load()
    except Exception as error:  # zipfile, pickle and numpy raise errors of many kinds
        raise DataError(f"{path} is not the file of CIFAR-10N's answers or is damaged: {error}.") from None
    absent_keys = [key for key in ANSWERS if key not in answers]
    if absent_keys:
        raise DataError(f"{path} has no `{absent_keys[0]}`; it is not the file of CIFAR-10N's answers.")
    if check_sha256 and answers_sha256(answers) != ANSWERS_SHA256:
        raise DataError(f"{path} is not the authors' file: the SHA-256 of its labels differs; {HOW_HUMAN}.")
    return answers


def answers_sha256(answers: dict[str, Any]) -> str:
    """Return the SHA-256 of the true labels and the three answers."""
    import numpy as np

    return hashlib.sha256(b"".join(np.asarray(answers[key]).astype(np.uint8).tobytes() for key in ANSWERS)).hexdigest()


def load_human(
    root: Path,
    seed: int = 0,
    missing_truth: Literal["refuse", "keep"] = "keep",
    *,
    votes: int = 1,
    check_sizes: bool = True,
) -> Dataset:
    """Load CIFAR-10 with the answers of three people as candidates: their union, or those with `votes` votes."""
    import numpy as np
    import torch

    check_votes("cifar10n", votes, most=3)
    path = _human(Path(root))
    if path is None:
        raise DataError(f"cifar10n: the answers are missing; {HOW_HUMAN}.")
    dataset, answers = load(root, seed, check_sizes=check_sizes), read_human(path, check_sha256=check_sizes)
    labels = dataset.train.labels.numpy()
    if not np.array_equal(answers["clean_label"], labels):
        raise DataError(f"cifar10n: {path} does not belong to these images: its true labels differ.")
    counts = sum(np.eye(10, dtype=np.int64)[np.asarray(answers[f"random_label{k}"])] for k in (1, 2, 3))
    candidates = candidates_by_votes(counts, votes)
    keep = missing_truth == "keep"
    check_candidates(str(path), candidates, labels, 10, may_lack_truth=keep)
    return replace(dataset, name="cifar10n", candidates=torch.from_numpy(candidates), may_lack_truth=keep)


def find_human(root: Path) -> Availability:
    if _human(Path(root)) is None:
        return Availability("missing", "the answers of CIFAR-10N are missing", HOW_HUMAN)
    return find(root)


SOURCES = (
    Source("cifar10", "CIFAR-10", "Common", 50_000, 10_000, 10, load, find),
    Source("cifar10n", "CIFAR-10N", "Common", 50_000, 10_000, 10, load_human, find_human, own_candidates=True),
)
