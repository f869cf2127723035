"""`export`: one tidy CSV, a row per epoch or a row per run."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark import store
from benchmark.cli.options import Command, Request
from benchmark.errors import COMPLETE, CandidError, warn
from benchmark.files import atomic_write
from benchmark.flags import flag
from datasets.base import UNKNOWN, DataError, plural

if TYPE_CHECKING:
    import pandas

    from datasets.base import Dataset


@dataclass(frozen=True)
class Own:
    runs: bool = flag(False, "one row per run with its summary and measures, instead of one per epoch")
    tuning: bool = flag(False, "also the runs of tune")
    out: Path | None = flag(
        None, "default: epochs.csv or runs.csv in the results folder; - for the screen", kind=Path, metavar="FILE"
    )


def run(request: Request, own: Own) -> int:
    stored = store.current_runs(request.results, request.profile, request.plugins, own.tuning)
    frame = run_frame(stored, request.data) if own.runs else store.epoch_frame(stored)
    if frame.empty:
        raise CandidError(f"There are no runs in {request.results} to export.")
    text = frame.to_csv(index=False)
    if str(own.out) == "-":
        sys.stdout.write(text)
        return COMPLETE
    out = own.out or request.results / ("runs.csv" if own.runs else "epochs.csv")
    try:
        atomic_write(out, text)
    except OSError as error:
        raise CandidError(f"{out} cannot be written ({error.strerror}); name another file with --out.") from None
    runs = plural(frame["identity"].nunique(), "run")
    print(f"Written: {out} ({runs if own.runs else f'{len(frame)} epochs of {runs}'})")
    return COMPLETE


def run_frame(stored: list[store.StoredRun], data: Path) -> pandas.DataFrame:
    """Return the frame of `store.runs()` with the whole summary and the measures of every run."""
    import pandas

    from benchmark.measures import MEASURES

    frame = store.run_frame(stored)
    summaries = [run.summary for run in stored]
    names = dict.fromkeys([*(name for summary in summaries for name in summary), *MEASURES])
    columns = [name for name in names if name not in frame]
    rows = [summary | measures_of(run, data) for summary, run in zip(summaries, stored, strict=True)]
    return frame.join(pandas.DataFrame(rows, columns=columns, index=frame.index))


def measures_of(run: store.StoredRun, data: Path) -> dict[str, float]:
    """Return the measures of a finished run on its test rows with a true label.

    Nothing where the run has no predictions or its data are not on this machine; a damaged file gives a warning.
    """
    from benchmark.measures import measures

    if run.document["status"] != "done":
        return {}
    try:
        predictions = store.predictions(run)
        dataset = None if predictions is None else dataset_of_run(run.document, data)
    except CandidError as error:
        warn(f"no measures: {error}")
        return {}
    if predictions is None or dataset is None:
        return {}
    labels, rows = dataset.test.labels.numpy(), predictions.test_rows
    if predictions.test_logits.shape[1] != dataset.num_classes or (rows >= len(labels)).any():
        warn(f"no measures: the predictions in {run.path} do not belong to the data on this machine")
        return {}
    known = labels[rows] != UNKNOWN
    return measures(predictions.test_logits[known], labels[rows][known]) if known.any() else {}


def dataset_of_run(document: dict[str, Any], data: Path) -> Dataset | None:
    """Return the dataset of a stored run, or None if it is not on this machine. Its name is never taken for a path."""
    from benchmark.config.spec import RunConfig, RunSpec
    from benchmark.trainer.loading import dataset_of
    from datasets.registry import SOURCES

    try:
        config = RunConfig.from_json(document["config"])
        if config.dataset_sha256 or config.dataset not in SOURCES:
            return None
        return dataset_of(RunSpec(document["profile"], document["label"], config), data)
    except (ValueError, DataError):
        return None


COMMANDS = (
    Command(
        "export",
        "one tidy CSV of all epochs, or with --runs of all runs with their measures",
        run,
        ("profile", "results", "data", "plugins"),
        Own,
    ),
)
