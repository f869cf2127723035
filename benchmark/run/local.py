"""Many runs on many slots: joblib's worker processes on one machine, joblib's dask back-end on several.

Each slot has a worker of its own, so a worker that dies takes nothing with it but its run's progress since the last
checkpoint. The parent process never touches torch; on a CPU workers are forked from a parent that has imported it,
which makes a new worker ready at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
import uuid
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.errors import INTERRUPTED, TERMINATED, CandidError, UsageError
from benchmark.files import is_locked
from benchmark.plan.spec import RunSpec
from benchmark.run.worker import DEATHS_ALLOWED, ROOT, Outcome, Place, execute, now, prepare, sentence, start_worker
from benchmark.store import RunFolder, find, warn

if TYPE_CHECKING:
    from joblib.externals.loky import ProcessPoolExecutor

MOST_JOBS = 1024
GRACE = 7.0  # seconds for workers to save after a signal
WORKERS_SECONDS = 60  # for the first dask worker to come


@dataclass
class Progress:
    """What a display shows; the pool writes it, the display reads it."""

    total: int
    preparing: dict[int, str] = field(default_factory=dict)  # by slot: data sets whose candidate labels are being made
    running: dict[int, RunSpec] = field(default_factory=dict)  # by slot
    outcomes: list[tuple[RunSpec, Outcome]] = field(default_factory=list)
    elsewhere: int = 0
    started: float = field(default_factory=time.time)


class Stopped(CandidError):
    """Ctrl-C or SIGTERM."""

    def __init__(self, number: int) -> None:
        name = signal.Signals(number).name
        super().__init__(f"Stopped by {name}; the same command goes on from here.")
        self.code = INTERRUPTED if number == signal.SIGINT else TERMINATED


def parse_jobs(text: str | None, devices: Sequence[str]) -> list[str]:
    """The device of every slot: `--jobs N`, `--jobs K/gpu`; default one per CUDA device, on a CPU one per core."""
    if text is None:
        return list(devices) if devices[0] != "cpu" else ["cpu"] * cores()
    number, _, per = text.partition("/")
    if not number.isdecimal() or int(number) < 1 or per not in ("", "gpu"):
        raise UsageError(f"--jobs {text}: write a whole number, or K/gpu for K runs on each GPU.")
    if int(number) > MOST_JOBS:
        raise UsageError(f"--jobs {text}: that is more than one machine can do at once; {MOST_JOBS} is the most.")
    if per == "gpu":
        if devices[0] == "cpu":
            raise UsageError(f"--jobs {text}: there is no GPU here; write --jobs {number}.")
        return [device for device in devices for _ in range(int(number))]
    return [devices[k % len(devices)] for k in range(int(number))]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Pool:
    """Runs specs on slots until all are done, failed, or in the hands of another process."""

    def __init__(self, place: Place, slots: Sequence[str], wait: bool = True) -> None:
        self.place = replace(place, command=uuid.uuid4().hex, began=time.time())
        self.slots, self.wait = list(slots), wait
        self._executors: dict[int, ProcessPoolExecutor] = {}
        self._signal = 0
        self._guard = threading.Lock()

    # one machine ------------------------------------------------------------------------------------------------------
    def run(self, specs: Sequence[RunSpec], display: Callable[[Progress], Any] | None = None) -> Progress:
        """All runs, longest first; returns when nothing is left to do here."""
        progress = Progress(len(specs))
        if not specs:
            return progress
        if self.slots[0] == "cpu":
            import torch._dynamo  # noqa: F401  optimisers import it at their first step, which takes seconds

            import benchmark.train.trainer  # noqa: F401  torch, before the workers are forked
        unusable = self._prepare(specs, progress, display)
        queue: deque[RunSpec] = deque()
        for spec in specs:
            reason = unusable.get(_shared_key(spec))
            if reason:
                progress.outcomes.append((spec, Outcome("failed", reason)))
            else:
                queue.append(spec)
        deaths: Counter[str] = Counter()
        later: deque[RunSpec] = deque()  # claimed by another process
        threads = [
            threading.Thread(target=self._serve, args=(slot, queue, later, deaths, progress), daemon=True)
            for slot in range(len(self.slots))
        ]
        for thread in threads:
            thread.start()
        self._watch(threads, progress, display)
        reported = {spec.digest for spec, _ in progress.outcomes}
        for spec in specs:
            if spec.digest not in reported:  # never silently: a run without an outcome is a fault of this program
                progress.outcomes.append((spec, Outcome("failed", "it was not carried out; start the command again")))
        return progress

    def _watch(
        self, threads: list[threading.Thread], progress: Progress, display: Callable[[Progress], Any] | None
    ) -> None:
        previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            while any(thread.is_alive() for thread in threads):
                if display is not None:
                    display(progress)
                if self._signal:
                    self._stop_workers(threads)
                    raise Stopped(self._signal)
                time.sleep(0.1)
            if display is not None:
                display(progress)
            if self._signal:
                raise Stopped(self._signal)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            self.close()

    def _on_signal(self, number: int, _: object) -> None:
        self._signal = self._signal or number

    def _stop_workers(self, threads: list[threading.Thread]) -> None:
        for pid in self._pids():
            _kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE
        while any(t.is_alive() for t in threads) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in self._pids():
            _kill(pid, signal.SIGKILL)

    def _pids(self) -> list[int]:
        with self._guard:
            return [pid for executor in self._executors.values() for pid in list(executor._processes or ())]

    def _prepare(
        self, specs: Sequence[RunSpec], progress: Progress, display: Callable[[Progress], Any] | None
    ) -> dict[str, str]:
        """Annotators and candidate sets first, each once, so that no slot waits for another's."""
        first: dict[str, RunSpec] = {}
        for spec in specs:
            first.setdefault(_shared_key(spec), spec)
        # Seeds of one data set share an annotator: one job trains it, the rest only draw.
        by_set: dict[str, list[tuple[str, RunSpec]]] = {}
        for key, spec in first.items():
            by_set.setdefault(spec.dataset, []).append((key, spec))
        pending = deque(by_set.values())
        reasons: dict[str, str] = {}

        def serve(slot: int) -> None:
            while pending and not self._signal:
                try:
                    group = pending.popleft()
                except IndexError:
                    return
                progress.preparing[slot] = group[0][1].dataset
                for key, spec in group:
                    try:
                        reasons[key] = self._submit(slot, prepare, spec).result()
                    except BaseException as error:  # whatever a worker died of must not end this slot
                        self._discard(slot)
                        reasons[key] = f"preparing {spec.dataset} failed: {_death(error)}"
                progress.preparing.pop(slot, None)

        threads = [threading.Thread(target=serve, args=(slot,), daemon=True) for slot in range(len(self.slots))]
        for thread in threads:
            thread.start()
        previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            while any(thread.is_alive() for thread in threads):
                if self._signal:
                    for pid in self._pids():
                        _kill(pid, signal.SIGKILL)
                    raise Stopped(self._signal)
                if display is not None:
                    display(progress)
                time.sleep(0.05)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
        return reasons

    def _serve(
        self,
        slot: int,
        queue: deque[RunSpec],
        later: deque[RunSpec],
        deaths: Counter[str],
        progress: Progress,
    ) -> None:
        while not self._signal:
            again = False
            try:
                spec = queue.popleft()
            except IndexError:
                try:
                    spec, again = later.popleft(), True
                except IndexError:
                    return
                if self.wait:
                    time.sleep(0.5)
            progress.running[slot] = spec
            outcome = self._one(slot, spec, deaths)
            progress.running.pop(slot, None)
            if outcome is None:  # the worker died once: again, from the last checkpoint
                queue.appendleft(spec)
            elif outcome.status == "claimed" and (self.wait or not again):
                later.append(spec)
            elif outcome.status == "claimed":  # at the second look too: it may have been done, or dropped, since
                progress.outcomes.append((spec, Outcome("claimed", "another process is doing it")))
            else:
                progress.outcomes.append((spec, outcome))
            progress.elsewhere = len(later)

    def _one(self, slot: int, spec: RunSpec, deaths: Counter[str]) -> Outcome | None:
        started = time.time()
        try:
            return self._submit(slot, execute, spec).result()
        except BaseException as error:  # whatever a worker died of must not end this slot
            self._discard(slot)
            if self._signal:
                return Outcome("interrupted", "stopped")
            deaths[spec.digest] += 1
            if deaths[spec.digest] < DEATHS_ALLOWED:
                return None
            reason = f"its worker process died {DEATHS_ALLOWED} times: {_death(error)}"
            _mark_failed(self.place.results, spec, reason)
            return Outcome("failed", reason, seconds=time.time() - started)

    def _submit(self, slot: int, function: Callable[..., Any], spec: RunSpec) -> Future[Any]:
        with self._guard:
            if slot not in self._executors:
                self._executors[slot] = _executor(self.slots[slot])
            executor = self._executors[slot]
        return executor.submit(function, spec, replace(self.place, device=self.slots[slot]))

    def _discard(self, slot: int) -> None:
        with self._guard:
            executor = self._executors.pop(slot, None)
        if executor is not None:
            executor.shutdown(wait=False, kill_workers=True)

    def close(self) -> None:
        for slot in list(self._executors):
            self._discard(slot)

    # several machines -------------------------------------------------------------------------------------------------
    def run_on_dask(
        self, specs: Sequence[RunSpec], scheduler: str, display: Callable[[Progress], Any] | None = None
    ) -> Progress:
        """Through joblib's dask back-end: every dask worker is a slot, and a lost worker's runs go to another."""
        try:
            import asyncio

            import joblib
            from distributed import Client, KilledWorker
            from joblib._dask import DaskDistributedBackend
        except ImportError:
            raise CandidError("--backend dask needs the extra `cluster`: pip install dask distributed.") from None
        progress = Progress(len(specs))
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # a lost scheduler is one sentence of ours
        try:
            client = Client(scheduler, timeout="10s")
        except (OSError, TimeoutError, ValueError) as error:
            raise CandidError(f"No dask scheduler answers at {scheduler} ({type(error).__name__}).") from None
        place = replace(self.place, results=self.place.results.resolve(), data=self.place.data.resolve())
        remotely = remote_calls(str(ROOT))
        waiting = {spec.digest: spec for spec in specs}

        class Remote(DaskDistributedBackend):
            """On a cluster with one core joblib would do the work in this process, which is not where it was wanted."""

            def effective_n_jobs(self, n_jobs: int) -> int:
                return max(2, super().effective_n_jobs(n_jobs))

        backend = joblib.parallel_config(backend=Remote(client=client))
        with client, backend, self._following(waiting, progress, display):
            _check_workers(client, scheduler, remotely, place.results)
            for attempt in range(len(specs) + 1):
                tasks = [joblib.delayed(remotely)("execute_remotely", *_plain(s, place)) for s in waiting.values()]
                parallel = joblib.Parallel(n_jobs=-1, batch_size=1, return_as="generator_unordered", pre_dispatch="all")
                try:
                    for digest, outcome in parallel(tasks):
                        progress.outcomes.append((waiting.pop(digest), Outcome(**outcome)))
                except KilledWorker as error:
                    # Dask blames every task that a dying worker had, not only the one that killed it: the rest again.
                    warn(f"a dask worker died repeatedly ({error.last_worker.address}); going on with what is left.")
                    if attempt < len(specs):
                        continue
                except (asyncio.CancelledError, CancelledError):
                    raise CandidError(
                        f"The connection to the dask scheduler at {scheduler} was lost; when it is there again, "
                        f"the same command goes on from here."
                    ) from None
                break
        for spec in waiting.values():
            progress.outcomes.append((spec, Outcome("failed", "dask workers kept dying on it")))
        return progress

    @contextlib.contextmanager
    def _following(
        self, waiting: Mapping[str, RunSpec], progress: Progress, display: Callable[[Progress], Any] | None
    ) -> Iterator[None]:
        """Show runs on other machines while they go on: whose lock is held is being trained."""
        if display is None:
            yield
            return
        folders: dict[str, RunFolder] = {}
        over = threading.Event()

        def follow() -> None:
            while not over.wait(1.0):
                for digest, spec in list(waiting.items()):
                    if digest not in folders and (found := find(self.place.results, spec)) is not None:
                        folders[digest] = found[0]
                training = [s for d, s in list(waiting.items()) if d in folders and is_locked(folders[d].lock.path)]
                progress.running = dict(enumerate(training))
                display(progress)

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        try:
            yield
        finally:
            over.set()
            follower.join()
            progress.running = {}
            display(progress)


