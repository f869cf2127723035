"""Many runs at once: sessions over slots, and the slots of this machine, each with a worker process of its own.

joblib's own process pools fail as a whole when one of their workers is killed, so its threads are used: each talks to
one process, and a worker that dies costs its run the progress since the last checkpoint. This process never computes; on
a CPU workers are forked from it after it has imported torch, which makes a new one ready at once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from multiprocessing import connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.errors import INTERRUPTED, TERMINATED, CandidError, warn
from benchmark.runner.options import DEATHS_ALLOWED, Outcome, RunOptions, task_title
from benchmark.runner.progress import Display, Progress, without_bars
from benchmark.runner.schedule import CandidateJob, PendingRun, Schedule

if TYPE_CHECKING:
    from benchmark.config.spec import RunSpec

GRACE, GPU_GRACE = 7.0, 30.0  # seconds for workers to save after a signal; several GPUs may write to one slow disk
SHOW_SECONDS = 0.1  # between two calls of a display


class WorkerDied(Exception):
    """The process of a worker ended before its task did; the message is its exit code or signal."""


class Stopped(CandidError):
    """Ctrl-C or SIGTERM."""

    def __init__(self, number: int) -> None:
        super().__init__(f"Stopped by {signal.Signals(number).name}; rerun the command to resume.")
        self.code = INTERRUPTED if number == signal.SIGINT else TERMINATED


class Slot(ABC):
    """Does one task at a time."""

    @abstractmethod
    def do(self, task: str, spec: RunSpec, options: RunOptions, started: Callable[[], None]) -> Outcome:
        """Call the function of that name in runner/worker.py; WorkerDied if its process ends before."""

    def ask_to_stop(self) -> None:  # noqa: B027
        """Ask the worker to save and to end its task."""

    def retire(self) -> None:  # noqa: B027
        """End the worker, and start no other."""


def carry_out(
    specs: Sequence[RunSpec],
    slots: Sequence[Slot],
    options: RunOptions,
    display: Display | None = None,
    runs: bool = True,
    wait: bool = True,
) -> Progress:
    """Do all runs, in this order, until each is done, failed, or another process's; or only draw their candidate sets.

    With `wait`, runs that another process has are waited for.
    """
    progress = Progress(len(specs) if runs else 0)
    if specs:
        Session(Schedule(specs, len(slots), runs, wait), slots, options, progress).run(display)
    return progress


class Session:
    """The runs of one command on its slots: candidate sets, deaths of workers, signals."""

    def __init__(self, schedule: Schedule, slots: Sequence[Slot], options: RunOptions, progress: Progress) -> None:
        self.schedule, self.slots, self.options, self.progress = schedule, slots, options, progress
        usual = GRACE if options.device == "cpu" else GPU_GRACE
        self.grace = usual if options.grace is None else options.grace
        self.signal = 0

    def run(self, display: Display | None) -> None:
        """Work in threads and show the progress in this one until nothing is left."""
        import joblib

        previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        thread, slots = ThreadPoolExecutor(1), range(len(self.slots))
        serve = joblib.Parallel(len(slots), backend="threading")
        work = thread.submit(serve, [joblib.delayed(self._serve)(slot) for slot in slots])
        try:
            while wait([work], SHOW_SECONDS).not_done and not self.signal:
                if display is not None:
                    display(self.progress)
            if self.signal:
                self._stop_workers()
                raise Stopped(self.signal)
            work.result()
        finally:
            self.schedule.stop()
            for number, handler in previous.items():
                signal.signal(number, handler)
            for slot in self.slots:
                slot.retire()
            thread.shutdown(wait=False)
            self.progress.over = True
            if display is not None:
                display(self.progress)

    def _on_signal(self, number: int, _: object) -> None:
        self.schedule.stop()
        self.signal = self.signal or number

    def _stop_workers(self) -> None:
        """Let the workers save runs and annotators."""
        for slot in self.slots:
            slot.ask_to_stop()
        deadline = time.monotonic() + self.grace
        while (self.progress.running or self.progress.preparing) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _serve(self, slot: int) -> None:
        """Do one thing after the other on a slot until nothing is left."""
        while (work := self.schedule.take()) is not None:
            try:
                if isinstance(work, CandidateJob):
                    self._prepare(slot, work)
                else:
                    self._run(slot, work)
            finally:
                self.schedule.leave(work)

    def _prepare(self, slot: int, job: CandidateJob) -> None:
        """Train an annotator and draw its candidate sets, one after the other."""
        self.progress.preparing[slot] = job.dataset
        try:
            for key, spec in job.specs.items():
                outcome = self._try("prepare", slot, spec)
                if outcome.status == "claimed":
                    job.lock = Path(outcome.reason)
                    return
                if outcome.status == "interrupted":
                    return
                self._lose(self.schedule.prepared(key, outcome.status == "done"), outcome.reason)
                if outcome.status == "done" and outcome.reason and not job.warned:
                    job.warned = True  # once per annotator
                    say(f"{job.dataset}: {outcome.reason}")
        finally:
            del self.progress.preparing[slot]

    def _lose(self, specs: Sequence[RunSpec], reason: str) -> None:
        """Fail runs that have no candidate set; the reason is shown once, not for every run on the dataset."""
        for spec in specs:
            again = any(s.dataset == spec.dataset and o.reason == reason for s, o in self.progress.outcomes)
            self.progress.outcomes.append((spec, Outcome("failed", reason, skipped=again)))

    def _run(self, slot: int, run: PendingRun) -> None:
        outcome = self._try("execute", slot, run.spec)
        if outcome.status != "claimed":
            self.progress.outcomes.append((run.spec, outcome))
        elif not self.schedule.put_back(run):
            self.progress.outcomes.append((run.spec, Outcome("claimed", "another process is doing it")))
        self.progress.elsewhere = self.schedule.elsewhere()

    def _try(self, task: str, slot: int, spec: RunSpec) -> Outcome:
        """Do one task. After a death of its worker it resumes from the last checkpoint; then it is given up."""
        begin = time.time()
        run = task_title(task, spec)
        death = ""

        def started() -> None:
            if task == "execute":
                self.progress.running[slot] = spec

        for attempt in range(DEATHS_ALLOWED + 1):
            if self.schedule.over:
                return Outcome("interrupted", "stopped")
            try:
                return self.slots[slot].do(task, spec, self.options, started)
            except WorkerDied as error:
                death = str(error)
                if attempt + 1 < DEATHS_ALLOWED and not self.schedule.over:
                    say(f"worker process of {run} died ({death}); resuming from its last checkpoint")
            finally:
                self.progress.running.pop(slot, None)
        # Its worker died before `execute` could record it.
        reason = f"worker process of {run} died {DEATHS_ALLOWED + 1} times ({death})"
        return Outcome("failed", reason, seconds=time.time() - begin)


def say(message: str) -> None:
    with without_bars():
        warn(message)


# This machine ---------------------------------------------------------------------------------------------------------


def local_slots(devices: Sequence[str], fork: bool = True) -> list[Slot]:
    """Return a slot per device; workers on a CPU are forked unless this process has used torch."""
    if devices[0] == "cpu" and fork:
        import torch

        import benchmark.runner.worker  # noqa: F401

        torch.compiler.reset()  # imports the compiler, as optimisers do at their first step, where it takes 0.7 s
    return [WorkerProcess(device, start_method(device, fork)) for device in devices]


def start_method(device: str, fork: bool = True) -> str:
    """Return "fork" if a forked worker can train on this device, else "spawn", which takes seconds longer.

    CUDA must be touched first in the worker, and once a process has used a GPU no fork of it can train.
    """
    if not fork or device != "cpu":
        return "spawn"
    import torch

    import benchmark.trainer.device

    return "spawn" if torch.cuda.is_initialized() or benchmark.trainer.device.pretended else "fork"


class WorkerProcess(Slot):
    """A slot whose process is started when it is first needed, and again after it has died or run a user's file."""

    _starting = threading.Lock()  # a process forked meanwhile would hold the other's pipe open

    def __init__(self, device: str, start: str) -> None:
        self.device = device
        self._context: Any = multiprocessing.get_context(start)
        self._process: Any = None
        self._connection: Any = None
        self._retired = False

    def do(self, task: str, spec: RunSpec, options: RunOptions, started: Callable[[], None]) -> Outcome:
        started()
        if self._process is None or not self._process.is_alive():
            self._start()
        try:
            self._connection.send((task, spec, replace(options, device=self.device)))
            connection.wait([self._connection, self._process.sentinel])
            outcome: Outcome = self._connection.recv()
            return outcome
        except (EOFError, OSError):
            self.kill()
            raise WorkerDied(ending(self._process.exitcode)) from None
        finally:
            if spec.runs_user_code:  # which may have changed anything in its process
                self.kill()

    def _start(self) -> None:
        with self._starting:
            if self._retired:
                raise WorkerDied("stopped")
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
        with self._starting:
            self._retired = True
        self.kill()


def ending(code: int) -> str:
    """Say how a process ended, from its exit code."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def serve(tasks: Any, parent: int) -> None:
    """Do one task after another in a worker process."""
    from benchmark.runner import worker

    worker.start_worker(parent)
    with suppress(EOFError):
        while True:
            task, spec, options = tasks.recv()
            tasks.send(getattr(worker, task)(spec, options))
