"""`measures`: top-5, per-class accuracy and calibration of finished runs, from the predictions that they keep."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark import store
from benchmark.cli.options import SELECTION, Command, Request
from benchmark.cli.training import place_of, selection_of
from benchmark.errors import COMPLETE, INCOMPLETE, CandidError
from benchmark.files import atomic_write
from benchmark.flags import flag
from benchmark.measures import MEASURES, measures
from datasets.base import UNKNOWN, plural

if TYPE_CHECKING:
    from benchmark.plan.spec import RunSpec
    from benchmark.run.options import RunOptions


@dataclass(frozen=True)
class Own:
    out: Path | None = flag(None, "default: results/measures.csv, a row per run", kind=Path, metavar="FILE")


def run(request: Request, own: Own) -> int:
    from benchmark.analysis.table import aligned
    from benchmark.run.standing import found

    selection, place = selection_of(request), place_of(request)
    specs = selection.specs()
    known = found(specs, store.existing(request.results))
    rows, without = [], 0
    for spec in specs:
        folder, document = known.get(spec.digest, (None, {}))
        if folder is None or document["status"] != "done":
            continue
        values = measured(spec, place, folder)
        if values is None:
            without += 1
            continue
        head = {"profile": spec.profile, "dataset": spec.dataset, "method": spec.label, "seed": spec.seed}
        rows.append(head | values)
    if not rows:
        raise CandidError("No finished run of this selection keeps predictions whose test rows have true labels.")
    for line in aligned(means(rows)):
        print(line)
    out = own.out or request.results / "measures.csv"
    write(out, rows)
    print(f"Written: {out}")
    if without:
        print(f"{plural(without, 'finished run')} without predictions or true labels left out.")
    return COMPLETE if len(rows) == len(specs) else INCOMPLETE


def measured(spec: RunSpec, place: RunOptions, folder: store.RunFolder) -> dict[str, float] | None:
    """The measures of one run over its test rows with a true label; None where there are none, or no predictions."""
    from benchmark.train.loading import dataset_of

    predictions = store.predictions(folder)
    if predictions is None or not len(predictions.test_rows):
        return None
    labels = dataset_of(spec, place.data).test.labels.numpy()
    if predictions.test_rows.max() >= len(labels):
        raise CandidError(
            f"{folder.path} has predictions of {len(predictions.test_rows)} rows, the data {len(labels)}."
        )
    truth = labels[predictions.test_rows]
    kept = truth != UNKNOWN
    return measures(predictions.test_logits[kept], truth[kept]) if kept.any() else None


def means(rows: list[dict[str, Any]]) -> list[list[str]]:
    """For the screen: the mean over the seeds of each data set and method."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        cells[row["dataset"], row["method"]].append(row)
    lines = [["data set", "method", "seeds", *(measure.title for measure in MEASURES)]]
    for (dataset, method), own in cells.items():
        values = [f"{sum(row[m.key] for row in own) / len(own):.2f}" for m in MEASURES]
        lines.append([dataset, method, str(len(own)), *values])
    return lines


def write(out: Path, rows: list[dict[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    try:
        atomic_write(out, text.getvalue())
    except OSError as error:
        raise CandidError(f"{out} cannot be written ({error.strerror}); name another with --out.") from None


COMMANDS = (
    Command("measures", "top-5, macro, worst class, calibration, likelihood of finished runs", run, SELECTION, Own),
)
