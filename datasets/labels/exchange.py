"""Candidate sets as plain matrices: written for other programs, read from other machines and people.

`.npz` has `candidates` (N, C) of 0 and 1, `class_names` (C,) and `meta`, a JSON text; `.csv` has the same as a first line
`# {…}`, a line of class names, and a line of 0 and 1 per training row. Reading needs the matrix only.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from datasets.base import DataError, Dataset, check_candidates
from datasets.labels import generators
from datasets.labels.candidates import CandidateSet, Wanted, checksum, load, save
from datasets.storage.files import atomic_write, locked

ENDINGS = (".npz", ".csv")
ASKED = ("generator", "rate", "seed", "target_size", "noise")  # must be as this command asks for them


@dataclass(frozen=True)
class Plain:
    """A matrix as a file has it, and what the file says of it."""

    matrix: np.ndarray  # (N, C) bool
    class_names: tuple[str, ...] = ()
    meta: Mapping[str, Any] | None = None


def labels_digest(dataset: Dataset) -> str:
    """SHA-256 of the true labels of the training rows: sets belong to these rows in this order."""
    return hashlib.sha256(np.ascontiguousarray(dataset.train.labels.numpy(), dtype="<i8").tobytes()).hexdigest()


def export(candidates: CandidateSet, dataset: Dataset, path: Path) -> None:
    """Write sets as a plain matrix, with how they were made."""
    meta = {**candidates.meta, "sha256": candidates.sha256, "labels_sha256": labels_digest(dataset)}
    text = json.dumps(meta, sort_keys=True, ensure_ascii=True)
    matrix = candidates.matrix.numpy().astype(np.uint8)
    if path.suffix == ".csv":
        stream = io.StringIO()
        stream.write(f"# {text}\n")
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(dataset.class_names)
        writer.writerows(matrix.tolist())
        content = stream.getvalue().encode()
    else:
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            allow_pickle=False,
            candidates=matrix,
            class_names=np.array(dataset.class_names),
            meta=np.array(text),
        )
        content = buffer.getvalue()
    try:
        atomic_write(path, content)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}.") from None


def read(path: Path) -> Plain:
    """A matrix of 0 and 1 from `.npz` or `.csv`."""
    try:
        names, values, text = _from_csv(path) if path.suffix == ".csv" else _from_npz(path)
        meta = json.loads(text) if text else None
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, csv.Error) as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        reason = "it holds Python objects" if "pickle" in reason else reason
        raise DataError(
            f"{path} holds no matrix of candidates ({reason}); see `Candidate sets` in docs/data.md."
        ) from None
    if values.ndim != 2 or values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
        raise DataError(f"{path}: the candidates are no matrix of 0 and 1 (rows × classes).")
    return Plain(values.astype(bool), tuple(names), meta if isinstance(meta, dict) else None)


def _from_npz(path: Path) -> tuple[list[str], np.ndarray, str]:
    if path.is_file() and not zipfile.is_zipfile(path):  # numpy would speak of pickles
        raise ValueError("it is no .npz file")
    with np.load(path, allow_pickle=False) as arrays:
        names = arrays["class_names"].tolist() if "class_names" in arrays.files else []
        return list(map(str, names)), arrays["candidates"], str(arrays["meta"]) if "meta" in arrays.files else ""


def _from_csv(path: Path) -> tuple[list[str], np.ndarray, str]:
    with path.open(newline="", encoding="utf-8") as stream:
        first = stream.readline()
        text = first.removeprefix("#").strip() if first.startswith("#") else ""
        if not text:
            stream.seek(0)
        names, *rows = csv.reader(stream)
        return names, np.array(rows, dtype=np.uint8), text


def bring_in(path: Path, wanted: Wanted, folder: Path) -> CandidateSet:
    """Store the sets of a file as those that are asked for; refused if they are for other data or made otherwise."""
    dataset, entry = wanted.dataset, generators.get(wanted.generator)
    if entry.rule is None:
        raise DataError(f"{dataset.name} brings its own candidate sets; put the matrix into the data instead.")
    plain, request = read(path), wanted.request
    if plain.class_names and plain.class_names != dataset.class_names:
        raise DataError(f"{path} names other classes than {dataset.name} has, or in another order.")
    check_candidates(
        str(path), plain.matrix, dataset.train.labels.numpy(), dataset.num_classes, may_lack_truth=wanted.noise > 0
    )
    sha256, origin = checksum(plain.matrix), dict(plain.meta or {})
    _check_origin(path, origin, sha256, wanted, request)
    kept = {key: value for key, value in origin.items() if key not in (*request, "sha256", "labels_sha256", "format")}
    meta = request | kept | {"imported": path.name}
    target = wanted.path(folder)
    with locked(target.with_suffix(".lock")):
        if target.exists():
            there = load(target, dataset.train.labels, dataset.num_classes, wanted.noise > 0)
            if there.sha256 != sha256:
                raise DataError(
                    f"{target} holds other sets (SHA-256 {there.sha256[:12]}…, the file has {sha256[:12]}…); import into "
                    f"another results folder, or remove that file and the runs made from it."
                )
            return there
        save(target, CandidateSet(torch.from_numpy(plain.matrix), sha256, meta))
    return CandidateSet(torch.from_numpy(plain.matrix), sha256, meta)


def _check_origin(
    path: Path, origin: Mapping[str, Any], sha256: str, wanted: Wanted, request: Mapping[str, Any]
) -> None:
    """What the file says of itself, as far as it does: a matrix without words is taken as it is."""
    if origin.get("sha256", sha256) != sha256:
        raise DataError(f"{path} was changed after it was exported: its SHA-256 does not match.")
    mine = labels_digest(wanted.dataset)
    if origin.get("labels_sha256", mine) != mine:
        raise DataError(f"{path} is for other training rows than {wanted.dataset.name} has here, or in another order.")
    for key in ASKED:
        if key in origin and origin[key] != request.get(key):
            raise DataError(
                f"{path} was made with {key} {origin[key]}, this command asks for {request.get(key)}; give the same settings."
            )
    if origin.get("annotator_recipe", request["annotator_recipe"]) != request["annotator_recipe"]:
        raise DataError(f"{path} was made with another annotator than this command asks for; give the same settings.")
