"""`fit`: train one method on own data and keep the model."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark import artifacts, store
from benchmark.accuracy import in_words
from benchmark.cli.options import Command, Request
from benchmark.cli.run import report_failures
from benchmark.cli.training import selection_of, train
from benchmark.errors import COMPLETE, FAILED, UsageError
from benchmark.flags import flag

if TYPE_CHECKING:
    from benchmark.config.spec import RunSpec

OWN = "own"  # the profile for own data
TAKES = (
    "profile", "results", "data", "device", "plugins", "settings", "epochs", "eval_every", "dry_run", "quiet", "track",
    "checkpoint_seconds",
)  # fmt: skip
COPIED = ("run.json", "metrics.jsonl", artifacts.PREDICTIONS, artifacts.MODEL, artifacts.TENSORS, artifacts.LABELS)


@dataclass(frozen=True)
class Own:
    dataset: str = flag(None, "an .npz, .csv or .parquet file, or a folder of images", positional=True, metavar="DATA")
    method: str = flag("cel", "which method", metavar="NAME")
    seed: str = flag("0", "of split, initial weights and order", metavar="N")
    out: Path | None = flag(None, "copy the model and its numbers there", kind=Path, metavar="FOLDER")


def run(request: Request, own: Own) -> int:
    if own.out is not None:
        check_out(own.out)
    profile = request.profile or OWN
    request = replace(
        request, profile=profile, methods=own.method, datasets=own.dataset, seeds=own.seed, keep_model=True, jobs="1"
    )
    specs = selection_of(request).specs()
    if len(specs) != 1:
        raise UsageError("fit trains one method on one data set with one seed; for more, use `run --keep-model`.")
    (spec,) = specs
    progress = train(request, selection_of(request), specs)
    if request.dry_run:
        return COMPLETE
    failed = any(outcome.status != "done" for _, outcome in progress.outcomes)
    code = report_failures(progress) if request.quiet else FAILED if failed else COMPLETE  # else it was said before
    found = finished(request.results, spec)
    if code != COMPLETE or found is None:
        return code or FAILED
    where = found.path if own.out is None else copied(found.path, own.out)
    print(told(spec, found.document))
    if artifacts.TENSORS not in (found.document.get("files") or {}):
        return FAILED  # why was said as a warning
    print(f"Model: {where}\n  ./reproduce.sh predict {where} NEW-DATA\n  ./reproduce.sh labels {where}")
    return COMPLETE


def finished(results: Path, spec: RunSpec) -> store.StoredRun | None:
    """Return the run on disk, if it is finished."""
    run = store.Store(results).of_plan([spec]).get(spec.digest)
    return run if run is not None and run.document["status"] == "done" else None


def told(spec: RunSpec, document: dict[str, Any]) -> str:
    """What is known of how good it is, by name; without true labels that is said."""
    summary = document["summary"]
    lines = [f"{spec.method} on {spec.dataset}, network {document.get('network', '?')}, {spec.train.epochs} epochs."]
    if "accuracy" in summary:
        lines.append(f"Test accuracy {summary['accuracy']:.2f} %.")
    else:
        measures = in_words(summary) or "nothing was held out, so there is no measure without them either"
        lines.append(f"No test row has a true label, so nothing is scored; on held-out rows: {measures}.")
    if "train_accuracy" in summary:
        lines.append(f"True labels found in the training rows: {summary['train_accuracy']:.2f} %.")
    return "\n".join(lines)


def check_out(out: Path) -> None:
    """Before the training, not after it; a folder with anything but an earlier model in it is left alone."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is a file; name a folder.")
    strange = sorted({path.name for path in out.iterdir()} - set(COPIED)) if out.is_dir() else []
    if strange:
        raise UsageError(f"--out {out} holds other files ({strange[0]}); name an empty or a new folder.")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {out} cannot be made ({error.strerror}).") from None


def copied(folder: Path, out: Path) -> Path:
    """The files of a finished run in another folder; model.json last, which makes it a model."""
    (out / artifacts.MODEL).unlink(missing_ok=True)
    for name in sorted(COPIED, key=lambda name: name == artifacts.MODEL):
        if (folder / name).is_file():
            shutil.copyfile(folder / name, out / name)
    return out


COMMANDS = (Command("fit", "own data: train one method and keep the model", run, TAKES, Own),)
