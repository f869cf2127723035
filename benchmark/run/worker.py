"""Executes one run in this process: data, candidate labels, identity, lock, training, the document it leaves behind."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import io
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.accuracy import ACCURACIES
from benchmark.errors import CandidError
from benchmark.files import ROOT, no_link
from benchmark.plan.spec import RunSpec, identity_of
from benchmark.store import SCHEMA, RunFolder, run_folder, warn
from datasets.base import DataError
from methods.registry import Entry, MethodError, load, scan

if TYPE_CHECKING:
    import torch

    from datasets.base import Dataset
    from datasets.labels.candidates import CandidateSet

DEATHS_ALLOWED = 2  # of worker processes on one run in one command
LOG_LIMIT = 1 << 20  # characters that a method may print into its log


@dataclass(frozen=True)
class Place:
    """Where a run finds and leaves things, and what it runs on. None of it enters the run's identity."""

    results: Path
    data: Path
    device: str = "cpu"
    checkpoint_seconds: float | None = None
    retry_diverged: bool = False
    track: str = ""  # "tensorboard" or "wandb"
    step_seconds: float = 3600.0  # a step or epoch hook that takes longer is taken for endless
    command: str = ""  # one invocation of the program, on however many workers
    began: float = 0.0  # when that was


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended. `claimed`: another process has the run."""

    status: str
    reason: str = ""
    accuracy: float | None = None
    seconds: float = 0.0
    skipped: bool = False


_stop = threading.Event()


def request_stop(*_: object) -> None:
    """Signal handler of a worker: the trainer looks at it after every step."""
    _stop.set()


def start_worker(parent: int) -> None:
    """A worker process: SIGTERM asks it to save and stop, and it never outlives its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, request_stop)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.3)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@functools.lru_cache(maxsize=2)
def _load_dataset(name: str, root: str, split: int, settings: str) -> Dataset:
    from datasets import registry

    try:
        return registry.get(name).load(Path(root), split, **json.loads(settings))
    except TypeError as error:
        raise DataError(f"{name}: {error}; see the data set's settings in docs/data.md.") from None


def dataset_of(spec: RunSpec, data: Path) -> Dataset:
    """The data of a run; `data.split = -1` makes the split follow the seed."""
    split = spec.seed if spec.data.split < 0 else spec.data.split
    name = spec.paths.get("dataset") or spec.dataset
    return _load_dataset(name, str(data), split, json.dumps(spec.config.dataset_settings, sort_keys=True))


def candidates_of(spec: RunSpec, dataset: Dataset, place: Place) -> CandidateSet:
    """The candidate set of a run, drawn once and shared by all methods."""
    from benchmark.train.candidates import candidate_set

    return candidate_set(spec, dataset, place.results, place.device)


def prepare(spec: RunSpec, place: Place) -> str:
    """Build what all runs on a data set and seed share; an empty string, or why it cannot be had."""
    try:
        with captured(None):
            candidates_of(spec, dataset_of(spec, place.data), place)
    except Exception as error:
        return sentence(error)
    return ""


def execute(spec: RunSpec, place: Place) -> Outcome:
    """Do this run, or say why not. Never raises for what a single run can do wrong."""
    import torch

    started = time.time()
    try:
        dataset = dataset_of(spec, place.data)
        chosen = candidates_of(spec, dataset, place)
    except Exception as error:
        return Outcome("failed", sentence(error))
    identity = identity_of(spec.digest, chosen.sha256)
    folder = run_folder(place.results, spec, identity)
    try:
        if not folder.lock.acquire():
            return Outcome("claimed")
    except OSError as error:
        return Outcome("failed", sentence(error))
    try:
        known = folder.read()
        if known is not None and known.get("identity") == identity:
            if known["status"] == "done":
                return Outcome("done", accuracy=known["summary"]["accuracy"], skipped=True)
            if known["status"] == "diverged" and not place.retry_diverged:
                return Outcome("diverged", known.get("reason", ""), skipped=True)
            if known["status"] in ("failed", "oom") and place.began and finished(known) >= place.began:
                return Outcome(known["status"], known.get("reason", ""), skipped=True)  # another process just tried
            if deaths(known, place) >= DEATHS_ALLOWED:
                return _give_up(folder, known)
        device = torch.device(place.device)
        document = _new_document(spec, identity, chosen.sha256, device, known, place)
        return _attempt(spec, place, folder, document, dataset, chosen, device, started)
    finally:
        folder.lock.release()


