"""Do one run in this process: data, candidate labels, identity, lock, training, record."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from benchmark import artifacts
from benchmark.accuracy import in_words
from benchmark.config.spec import SCHEMA, RunSpec, identity_of
from benchmark.errors import warn
from benchmark.runner.log import captured, is_out_of_memory, sentence, silenced
from benchmark.runner.options import DEATHS_ALLOWED, Outcome, RunOptions, run_title
from benchmark.runner.provenance import environment, now
from benchmark.runner.tracking import following
from benchmark.store import ANNOTATOR, StoredRun, epochs_digest, run_folder
from benchmark.trainer import checkpoint
from benchmark.trainer.candidates import candidate_set, packed_annotation
from benchmark.trainer.device import check_global_state, ready, release
from benchmark.trainer.guard import Diverged, peak_memory_mb
from benchmark.trainer.loading import dataset_of, entry_of
from benchmark.trainer.model import model_files, obstacle
from benchmark.trainer.summary import cost_of, summarise
from benchmark.trainer.trainer import Hooks, Interrupted, Trainer, weights_digest
from datasets.base import UNKNOWN, DataError, Dataset
from datasets.candidates.candidate_sets import CandidateSet, quality_warnings
from datasets.storage.files import Busy, without_waiting
from methods.registry import load

_stop_asked = threading.Event()  # by SIGTERM; the trainer looks at it after every step


def start_worker(parent: int) -> None:
    """Make this process a worker: SIGTERM asks it to save and stop, and it never outlives its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: _stop_asked.set())

    def watch_parent() -> None:
        while os.getppid() == parent:
            time.sleep(0.3)
        os._exit(1)

    threading.Thread(target=watch_parent, daemon=True).start()


def guarded(task: Callable[[RunSpec, RunOptions], Outcome]) -> Callable[[RunSpec, RunOptions], Outcome]:
    """Return a task on a device that is ready for it. What it can do wrong is an outcome, never an exception."""

    @functools.wraps(task)
    def attempt(spec: RunSpec, options: RunOptions) -> Outcome:
        try:
            device = ready(options.device)
            check_global_state(device)
            return task(spec, replace(options, device=str(device)))
        except Busy as busy:
            return Outcome("claimed", str(busy.path))
        except Interrupted:
            return Outcome("interrupted", "stopped")
        except (Exception, SystemExit) as error:
            return Outcome("failed", sentence(error))
        finally:
            release(options.device)

    return attempt


@guarded
def prepare(spec: RunSpec, options: RunOptions) -> Outcome:
    """Draw the candidate set of a run; what several runs share is built before them.

    `claimed`: another process is drawing it; the reason is its lock. `done` with a reason: the set is doubtful.
    """
    with silenced(), without_waiting():
        return Outcome("done", " ".join(quality_warnings(drawn_set(spec, dataset_of(spec, options.data), options))))


@guarded
def execute(spec: RunSpec, options: RunOptions) -> Outcome:
    """Do a run: lock its folder, train, record."""
    dataset = dataset_of(spec, options.data)
    return _carry_out(spec, options, dataset, drawn_set(spec, dataset, options))


def drawn_set(spec: RunSpec, dataset: Dataset, options: RunOptions) -> CandidateSet:
    """Return the candidate set of a run, drawn on first use; an annotator that it needs is trained as a run before."""

    def train(annotator: RunSpec) -> None:
        everything = torch.ones(len(dataset.train), dataset.num_classes, dtype=torch.bool)
        outcome = _carry_out(annotator, options, dataset, CandidateSet(everything, "", {}))
        if outcome.status == "claimed":
            raise Busy(Path(outcome.reason))
        if outcome.status == "interrupted":
            raise Interrupted
        if outcome.status != "done":
            raise DataError(f"the annotator of {dataset.name} {outcome.status}: {outcome.reason.rstrip('.')}.")

    if _stop_asked.is_set():
        raise Interrupted
    return candidate_set(spec, dataset, options.results, train)


