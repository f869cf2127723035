"""Many runs on one machine: joblib hands them to the slots, and each slot has a worker process of its own.

joblib's own process pools fail as a whole when one of their workers is killed, so its threads are used: each talks to
one process, and a worker that dies takes nothing with it but its run's progress since the last checkpoint. This process
never computes; on a CPU workers are forked from it after it has imported torch, which makes a new one ready at once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from benchmark.device.environment import set_environment
from benchmark.errors import INTERRUPTED, TERMINATED, CandidError
from benchmark.run.backends.base import Backend, one_command, show_while
from benchmark.run.options import DEATHS_ALLOWED, Outcome, RunOptions
from benchmark.run.progress import Display, Progress
from benchmark.store import canonical

if TYPE_CHECKING:
    from benchmark.plan.spec import RunSpec

GRACE, GPU_GRACE = 7.0, 30.0  # seconds for workers to save after a signal; several GPUs may write to one slow disk
CLAIMED_PAUSE = 0.5  # seconds before a run that another process has is asked for again
KILLED = "it was killed or crashed (out of memory, segmentation fault, or a signal)"


class Stopped(CandidError):
    """Ctrl-C or SIGTERM."""

    def __init__(self, number: int) -> None:
        super().__init__(f"Stopped by {signal.Signals(number).name}; the same command goes on from here.")
        self.code = INTERRUPTED if number == signal.SIGINT else TERMINATED


class Local(Backend):
    """Worker processes on this machine."""

    name = "local"
    other_names = ("loky",)
    title = "worker processes here"

    def run(self, specs: Sequence[RunSpec], options: RunOptions, display: Display | None = None) -> Progress:
        progress = Progress(len(specs))
        if specs:
            if self.slots[0] == "cpu":
                import_before_forking()
            Command(self, one_command(options), progress).run(specs, display)
        return progress


BACKEND = Local


def import_before_forking() -> None:
    """What workers need, once for all of them."""
    import torch

    import benchmark.run.worker  # noqa: F401

    torch.compiler.reset()  # imports the compiler, as optimisers do at their first step, where it takes 0.7 s


class WorkerDied(Exception):
    """The process ended before its task did."""


class Worker:
    """The process of a slot; it is started when it is first needed, and again after a death."""

    _starting = threading.Lock()  # a process forked meanwhile would hold the other's pipe open

    def __init__(self, device: str) -> None:
        self.device = device
        # CUDA must be touched first in the worker, so GPU workers start fresh; forked ones share what is imported.
        self._context: Any = multiprocessing.get_context("fork" if device == "cpu" else "spawn")
        self._process: Any = None
        self._connection: Connection | None = None
        self._retired = False

    def do(self, task: str, spec: RunSpec, options: RunOptions) -> Any:
        """The answer of the function of that name in run/worker.py, or WorkerDied."""
        if self._process is None or not self._process.is_alive():
            self._start()
        connection = self._connection
        assert connection is not None
        try:
            connection.send((task, spec, replace(options, device=self.device)))
            wait([connection, self._process.sentinel])
            return connection.recv()
        except (EOFError, OSError):
            self.kill()
            raise WorkerDied from None

    def _start(self) -> None:
        with self._starting:
            if self._retired:
                raise WorkerDied
            if self.device != "cpu":
                set_environment()
            self._connection, theirs = self._context.Pipe()
            self._process = self._context.Process(target=serve, args=(theirs, os.getpid()))
            self._process.start()
            theirs.close()

    def ask_to_stop(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()

    def retire(self) -> None:
        """End it, and start no other."""
        with self._starting:
            self._retired = True
        self.kill()


def serve(connection: Connection, parent: int) -> None:
    """What a worker process does: one task after another."""
    from benchmark.run import worker

    worker.start_worker(parent)
    with suppress(EOFError):
        while True:
            task, spec, options = connection.recv()
            connection.send(getattr(worker, task)(spec, options))


class Command:
    """The runs of one command, on the slots of this machine."""

    def __init__(self, backend: Local, options: RunOptions, progress: Progress) -> None:
        self.options, self.progress, self.wait = options, progress, backend.wait
        self.workers = [Worker(device) for device in backend.slots]
        self.idle: SimpleQueue[int] = SimpleQueue()  # slots
        for slot in range(len(self.workers)):
            self.idle.put(slot)
        self.grace = options.grace or (GRACE if backend.slots[0] == "cpu" else GPU_GRACE)
        self.over = False  # nothing is started any more
        self.signal = 0

    def run(self, specs: Sequence[RunSpec], display: Display | None) -> None:
        def show() -> None:
            if display is not None:
                display(self.progress)
            if self.signal:
                self._stop_workers()
                raise Stopped(self.signal)

        previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            show_while(lambda: self._work(specs), show)
        finally:
            self.over = True
            for number, handler in previous.items():
                signal.signal(number, handler)
            for worker in self.workers:
                worker.retire()

    def _on_signal(self, number: int, _: object) -> None:
        self.over, self.signal = True, self.signal or number

    def _stop_workers(self) -> None:
        """Runs are saved; candidate labels in the making are not worth waiting for."""
        for worker in self.workers:
            worker.ask_to_stop()
        deadline = time.monotonic() + self.grace
        while self.progress.running and time.monotonic() < deadline:
            time.sleep(0.05)

    def _work(self, specs: Sequence[RunSpec]) -> None:
        unusable = self._prepare(specs)
        queue: deque[tuple[RunSpec, bool]] = deque()  # the flag: another process had it
        said: set[tuple[str, str]] = set()
        for spec in specs:
            reason = unusable.get(_shared_key(spec))
            if reason:  # shown once, not for every run on the data set
                again = (spec.dataset, reason) in said
                said.add((spec.dataset, reason))
                self.progress.outcomes.append((spec, Outcome("failed", reason, skipped=again)))
            else:
                queue.append((spec, False))

        def waiting() -> Iterator[tuple[RunSpec, bool]]:
            while queue and not self.over:
                yield queue.popleft()

        def do(spec: RunSpec, was_claimed: bool) -> None:
            if was_claimed and self.wait:
                time.sleep(CLAIMED_PAUSE)
            with self._slot(self.progress.running, spec) as worker:
                outcome = self._one(worker, spec)
            if outcome.status == "claimed" and (self.wait or not was_claimed):
                queue.append((spec, True))  # behind all others: it may be done, or dropped, by then
            elif outcome.status == "claimed":
                self.progress.outcomes.append((spec, Outcome("claimed", "another process is doing it")))
            else:
                self.progress.outcomes.append((spec, outcome))
            self.progress.elsewhere = sum(claimed for _, claimed in list(queue))

        while queue and not self.over:  # again if a run came back claimed when all slots but its own had ended
            self._in_parallel(do, waiting())

    def _prepare(self, specs: Sequence[RunSpec]) -> dict[str, str]:
        """Annotators and candidate sets first, each once, so that no slot waits for another's; why some cannot be had.

        Seeds of one data set share an annotator: one slot trains it, and then only draws.
        """
        groups: dict[str, dict[str, RunSpec]] = {}
        for spec in specs:
            groups.setdefault(spec.dataset, {}).setdefault(_shared_key(spec), spec)
        reasons: dict[str, str] = {}

        def do(name: str, group: dict[str, RunSpec]) -> None:
            with self._slot(self.progress.preparing, name) as worker:
                for key, spec in group.items():
                    if self.over:
                        return
                    try:
                        reasons[key] = worker.do("prepare", spec, self.options)
                    except WorkerDied:
                        reasons[key] = f"preparing {name} failed: {KILLED}"

        self._in_parallel(do, iter(groups.items()))
        return reasons

    def _in_parallel(self, function: Callable[..., None], arguments: Iterator[tuple[Any, ...]]) -> None:
        """One call per slot at a time; the next arguments are asked for when a slot is free."""
        import joblib

        parallel = joblib.Parallel(len(self.workers), backend="threading", pre_dispatch="n_jobs", batch_size=1)
        parallel(joblib.delayed(function)(*each) for each in arguments)

    @contextmanager
    def _slot(self, shown: dict[int, Any], what: Any) -> Iterator[Worker]:
        slot = self.idle.get()
        shown[slot] = what
        try:
            yield self.workers[slot]
        finally:
            del shown[slot]
            self.idle.put(slot)

    def _one(self, worker: Worker, spec: RunSpec) -> Outcome:
        """One run. After a death of its worker it goes on from the last checkpoint; `execute` gives it up in time."""
        started = time.time()
        for _ in range(DEATHS_ALLOWED + 1):
            if self.over:
                break
            with suppress(WorkerDied):
                return worker.do("execute", spec, self.options)
        if self.over:
            return Outcome("interrupted", "stopped")
        reason = f"its worker process died {DEATHS_ALLOWED + 1} times: {KILLED}"  # before `execute` came to the run
        return Outcome("failed", reason, seconds=time.time() - started)


def _shared_key(spec: RunSpec) -> str:
    """Runs with the same key share data, annotator and candidate labels."""
    config = spec.config.to_json()
    return canonical([config[key] for key in ("dataset", "annotator", "backbone", "seed")])
