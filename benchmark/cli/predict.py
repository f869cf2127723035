"""`predict`: classes and probabilities of new rows; `labels`: what a model and its method made of the training rows."""

from __future__ import annotations

import csv
import hashlib
import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark import artifacts
from benchmark.cli.options import Command, Request
from benchmark.errors import COMPLETE, CandidError
from benchmark.files import atomic_write
from benchmark.flags import flag
from datasets.base import plural

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Predict:
    folder: Path = flag(None, "that `fit` has named", kind=Path, positional=True, metavar="FOLDER")
    rows: Path = flag(
        None, "new rows, in the form of the training data", kind=Path, positional=True, metavar="NEW-DATA"
    )
    out: Path = flag(Path("predictions.csv"), "default: predictions.csv; - for the screen", kind=Path, metavar="FILE")


@dataclass(frozen=True)
class Labels:
    folder: Path = flag(None, "that `fit` has named", kind=Path, positional=True, metavar="FOLDER")
    out: Path = flag(Path("labels.csv"), "default: labels.csv; - for the screen", kind=Path, metavar="FILE")


def run_predict(request: Request, own: Predict) -> int:
    from benchmark.runner import devices
    from benchmark.trainer.model import read_model
    from datasets.user.new import new_rows

    model = read_model(own.folder, request.plugins, devices.resolve(request.device)[0])
    x, names = new_rows(own.rows, model.width, model.columns, request.data)
    probabilities = model.probabilities(x)
    best = probabilities.argmax(1)
    lines = [
        [name, model.classes[label], *map(short, (row[label], *row))]
        for name, label, row in zip(names, best.tolist(), probabilities.tolist(), strict=True)
    ]
    write(own.out, ["row", "prediction", "probability", *model.classes], lines)
    return COMPLETE


def run_labels(request: Request, own: Labels) -> int:
    from benchmark.trainer.model import read_document

    classes = read_document(own.folder)["classes"]
    found = read_beliefs(own.folder)
    if found.candidates.shape[1] != len(classes):
        raise CandidError(f"{own.folder / artifacts.LABELS} is of another model: it has other classes.")
    lines = rows_of(found, classes)
    write(
        own.out, ["row", "label", "belief", "runner_up", "runner_up_belief", "model", "disagrees", "candidates"], lines
    )
    outside = sum(line[6] == "yes" for line in lines)
    print(f"The model disagrees with the candidates of {outside} of {plural(len(lines), 'row')}.", file=sys.stderr)
    return COMPLETE


def read_beliefs(folder: Path) -> artifacts.Beliefs:
    """labels.npz of a model's folder, the one that the run wrote where run.json says which."""
    from benchmark.trainer.model import recorded

    path = folder / artifacts.LABELS
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CandidError(f"{path} cannot be read ({error.strerror}); it is written where a model is kept.") from None
    if hashlib.sha256(content).hexdigest() != recorded(folder).get(
        artifacts.LABELS, hashlib.sha256(content).hexdigest()
    ):
        raise CandidError(f"{path} is not the file that the run wrote: its SHA-256 is not the one in run.json.")
    return artifacts.beliefs_of(path, content)


def rows_of(found: artifacts.Beliefs, classes: Sequence[str]) -> list[list[str]]:
    """One line per training row: the label chosen, the next one, and what the model says without the candidates."""
    order = (-found.belief.astype("float64")).argsort(1, kind="stable")
    said = found.logits.argmax(1)
    lines = []
    for i, name in enumerate(found.names.tolist()):
        first, second = int(order[i, 0]), int(order[i, 1])
        inside: np.ndarray = found.candidates[i]
        lines.append(
            [
                name, classes[first], short(found.belief[i, first]), classes[second], short(found.belief[i, second]),
                classes[int(said[i])], "no" if inside[said[i]] else "yes",
                "|".join(classes[label] for label in inside.nonzero()[0].tolist()),
            ]
        )  # fmt: skip
    return lines


def short(value: float) -> str:
    return f"{float(value):.6g}"


def write(out: Path, head: Sequence[str], lines: Iterable[Sequence[Any]]) -> None:
    """A CSV file, or the screen."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(lines)
    if str(out) == "-":
        print(text.getvalue(), end="")
        return
    try:
        atomic_write(out, text.getvalue())
    except OSError as error:
        raise CandidError(f"{out} cannot be written ({error.strerror}); name another with --out.") from None
    print(f"Written: {out}")


COMMANDS = (
    Command(
        "predict",
        "own data: classes and probabilities of new rows",
        run_predict,
        ("data", "device", "plugins"),
        Predict,
        writes=False,
    ),
    Command("labels", "own data: cleaned labels of the training rows", run_labels, (), Labels, writes=False),
)