def _carry_out(spec: RunSpec, options: RunOptions, dataset: Dataset, candidates: CandidateSet) -> Outcome:
    identity = identity_of(spec.digest, candidates.sha256)
    folder = run_folder(options.results, spec, identity)
    if not folder.lock.acquire():
        return Outcome("claimed", str(folder.lock.path))
    try:
        earlier = folder.read()
        if earlier is not None and earlier.get("identity") != identity:
            earlier = None
        outcome = None if earlier is None else _final_outcome(folder, earlier, options)
        return outcome or Attempt(spec, options, folder, identity, dataset, candidates, earlier).carry_out()
    finally:
        folder.lock.release()


def _final_outcome(folder: StoredRun, earlier: dict[str, Any], options: RunOptions) -> Outcome | None:
    """Return the outcome of a run that is not to be tried (again), from its document."""
    status, reason = earlier["status"], earlier.get("reason", "")
    # Done, and with its model if that is asked for; one lost or never stored takes the run again, with equal numbers.
    if status == "done" and _has_files(folder, earlier, options):
        return Outcome("done", accuracy=earlier["summary"].get("accuracy"), skipped=True)
    if status == "diverged" and not options.retry_diverged:
        return Outcome("diverged", reason, skipped=True)
    if status in ("failed", "oom") and folder.document_path.stat().st_mtime >= options.started:
        return Outcome(status, reason, skipped=True)  # another process has tried it meanwhile
    if deaths(earlier, options) >= DEATHS_ALLOWED:
        reason = f"its worker process died {DEATHS_ALLOWED} times (out of memory, segmentation fault, or a signal)"
        earlier |= {"status": "failed", "reason": reason}
        earlier["time"]["finished"] = now()
        write_or_warn(folder, earlier)
        return Outcome("failed", reason)
    return None


def _has_files(folder: StoredRun, earlier: dict[str, Any], options: RunOptions) -> bool:
    if earlier.get("purpose") == ANNOTATOR:
        return artifacts.is_whole(folder.path, artifacts.ANNOTATION, earlier)
    return folder.has_model() or not options.keep_model


def write_or_warn(folder: StoredRun, document: dict[str, Any]) -> OSError | None:
    """Write run.json; on a full disk warn, because the last whole files stay as they are."""
    try:
        folder.write(document)
    except OSError as error:
        warn(f"{folder.document_path} could not be written: {sentence(error)}")
        return error
    return None


def deaths(earlier: dict[str, Any], options: RunOptions) -> int:
    """Return how many workers of this command died on a run whose lock is free, the one that left `earlier` included."""
    if earlier["status"] != "running" or earlier["time"].get("command") != options.command:
        return 0
    return int(earlier["time"].get("deaths", 0)) + 1


