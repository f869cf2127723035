"""What can be said about a run without doing it again: each check is a function that gives what it found wrong."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmark import kept
from benchmark.errors import CandidError
from benchmark.plan.spec import RunSpec
from benchmark.run.options import RunOptions
from benchmark.share.again import CannotBeDone, Data, TakenAsItIs
from benchmark.share.reading import Held, candidate_matrix, regular
from benchmark.store import is_number
from benchmark.train.summary import summarise
from datasets.base import UNKNOWN, DataError
from datasets.labels.generators import GENERATORS


def epochs(held: Held) -> list[str]:
    """One whole record per epoch, as many as were planned."""
    assert held.document is not None
    planned, stated = held.document["config"]["train"]["epochs"], held.document.get("epochs_done")
    found = len(held.folder.epochs())
    if found == planned == stated:
        return []
    return [f"metrics.jsonl has {found} whole epochs, run.json says {stated}, and {planned} were planned"]


def summary(held: Held) -> list[str]:
    """Every number of the summary follows from the epochs."""
    assert held.document is not None
    records, stated = held.folder.epochs(), held.document.get("summary") or {}
    computed = summarise(records) if records else {}
    found = []
    for key, value in stated.items():
        if key not in computed:
            found.append(f"{key} in run.json is in no epoch of metrics.jsonl")
        elif not _equal(value, computed[key], bool(held.packed)):
            found.append(f"{key} is {value} in run.json and {computed[key]} by metrics.jsonl")
    return found


def _equal(stated: Any, computed: Any, rounded: bool) -> bool:
    """To the last bit; of a run whose epochs are kept to six digits, to as many."""
    if rounded and is_number(stated) and is_number(computed):
        return math.isclose(stated, computed, rel_tol=1e-5)
    return bool(stated == computed)


def files(held: Held) -> list[str]:
    """The kept files are the ones that the run wrote."""
    assert held.document is not None
    found = []
    for name, digest in (held.document.get("files") or {}).items():
        path = held.path / name
        if Path(name).name != name:
            found.append(f"run.json lists {name!r}, which is no name of a file")
        elif regular(path):
            with path.open("rb") as stream:
                if hashlib.file_digest(stream, "sha256").hexdigest() != digest:
                    found.append(f"{name} is not the file that the run wrote: its SHA-256 is another one")
    return found


def candidates(held: Held, stored: Mapping[str, Path]) -> list[str]:
    """The run's candidate set is there and holds what its SHA-256 was made of."""
    assert held.document is not None
    sha = str(held.document.get("candidates_sha256", ""))
    if sha not in stored:
        raise CannotBeDone("its candidate set is not in the folder")
    try:
        candidate_matrix(stored[sha])
    except ValueError as error:
        return [f"candidate file {stored[sha].name}: {error}"]
    return []


def redrawn(spec: RunSpec, sha: str, data: Data, options: RunOptions, annotators: bool) -> list[str]:
    """The candidate set drawn again from the data by its rule; one that an annotator made, if that is to be trained."""
    from benchmark.train.candidates import candidate_set

    dataset, _ = data
    own = dataset.candidates is not None and "data.generator" not in spec.provenance
    if not own and GENERATORS[spec.data.generator].annotator and not annotators:
        raise TakenAsItIs(
            "its candidate set was made by an annotator network and is taken as it is (--annotators trains it)"
        )
    try:
        here = candidate_set(spec, dataset, options.results, options.device).sha256
    except (DataError, CandidError) as error:
        raise CannotBeDone(f"its candidate set cannot be drawn here ({error})") from None
    return [] if here == sha else [f"its candidate set, drawn again, has SHA-256 {here[:16]}…, not {sha[:16]}…"]


def scores(held: Held, data: Data) -> list[str]:
    """Accuracies from the kept predictions and the true labels of the data here."""
    assert held.document is not None
    if files(held):
        raise CannotBeDone("its kept files are not the ones that it wrote")
    content = kept.checked(held.path, kept.PREDICTIONS, held.document)
    if content is None:
        raise CannotBeDone("it has kept no predictions")
    try:
        found = kept.predictions_of(Path(kept.PREDICTIONS), content)
    except CandidError as error:
        return [str(error).rstrip(".")]
    dataset, rows = data
    stated = held.document.get("summary") or {}
    test, train = dataset.test.labels.numpy(), dataset.train.labels.numpy()[rows.numpy()]
    if not np.array_equal(found.test_rows, np.arange(len(test))):
        return ["its predictions are not for the test rows of these data"]
    if not np.array_equal(found.train_rows, rows.numpy()):
        return ["its belief is not for the training rows of this seed"]
    if found.test_logits.shape[1] != dataset.num_classes:
        return [f"its predictions are for {found.test_logits.shape[1]} classes, the data have {dataset.num_classes}"]
    return [
        *_compared("accuracy", stated, found.test_logits, test),
        *([] if found.belief is None else _compared("train_accuracy", stated, found.belief, train)),
    ]


def _compared(key: str, stated: Mapping[str, Any], scores: np.ndarray, labels: np.ndarray) -> list[str]:
    known = labels != UNKNOWN
    if not known.any():
        return [f"{key} is stated although there are no true labels"] if is_number(stated.get(key)) else []
    here = 100.0 * float((scores[known].argmax(1) == labels[known]).mean())
    value: Any = stated.get(key)
    if is_number(value) and abs(here - float(value)) < 1e-9:
        return []
    return [f"{key} is {value} in run.json and {here:.4f} by its predictions"]
