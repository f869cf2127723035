"""CIFAR-100 and CIFAR-100H: the images of Krizhevsky (2009), python version, as unpacked from the archive.

CIFAR-100H has the same images and fine labels; its candidates come from inside the superclass.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets.base import (
    Availability,
    DataError,
    Dataset,
    Source,
    Split,
    check_labels,
    check_size,
    first_folder,
    how_to_get,
    with_name,
)
from datasets.views.recipes import CIFAR

if TYPE_CHECKING:
    import numpy as np

# Superclass of fine label 0 … 99; the archive's coarse labels are checked against it.
SUPERCLASS = (
    *(4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7, 6, 13, 15, 3, 15),
    *(0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4, 18, 17),
    *(10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19),
    *(18, 1, 2, 15, 6, 0, 17, 8, 14, 13),
)
FOLDER = "cifar-100-python"
FILES = ("train", "test", "meta")

# Globals of a pickled NumPy array; anything else in the file is refused before it can run.
ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class RestrictedUnpickler(pickle.Unpickler):
    """Unpickler for built-in containers and NumPy arrays only."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def read_pickle(path: Path, name: str = "cifar100") -> dict[str, Any]:
    """Read one of the archive's pickled dictionaries with the restricted unpickler."""
    try:
        content = RestrictedUnpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except FileNotFoundError:
        raise DataError(f"{path} is missing; {how_to_get(name)}.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None
    except Exception as error:
        raise DataError(f"{path} is not a CIFAR file or is damaged: {error}.") from None
    if not isinstance(content, dict):
        raise DataError(f"{path} is not a CIFAR file: it does not contain a dictionary.")
    return {as_text(key): value for key, value in content.items()}


def as_text(word: Any) -> Any:
    """Decode bytes: copies that were read as bytes and saved again have keys and class names of bytes."""
    return word.decode("latin1") if isinstance(word, bytes) else word


def _folder(root: Path) -> Path | None:
    return first_folder([root / "cifar100" / FOLDER, root / "cifar100", root / FOLDER], *FILES)


def _part(path: Path, num_classes: int, size: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return images (N, 3, 32, 32) uint8 and fine labels (N,) of one file."""
    import numpy as np

    content = read_pickle(path)
    pixels, labels = content.get("data"), content.get("fine_labels")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != 3072:
        raise DataError(f"{path}: `data` is not a uint8 matrix with 3,072 columns.")
    if not isinstance(labels, list) or not all(isinstance(label, int) for label in labels):
        raise DataError(f"{path}: `fine_labels` is missing; is this CIFAR-10?")
    if len(labels) != len(pixels):
        raise DataError(f"{path} holds {len(pixels):,} images and {len(labels):,} labels.")
    check_size(str(path), "images", len(pixels), size)
    check_labels(str(path), labels, num_classes)
    coarse = content.get("coarse_labels")
    if coarse is not None and coarse != [SUPERCLASS[label] for label in labels]:
        raise DataError(f"{path}: the coarse labels do not agree with the known superclasses.")
    return pixels.reshape(-1, 3, 32, 32), np.asarray(labels, dtype=np.int64)


def load(root: Path, seed: int = 0, *, check_sizes: bool = True) -> Dataset:
    """Load CIFAR-100 from `root/cifar100`. `check_sizes=False` accepts a cut set."""
    import torch

    folder = _folder(Path(root))
    if folder is None:
        raise DataError(
            f"cifar100 and cifar100h: nothing found in {Path(root) / 'cifar100'}; {how_to_get('cifar100')}."
        )
    names = read_pickle(folder / "meta").get("fine_label_names")
    if not isinstance(names, list) or len(names) != 100:
        raise DataError(f"{folder / 'meta'} does not name 100 fine classes.")
    parts = {}
    for part, size in (("train", 50_000), ("test", 10_000)):
        pixels, labels = _part(folder / part, 100, size if check_sizes else None)
        parts[part] = Split(torch.from_numpy(pixels.copy()), torch.from_numpy(labels))
    return Dataset(
        name="cifar100",
        num_classes=100,
        class_names=tuple(str(as_text(name)) for name in names),
        train=parts["train"],
        test=parts["test"],
        recipe=CIFAR,
        superclass=torch.tensor(SUPERCLASS),
        backbone="resnet18-cifar",
    )


def find(root: Path) -> Availability:
    folder = _folder(Path(root))
    if folder is None:
        return Availability("missing", f"nothing in {Path(root) / 'cifar100'}", how_to_get("cifar100"))
    absent_files = [file for file in FILES if not (folder / file).is_file()]
    # The official files hold 3,073 bytes and more per image, so a truncated copy is recognised without reading it.
    absent_files += [
        f"{file} (cut off)"
        for file, size in (("train", 50_000), ("test", 10_000))
        if (folder / file).is_file() and (folder / file).stat().st_size < 3072 * size
    ]
    if absent_files:
        return Availability("incomplete", f"{folder} lacks {', '.join(absent_files)}", how_to_get("cifar100"))
    return Availability("found", str(folder), "")


SOURCES = (
    Source("cifar100", "CIFAR-100", "Common", 50_000, 10_000, 100, load, find),
    Source("cifar100h", "CIFAR-100H", "Common", 50_000, 10_000, 100, with_name(load, "cifar100h"), find),
)
