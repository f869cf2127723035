"""A results folder as evidence: read strictly, without changing it. What is wrong is a sentence, not an exception."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmark import kept, store
from benchmark.files import file_name
from benchmark.plan.spec import identity_of
from benchmark.store import SCHEMA, RunFolder, digest_of
from datasets.labels.candidates import checksum

MODEL_FILES = (kept.MODEL, kept.TENSORS, kept.LABELS)
LARGEST = 1 << 26  # bytes of a run.json
LARGEST_ARRAY = 1 << 30  # bytes of one array of a candidate file


def regular(path: Path) -> bool:
    """Whether it is a file itself: no link, pipe or device."""
    return path.is_file() and not path.is_symlink()


@dataclass(frozen=True)
class Held:
    """One run folder: its document, or why it has none that can be used."""

    path: Path
    place: str  # in the results folder
    document: dict[str, Any] | None
    problem: str = ""
    packed: RunFolder | None = None  # of a run that a file of many holds, with its epochs to six digits

    @property
    def folder(self) -> RunFolder:
        return self.packed or RunFolder(self.path)

    @property
    def name(self) -> str:
        """As a person would call the run."""
        d = self.document
        return self.place if d is None else f"{d['profile']} {d['dataset']} {d['label']} seed {d['seed']}"


def runs_in(results: Path) -> Iterator[Held]:
    """Every run folder, in a stable order; one with epochs but without run.json is half there."""
    for path in sorted((results / "runs").glob("*/*/*/*")):
        if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            place = str(path.relative_to(results))
            try:
                yield Held(path, place, _document(path))
            except ValueError as error:
                yield Held(path, place, None, str(error))
    for path in sorted((results / "runs").glob(f"*/{store.PACKED}")):
        if regular(path):
            yield from _unpacked(path, results)


def _unpacked(path: Path, results: Path) -> Iterator[Held]:
    """The runs of a file of many; how many of its lines are damaged is one more."""
    whole = 0
    for folder, document in store.packed_runs(path):
        whole += 1
        if document.get("schema") == SCHEMA and not folder.path.is_dir():
            yield Held(folder.path, str(folder.path.relative_to(results)), document, packed=folder)
    lines = len(store.unpacked(path).splitlines())
    if whole < lines or not lines:
        yield Held(path, str(path.relative_to(results)), None, f"{lines - whole or 'all'} of its runs are damaged")


def _document(path: Path) -> dict[str, Any]:
    file = path / "run.json"
    if not regular(file):
        raise ValueError("it has no run.json")
    if file.stat().st_size > LARGEST:
        raise ValueError("its run.json is far too large")
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        store.check_document(document)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its run.json is damaged ({str(error).splitlines()[0]})") from None
    if document.get("schema") != SCHEMA:
        raise ValueError(f"its run.json has schema {document.get('schema')}, not {SCHEMA}")
    return {key: store.printable(value) for key, value in document.items()}


def forgeries(held: Held) -> list[str]:
    """What in a document contradicts itself or its place: digests, identity, names."""
    document, found = held.document, []
    assert document is not None
    if digest_of(document["config"]) != document["config_digest"]:
        found.append("its configuration is not the one that its config_digest was made of")
    if identity_of(document["config_digest"], document.get("candidates_sha256", "")) != document["identity"]:
        found.append("its identity does not follow from configuration and candidate set")
    names = [file_name(str(document[key])) for key in ("profile", "dataset", "method")]
    place = "/".join(("runs", *names, f"seed{document['seed']}-{document['identity'][:8]}"))
    if place != held.place:
        found.append(f"it lies in {held.place} and says that it belongs into {place}")
    config = document["config"]
    stated = {
        "method": _named(config.get("method")),
        "dataset": _named(config.get("dataset")),
        "seed": config.get("seed"),
    }
    found += [
        f"its {key} is not the one of its configuration" for key, value in stated.items() if value != document[key]
    ]
    return found


def _named(section: Any) -> Any:
    return section.get("name") if isinstance(section, dict) else None


def _set_files(results: Path) -> list[Path]:
    found = sorted((results / "candidates").glob("*/*.npz"))
    return [path for path in found if regular(path) and "annotator" not in path.name]


def _claimed(path: Path) -> str:
    """The SHA-256 that a candidate file claims; nothing for one that cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return str(json.loads(arrays["meta"].tobytes())["sha256"])
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return ""


def candidate_files(results: Path) -> dict[str, Path]:
    """The stored candidate sets by the SHA-256 that they claim."""
    return {sha: path for path in _set_files(results) if (sha := _claimed(path))}


def unreadable_sets(results: Path) -> list[Path]:
    return [path for path in _set_files(results) if not _claimed(path)]


def candidate_matrix(path: Path) -> tuple[np.ndarray, dict[str, Any]]:
    """The matrix (N, C) of a stored set and how it was made; ValueError says what is wrong with the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            if max(item.file_size for item in archive.infolist()) > LARGEST_ARRAY:
                raise ValueError("it is far too large")
        with np.load(path, allow_pickle=False) as arrays:
            meta = json.loads(arrays["meta"].tobytes())
            rows, classes = (int(size) for size in arrays["shape"])
            matrix = np.unpackbits(arrays["bits"], axis=1, count=classes).astype(bool)
            claimed = str(meta["sha256"])
    except (OSError, KeyError, TypeError, EOFError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"it cannot be read ({str(error).splitlines()[0] if str(error) else 'damaged'})") from None
    if matrix.shape != (rows, classes) or checksum(matrix) != claimed:
        raise ValueError("its labels are not those that its SHA-256 was made of")
    if not matrix.any(1).all():
        raise ValueError("a row has no candidate")
    return matrix, meta