# on dask workers ------------------------------------------------------------------------------------------------------
def remote_calls(root: str) -> Callable[..., Any]:
    """A function for dask that calls another of this module by name, with plain values.

    `dask worker` and `dask scheduler` do not look for modules in the folder in which they were started, so nothing that
    is sent may refer to this program. An inner function is sent as its code, and it finds the checkout by its path.
    """

    def remotely(name: str, *values: Any) -> Any:
        import sys

        if root not in sys.path:
            sys.path.insert(0, root)
        from benchmark.run import local as pool

        return getattr(pool, name)(*values)

    return remotely


def _check_workers(client: Any, scheduler: str, remotely: Callable[..., Any], results: Path) -> None:
    """Before anything is sent: that there is a worker, and that each finds this program and the results folder."""
    try:
        client.wait_for_workers(1, timeout=WORKERS_SECONDS)
    except TimeoutError:
        raise CandidError(f"No dask worker came to {scheduler} within {WORKERS_SECONDS} s; start some first.") from None
    for worker, answer in client.run(remotely, "present", str(results), on_error="return").items():
        if isinstance(answer, BaseException):
            raise CandidError(
                f"The dask worker {worker} cannot use {ROOT} ({answer}); it must be there on all machines."
            )
        if not answer:
            raise CandidError(f"The dask worker {worker} does not see the results folder {results}; it must be shared.")