def finished(document: dict[str, Any]) -> float:
    """When a run ended, in seconds since 1970; 0 if that is not written."""
    try:
        return datetime.fromisoformat(document["time"]["finished"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return 0.0


def deaths(known: dict[str, Any], place: Place) -> int:
    """How many workers of this very command died on a run whose lock is free, the one that left `known` included."""
    if known["status"] != "running" or not place.command or known["time"].get("command") != place.command:
        return 0
    return int(known["time"].get("deaths", 0)) + 1


def _give_up(folder: RunFolder, known: dict[str, Any]) -> Outcome:
    reason = f"its worker process died {DEATHS_ALLOWED} times (out of memory, segmentation fault, or a signal)"
    known |= {"status": "failed", "reason": reason}
    known["time"]["finished"] = now()
    try:
        folder.write(known)
    except OSError as error:
        warn(f"{folder.document_path} could not be written: {sentence(error)}")
    return Outcome("failed", reason)


def _attempt(
    spec: RunSpec,
    place: Place,
    folder: RunFolder,
    document: dict[str, Any],
    dataset: Dataset,
    chosen: CandidateSet,
    device: torch.device,
    started: float,
) -> Outcome:
    from benchmark.train.guard import Diverged
    from benchmark.train.trainer import Interrupted

    status, reason = "failed", ""
    try:
        folder.write(document)
        with captured(folder.path / "log.txt"):
            try:
                _train(spec, place, folder, document, dataset, chosen, device)
                status = "done"
            except Interrupted:
                status = "interrupted"
            except Diverged as error:
                status, reason = "diverged", str(error)
            except BaseException as error:  # SystemExit too: a method must not end the worker that does others' runs
                status = "oom" if is_out_of_memory(error) else "failed"
                reason = sentence(error)
                if status == "oom":
                    from benchmark.train.guard import peak_memory_mb

                    reason = f"out of memory (peak {peak_memory_mb(device):.0f} MB): {reason}"
                traceback.print_exc()
    except OSError as error:
        status, reason = "failed", sentence(error)
    document |= {"status": status, "reason": reason, "epochs_done": len(folder.epochs())}
    document["time"]["finished"] = now()
    try:
        folder.write(document)
        if status == "done":
            from benchmark.train import checkpoint

            checkpoint.remove(folder.path)
    except OSError as error:  # a full disk: the last whole files stay as they are
        if status == "done":
            status, reason = "failed", sentence(error)
        warn(f"{folder.document_path} could not be written: {sentence(error)}")
    return Outcome(status, reason, (document.get("summary") or {}).get("accuracy"), time.time() - started)


def _train(
    spec: RunSpec,
    place: Place,
    folder: RunFolder,
    document: dict[str, Any],
    dataset: Dataset,
    chosen: CandidateSet,
    device: torch.device,
) -> None:
    from benchmark.run.tracking import following
    from benchmark.train.trainer import Hooks, Trainer, weights_digest

    method_class = load(entry_of(spec))
    identity = document["identity"]
    with following(place.track, folder.path, spec, identity) as on_epoch, impatience(place.step_seconds) as still_there:
        hooks = Hooks(lambda: still_there() or _stop.is_set(), on_epoch, place.checkpoint_seconds)
        trainer = Trainer(spec, method_class, dataset, chosen.matrix, device, hooks)
        records = trainer.run(folder, identity)
    document["summary"] = summarise(records)
    document["weights_sha256"] = weights_digest(trainer.method)
    times = [record["time"] for record in records]
    evaluations = [
        t["seconds"] - t["train_seconds"] for t, r in zip(times, records, strict=True) if "test_accuracy" in r["result"]
    ]
    evaluating = _median(evaluations) * len(evaluations) / len(times)  # not every epoch has one
    document["cost"] = {
        "seconds_per_epoch": round(_median([t["train_seconds"] for t in times]) + evaluating, 4),
        "images_per_second": _median([t["images_per_second"] for t in times]),
        "peak_memory_mb": max(t["peak_memory_mb"] for t in times),
        "parameters": sum(p.numel() for p in trainer.method.parameters()),
    }
    if trainer.compiled:
        document["cost"]["compile_seconds"] = round(sum(t.get("compile_seconds", 0.0) for t in times), 4)


class Endless(Exception):
    """A step that does not end."""


def ring(*_: object) -> None:
    """Handler of the alarm."""
    raise Endless("a step did not end in time (see --step-seconds)")


@contextlib.contextmanager
def impatience(seconds: float) -> Iterator[Callable[[], bool]]:
    """Interrupt the running line if the function handed out is not called for so long; it always answers False.

    Alarms reach the main thread only; a run in another thread (on a dask worker) is not watched.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def again() -> bool:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        return False

    previous = signal.signal(signal.SIGALRM, ring)
    again()
    try:
        yield again
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def entry_of(spec: RunSpec) -> Entry:
    """The method of a run from its one file."""
    from methods.registry import discover

    plugin = spec.paths.get("plugin")
    if plugin:
        return next(e for e in scan(Path(plugin)) if e.name == spec.method)
    return discover().get(spec.method)


def summarise(records: list[dict[str, Any]]) -> dict[str, float | None]:
    """What tables read: the last epoch is the result; everything else is named for what it is."""
    results = [r["result"] for r in records if r["result"].get("test_accuracy") is not None]
    accuracies = [r["test_accuracy"] for r in results]
    late = [r["result"]["test_accuracy"] for r in records[-10:] if r["result"].get("test_accuracy") is not None]
    summary: dict[str, float | None] = {
        "accuracy": accuracies[-1],
        "accuracy_last10": sum(late) / len(late),
        "accuracy_oracle": max(accuracies),
    }
    for accuracy in ACCURACIES:
        metric = accuracy.chosen_by
        scores = [r.get(metric) for r in results] if metric else []
        if scores and all(s is not None for s in scores):
            best = max(range(len(scores)), key=lambda k: (scores[k], k))  # the latest of equal epochs
            summary[accuracy.key] = accuracies[best]
            summary[f"{metric}_selected"] = scores[best]
    for key, value in results[-1].items():
        if key.startswith("test_accuracy_") or key in ("train_accuracy", "true_labels_lost", "average_set_size"):
            summary[key] = value
    return summary


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _new_document(
    spec: RunSpec, identity: str, sha256: str, device: torch.device, known: dict[str, Any] | None, place: Place
) -> dict[str, Any]:
    same = known if known is not None and known.get("identity") == identity else None
    time_fields = {
        "started": same["time"].get("started", now()) if same else now(),
        "sittings": same["time"].get("sittings", 1) + 1 if same else 1,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "command": place.command,
        "deaths": deaths(same, place) if same else 0,
    }
    return {
        "schema": SCHEMA,
        "status": "running",
        "reason": "",
        "profile": spec.profile,
        "dataset": spec.dataset,
        "method": spec.method,
        "label": spec.label,
        "seed": spec.seed,
        "identity": identity,
        "config": spec.config.to_json(),
        "config_digest": spec.digest,
        "provenance": spec.provenance,
        "overrides": spec.overrides,
        "candidates_sha256": sha256,
        "environment": environment(str(device)),
        "time": time_fields,
    }


@functools.lru_cache(maxsize=4)
def environment(device: str) -> dict[str, Any]:
    """What a reader needs to know about the machine and the code."""
    import numpy
    import torch

    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else cpu_name()
    return {
        "device": device,
        "device_name": name,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": package_version("torchvision"),  # asked without importing it, which takes seconds
        "numpy": numpy.__version__,
        "platform": platform.platform(),
        "commit": commit(),
        "code_version": code_version(),
    }


def package_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "CPU"


@functools.cache
def commit() -> str:
    """The commit of the checkout, with '+' when tracked files differ from it; empty outside git."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, timeout=10)
        diff = subprocess.run(
            ["git", "status", "--porcelain", "-uno", "--", "methods", "datasets", "benchmark"],
            cwd=ROOT, capture_output=True, text=True, timeout=20,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return head.stdout.strip() + ("+" if diff.stdout.strip() else "") if head.returncode == 0 else ""


@functools.cache
def code_version() -> str:
    """A digest of the source of the three packages: equal code, equal version, whatever git says."""
    digest = hashlib.sha256()
    for package in ("benchmark", "datasets", "methods"):
        for path in sorted((ROOT / package).rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def is_out_of_memory(error: BaseException) -> bool:
    text = str(error)
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and ("can't allocate memory" in text or "out of memory" in text))
    )


def sentence(error: BaseException) -> str:
    """One line for a table's notes: what went wrong and, for an unexpected error, in which line."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left on the disk of {error.filename or 'the results folder'}"
    if isinstance(error, CandidError | DataError | MethodError) or type(error).__name__ == "BackboneError":
        return str(error)
    where = ""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.name == ring.__name__:  # the alarm itself; the line it interrupted is the one to name
            continue
        if "site-packages" not in frame.filename and "/lib/python" not in frame.filename:
            where = f" ({os.path.relpath(frame.filename, ROOT)}:{frame.lineno})"
            break
    first = (str(error) or "no message").strip().splitlines()[0]
    return f"{type(error).__name__}: {first}{where}"


class _Log(io.TextIOBase):
    """Standard output of a run: into its log, up to a limit, never into the progress display."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.left = path, LOG_LIMIT

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.path is not None and self.left > 0:
            with contextlib.suppress(OSError), open(self.path, "a", encoding="utf-8", opener=no_link) as stream:
                stream.write(text[: self.left])
                self.left -= len(text)
                if self.left <= 0:
                    stream.write("\n[the rest of the output was not kept]\n")
        return len(text)


@contextlib.contextmanager
def captured(path: Path | None) -> Iterator[None]:
    """Send what is printed to a file (or nowhere) while a run is going on."""
    log = _Log(path)
    out, err = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = log  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err
