"""Files that a finished run stores beside its numbers; run.json has their SHA-256. Plain arrays, never a pickle. Needs no torch."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.errors import CandidError
from benchmark.files import atomic_write, read_regular

if TYPE_CHECKING:
    import numpy as np

PREDICTIONS = "predictions.npz"
ANNOTATION = "annotation.npz"  # of an annotator: its logits for the training images
MODEL, TENSORS, LABELS = "model.json", "model.safetensors", "labels.npz"  # of a run with --keep-model
MODEL_FILES = (MODEL, TENSORS, LABELS)
LIMIT = 1 << 32  # bytes that the arrays of one file may unpack to


@dataclass(frozen=True)
class Predictions:
    """Outputs of a run after its last epoch; rows are those of the test and training part of the dataset."""

    test_logits: np.ndarray  # (n_test, C) float16; the largest of a row is the one that the run's accuracy counts
    test_rows: np.ndarray  # (n_test,) int32
    train_rows: np.ndarray  # (n_train,) int32: without the rows held out for selection
    belief: np.ndarray | None = None  # (n_train, C) float16, the method's own; None where it has none


@dataclass(frozen=True)
class Beliefs:
    """Outputs of a stored model for all its training rows, in their order."""

    names: np.ndarray  # (N,) text
    candidates: np.ndarray  # (N, C) bool
    logits: np.ndarray  # (N, C) float16, of the model
    belief: np.ndarray  # (N, C) float16, rows sum to 1


def half(values: np.ndarray) -> np.ndarray:
    """Round rows of scores (N, C) to float16, each with the same largest entry as before: no tie is made or moved."""
    import numpy as np

    largest = np.finfo(np.float16).max
    halves = np.clip(values, -largest, largest).astype(np.float16)
    winners = values.argmax(1) if len(values) else np.zeros(0, dtype=np.int64)
    changed = np.flatnonzero(halves.argmax(1) != winners) if len(values) else winners
    with np.errstate(over="ignore"):
        top = np.nextafter(halves[changed].max(1, initial=-largest), np.float16(np.inf))
    over = np.isinf(top)  # no number is above the largest: the others are lowered instead
    if over.any():
        below = np.nextafter(np.float16(largest), np.float16(0))
        halves[changed[over]] = np.minimum(halves[changed[over]], below)
    halves[changed, winners[changed]] = np.where(over, np.float16(largest), top)
    return halves


def npz_bytes(arrays: Mapping[str, np.ndarray | None]) -> bytes:
    """Return an .npz file of the arrays that there are. NumPy writes no time into it: equal arrays give equal bytes."""
    import numpy as np

    buffer, stored = io.BytesIO(), {key: value for key, value in arrays.items() if value is not None}
    np.savez_compressed(buffer, allow_pickle=False, **stored)  # type: ignore[arg-type]
    return buffer.getvalue()


def write(folder: Path, files: Mapping[str, bytes]) -> dict[str, str]:
    """Write files into a folder, each atomically; return their SHA-256 by name."""
    for name, content in files.items():
        atomic_write(folder / name, content)
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def is_whole(folder: Path, name: str, document: Mapping[str, Any]) -> bool:
    """Return whether a run's folder holds the file of that name as the run wrote it."""
    try:
        return read_checked(folder, name, document) is not None
    except CandidError:
        return False


def read_checked(folder: Path, name: str, document: Mapping[str, Any]) -> bytes | None:
    """Return the content of a stored file if it is the one that the run wrote; None where the run stored none.

    A file that is gone although run.json names it was removed on purpose and counts as not stored.
    """
    sha256 = (document.get("files") or {}).get(name)
    return None if sha256 is None else read(folder / name, sha256)


def read(path: Path, sha256: str | None) -> bytes | None:
    """Return the content of a file, None if there is none; `sha256` is what run.json says about it, if anything."""
    try:
        content = read_regular(path, LIMIT)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CandidError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}).") from None
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise CandidError(f"{path} is not the file that the run wrote: its SHA-256 is not the one in run.json.")
    return content


def read_npz(where: Path, content: bytes) -> dict[str, np.ndarray]:
    """Return the plain arrays of an .npz file; CandidError for anything else, and nothing of it is executed."""
    import numpy as np

    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > LIMIT:
                raise CandidError(f"{where} unpacks to more than {LIMIT >> 30} GB; it is not read.")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return {key: arrays[key] for key in arrays.files}
    except CandidError:
        raise
    except Exception as error:  # for a damaged file zlib, zipfile and NumPy raise errors of many kinds
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise CandidError(f"{where} is not a readable .npz file of plain arrays: {reason}.") from None


def predictions_of(where: Path, content: bytes) -> Predictions:
    """Return the arrays of predictions.npz, checked."""
    forms = {
        "test_rows": "i tests",
        "train_rows": "i rows",
        "test_logits": "f tests classes",
        "belief": "f rows classes",
    }
    return Predictions(**_checked(where, content, forms, "a run's predictions", optional={"belief"}))


def beliefs_of(where: Path, content: bytes) -> Beliefs:
    """Return the arrays of labels.npz, checked."""
    forms = {"names": "U rows", "candidates": "b rows classes", "logits": "f rows classes", "belief": "f rows classes"}
    return Beliefs(**_checked(where, content, forms, "a model's labels"))


def _checked(
    where: Path, content: bytes, forms: Mapping[str, str], what: str, optional: Set[str] = frozenset()
) -> dict[str, np.ndarray]:
    """Return the arrays of a file whose `forms` are the kind of their type and the names of their sizes."""
    arrays = read_npz(where, content)
    if not forms.keys() - optional <= arrays.keys() <= forms.keys():
        raise CandidError(f"{where} has the arrays {', '.join(sorted(arrays))}, not those of {what}.")
    sizes: dict[str, int] = {}
    for key in (key for key in forms if key in arrays):
        value, (kind, *names) = arrays[key], forms[key].split()
        fits = value.dtype.kind == kind and value.ndim == len(names)
        if not fits or any(sizes.setdefault(name, size) != size for name, size in zip(names, value.shape, strict=True)):
            raise CandidError(f"{where}: {key} has shape {value.shape} and type {value.dtype}, not that of {what}.")
    return arrays
