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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.errors import INTERRUPTED, TERMINATED, CandidError
from benchmark.runner.backends.base import Backend, show_while
from benchmark.runner.backends.schedule import Schedule, Sets, Waiting, say_doubts
from benchmark.runner.options import DEATHS_ALLOWED, Outcome, RunOptions
from benchmark.runner.progress import Display, Progress

if TYPE_CHECKING:
    from benchmark.config.spec import RunSpec

GRACE, GPU_GRACE = 7.0, 30.0  # seconds for workers to save after a signal; several GPUs may write to one slow disk
KILLED = "it was killed or crashed (out of memory, segmentation fault, or a signal)"


class Stopped(CandidError):
    """Ctrl-C or SIGTERM."""

    def __init__(self, number: int) -> None:
        super().__init__(f"Stopped by {signal.Signals(number).name}; the same command goes on from here.")
        self.code = INTERRUPTED if number == signal.SIGINT else TERMINATED


class Local(Backend):
    """Worker processes on this machine."""

    name = "local"
    title = "worker processes here"

    def run(self, specs: Sequence[RunSpec], options: RunOptions, display: Display | None = None) -> Progress:
        return self._carry_out(Schedule(specs, len(self.slots), wait=self.wait), len(specs), options, display)

    def prepare(self, specs: Sequence[RunSpec], options: RunOptions, display: Display | None = None) -> Progress:
        return self._carry_out(Schedule(specs, len(self.slots), runs=False), 0, options, display)

    def _carry_out(self, schedule: Schedule, runs: int, options: RunOptions, display: Display | None) -> Progress:
        progress = Progress(runs)
        if schedule.sets:
            if self.slots[0] == "cpu":
                import_before_forking()
            Command(self, schedule, options, progress).run(display)
        return progress


BACKEND = Local


def import_before_forking() -> None:
    """What workers need, once for all of them."""
    import torch

    import benchmark.runner.worker  # noqa: F401

    torch.compiler.reset()  # imports the compiler, as optimisers do at their first step, where it takes 0.7 s


def start_method(device: str) -> str:
    """Return "fork" if a forked worker can train on this device, else "spawn", which takes seconds longer.

    CUDA must be touched first in the worker, and once a process has used a GPU no fork of it can train.
    """
    import torch

    import benchmark.trainer.device

    used = torch.cuda.is_initialized() or benchmark.trainer.device.pretended
    return "fork" if device == "cpu" and not used else "spawn"


class WorkerDied(Exception):
    """The process ended before its task did."""


class Worker:
    """The process of a slot; it is started when it is first needed, and again after a death."""

    _starting = threading.Lock()  # a process forked meanwhile would hold the other's pipe open

    def __init__(self, device: str) -> None:
        self.device = device
        self._context: Any = multiprocessing.get_context(start_method(device))
        self._process: Any = None
        self._connection: Connection | None = None
        self._retired = False

    def do(self, task: str, spec: RunSpec | None, options: RunOptions) -> Any:
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
                from benchmark.trainer.device import set_environment

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
    from benchmark.runner import worker

    worker.start_worker(parent)
    with suppress(EOFError):
        while True:
            task, spec, options = connection.recv()
            connection.send(getattr(worker, task)(spec, options))


class Command:
    """The runs of one command, on the slots of this machine."""

    def __init__(self, backend: Local, schedule: Schedule, options: RunOptions, progress: Progress) -> None:
        self.schedule, self.options, self.progress = schedule, options, progress
        self.workers = [Worker(device) for device in backend.slots]
        self.grace = options.grace or (GRACE if backend.slots[0] == "cpu" else GPU_GRACE)
        self.signal = 0

    def run(self, display: Display | None) -> None:
        def show() -> None:
            if display is not None:
                display(self.progress)
            if self.signal:
                self._stop_workers()
                raise Stopped(self.signal)

        previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            show_while(self._work, show)
        finally:
            self.schedule.stop()
            for number, handler in previous.items():
                signal.signal(number, handler)
            for worker in self.workers:
                worker.retire()

    def _on_signal(self, number: int, _: object) -> None:
        self.schedule.stop()
        self.signal = self.signal or number

    def _stop_workers(self) -> None:
        """Runs and annotators are saved."""
        for worker in self.workers:
            worker.ask_to_stop()
        deadline = time.monotonic() + self.grace
        while (self.progress.running or self.progress.preparing) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _work(self) -> None:
        import joblib

        slots = range(len(self.workers))
        joblib.Parallel(len(slots), backend="threading")(joblib.delayed(self._serve)(slot) for slot in slots)

    def _serve(self, slot: int) -> None:
        """What one slot does until nothing is left."""
        while (work := self.schedule.take()) is not None:
            try:
                if isinstance(work, Sets):
                    self._prepare(slot, work)
                else:
                    self._run(slot, work)
            finally:
                self.schedule.leave(work)

    def _prepare(self, slot: int, sets: Sets) -> None:
        """An annotator and the candidate sets drawn with it, one after the other."""
        self.progress.preparing[slot] = sets.name
        try:
            for key, spec in sets.specs.items():
                outcome = self._try("prepare", slot, spec)
                if outcome.status == "claimed":
                    sets.lock = Path(outcome.reason)
                    return
                if outcome.status == "interrupted":
                    return
                failed = outcome.reason if outcome.status == "failed" else ""
                self._lose(self.schedule.prepared(key, failed), failed)
                say_doubts(sets, outcome)
        finally:
            del self.progress.preparing[slot]

    def _lose(self, specs: Sequence[RunSpec], reason: str) -> None:
        """Runs whose candidate set cannot be had; the reason is shown once, not for every run on the data set."""
        for spec in specs:
            again = any(s.dataset == spec.dataset and o.reason == reason for s, o in self.progress.outcomes)
            self.progress.outcomes.append((spec, Outcome("failed", reason, skipped=again)))

    def _run(self, slot: int, run: Waiting) -> None:
        self.progress.running[slot] = run.spec
        try:
            outcome = self._try("execute", slot, run.spec)
        finally:
            del self.progress.running[slot]
        if outcome.status != "claimed":
            self.progress.outcomes.append((run.spec, outcome))
        elif not self.schedule.put_back(run):
            self.progress.outcomes.append((run.spec, Outcome("claimed", "another process is doing it")))
        self.progress.elsewhere = self.schedule.elsewhere()

    def _do(self, task: str, worker: Worker, spec: RunSpec) -> Outcome:
        """Do one task. What executed a user's file ends its process: that code may have changed anything in it."""
        try:
            return worker.do(task, spec, self.options)
        finally:
            if spec.runs_user_code:
                worker.kill()

    def _try(self, task: str, slot: int, spec: RunSpec) -> Outcome:
        """One task. After a death of its worker it goes on from the last checkpoint; in the end it is given up."""
        started = time.time()
        for _ in range(DEATHS_ALLOWED + 1):
            if self.schedule.over:
                break
            with suppress(WorkerDied):
                return self._do(task, self.workers[slot], spec)
        if self.schedule.over:
            return Outcome("interrupted", "stopped")
        who = "its worker process" if task == "execute" else f"the worker process that prepared {spec.dataset}"
        reason = f"{who} died {DEATHS_ALLOWED + 1} times: {KILLED}"  # before `execute` came to the run
        return Outcome("failed", reason, seconds=time.time() - started)