def present(folder: str) -> bool:
    """Asked on a worker: whether it sees the folder of the one who asks."""
    return Path(folder).is_dir()


def _plain(spec: RunSpec, place: Place) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both as plain values."""
    return spec.plain(), {key: str(v) if isinstance(v, Path) else v for key, v in asdict(place).items()}


_one_run = threading.Lock()  # of a dask worker with several threads: torch's generator belongs to the whole process


def execute_remotely(spec: dict[str, Any], place: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """One run on a dask worker. If another worker has it (a lost one that lives on), wait until that ends."""
    import torch

    wanted = RunSpec.from_plain(spec)
    here = Place(**place | {key: Path(place[key]) for key in ("results", "data")})
    device = "cuda" if torch.cuda.is_available() else "cpu"
    while True:
        with _one_run:
            outcome = execute(wanted, replace(here, device=device))
        if outcome.status != "claimed":
            return wanted.digest, asdict(outcome)
        time.sleep(0.5)


def _executor(device: str) -> ProcessPoolExecutor:
    from joblib.externals.loky import ProcessPoolExecutor
    from joblib.externals.loky.backend import get_context

    # loky replaces a worker whose memory has grown, between two runs; nothing is lost, so nobody needs to be told.
    warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given to the executor")
    # CUDA must be touched first in the worker, so GPU workers start fresh; forked ones share what is imported.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context = get_context("fork" if device == "cpu" else "loky")
        return ProcessPoolExecutor(max_workers=1, context=context, initializer=start_worker, initargs=(os.getpid(),))


def _shared_key(spec: RunSpec) -> str:
    """Runs with the same key share data, annotator and candidate labels."""
    from benchmark.store import canonical

    config = spec.config.to_json()
    return canonical([config[key] for key in ("dataset", "annotator", "backbone", "seed")])


def _death(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    if "Terminated" in type(error).__name__ or "Broken" in type(error).__name__:
        return "it was killed or crashed (out of memory, segmentation fault, or a signal)"
    return f"{type(error).__name__}: {text[0] if text else ''}"


def _mark_failed(results: Path, spec: RunSpec, reason: str) -> None:
    """Write down that a run was given up, unless another process has taken it over meanwhile."""
    found = find(results, spec)
    if found is None:
        return
    folder = found[0]
    try:
        if not folder.lock.acquire():
            return
        try:
            document = folder.read()
            if document is not None and document["status"] == "running":
                document |= {"status": "failed", "reason": reason}
                document["time"]["finished"] = now()
                folder.write(document)
        finally:
            folder.lock.release()
    except OSError as error:
        warn(f"{folder.document_path} could not be written: {sentence(error)}")


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