@dataclass
class Attempt:
    """One session of one run in this process, which holds its lock."""

    spec: RunSpec
    options: RunOptions
    folder: StoredRun
    identity: str
    dataset: Dataset
    candidates: CandidateSet
    earlier: dict[str, Any] | None  # run.json of the last session
    document: dict[str, Any] = field(default_factory=dict)

    def carry_out(self) -> Outcome:
        """Train to the end, or to whatever ends it before, and record how it ended in run.json."""
        started = time.time()
        self.document = self._first_document()
        try:
            self.folder.write(self.document)
            with captured(self.folder.path / "log.txt"):
                status, reason = self._try()
        except OSError as error:
            status, reason = "failed", sentence(error)
        self.document |= {"status": status, "reason": reason, "epochs_done": len(self.folder.epochs())}
        self.document["time"]["finished"] = self.document["sittings"][-1]["finished"] = now()
        write_error = write_or_warn(self.folder, self.document)
        if status == "done" and write_error:
            status, reason = "failed", sentence(write_error)
        elif status == "done":
            with contextlib.suppress(OSError):  # one that stays is never read again
                checkpoint.remove(self.folder.path)
        summary = self.document.get("summary") or {}
        return Outcome(status, reason, summary.get("accuracy"), time.time() - started, in_words(summary))

    def _try(self) -> tuple[str, str]:
        """Train; return status and reason."""
        try:
            self._train()
        except Interrupted:
            return "interrupted", ""
        except Diverged as error:
            return "diverged", str(error)
        except BaseException as error:  # SystemExit too: a method must not end the worker that does others' runs
            traceback.print_exc()
            if not is_out_of_memory(error):
                return "failed", sentence(error, self.spec.paths.get("plugin", ""))
            peak = peak_memory_mb(torch.device(self.options.device))
            return "oom", f"out of memory (peak {peak:.0f} MB): {sentence(error)}"
        return "done", ""

    def _train(self) -> None:
        options = self.options
        with following(options.track, self.folder.path, self.spec, self.identity) as on_epoch:
            trainer = Trainer(
                self.spec,
                load(entry_of(self.spec)),
                self.dataset,
                self.candidates.matrix,
                torch.device(options.device),
                Hooks(_stop_asked.is_set, on_epoch, options.checkpoint_seconds),
            )
            records = trainer.run(self.folder, self.identity)
        self.document["summary"] = summarise(records)
        self.document["metrics_sha256"] = epochs_digest(records)
        if "accuracy" not in self.document["summary"]:
            self.document["scored"] = False
        self.document["weights_sha256"] = weights_digest(trainer.method)
        self.document["files"] = self._keep(trainer)
        self.document["network"] = self.spec.backbone.name or self.dataset.backbone
        self.document["cost"] = cost_of(records)
        self.document["cost"]["parameters"] = sum(p.numel() for p in trainer.method.parameters())

    def _keep(self, trainer: Trainer) -> dict[str, str]:
        """Write the run's outputs beside its numbers; return their names and SHA-256."""
        content = artifacts.npz_bytes(vars(trainer.evaluator.predictions(trainer.method)))
        files = artifacts.write(self.folder.path, {artifacts.PREDICTIONS: content})
        is_annotator = self.spec.purpose == ANNOTATOR
        if self.options.keep_model or is_annotator:
            reason = obstacle(trainer, self.dataset)
            if not reason:
                model = model_files(trainer, self.dataset, self.candidates.matrix)
                files |= artifacts.write(self.folder.path, model)
            elif not is_annotator:
                warn(f"{run_title(self.spec)} keeps no model: {reason}.")
        if is_annotator:  # last, because it may change running statistics
            content = packed_annotation(trainer, self.dataset)
            files |= artifacts.write(self.folder.path, {artifacts.ANNOTATION: content})
        return files

    def _first_document(self) -> dict[str, Any]:
        """Return run.json as it is while the run goes on."""
        spec, times = self.spec, self.earlier["time"] if self.earlier else {}
        here = {"started": now(), "typed": self.options.typed, "host": socket.gethostname(), "pid": os.getpid()}
        here["environment"] = environment(self.options.device)
        before = self.earlier.get("sittings") if self.earlier else None
        was_result = self.earlier is not None and not self.earlier.get("purpose")
        return {
            "schema": SCHEMA,
            "status": "running",
            "reason": "",
            "profile": spec.profile,
            **({"purpose": spec.purpose} if spec.purpose and not was_result else {}),
            "dataset": spec.dataset,
            "method": spec.method,
            "label": spec.label,
            "seed": spec.seed,
            "identity": self.identity,
            "config": spec.to_json(),
            "config_digest": spec.digest,
            "provenance": spec.provenance,
            "overrides": spec.overrides,
            **({"data_file": Path(spec.paths["dataset"]).name} if spec.dataset_sha256 else {}),
            "candidates_sha256": self.candidates.sha256,
            "data_notes": list(self.dataset.notes),
            "test_rows": int((self.dataset.test.labels != UNKNOWN).sum()),  # with a true label
            "environment": here["environment"],
            "sittings": [*(before if isinstance(before, list) else []), here],
            "time": {
                "started": times.get("started", here["started"]),
                "sittings": times.get("sittings", 1) + 1 if self.earlier else 1,
                "host": here["host"],
                "pid": here["pid"],
                "command": self.options.command,
                "deaths": deaths(self.earlier, self.options) if self.earlier else 0,
            },
        }
