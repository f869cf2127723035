"""Many runs on several machines: each is a future of a dask cluster, and a lost worker's runs go to another."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.errors import CandidError, UsageError, warn
from benchmark.files import ROOT, is_locked
from benchmark.runner import devices
from benchmark.runner.backends.base import Backend, show_while
from benchmark.runner.backends.schedule import Sets, grouped, say_doubts, shared_key
from benchmark.runner.options import DEATHS_ALLOWED, Outcome, RunOptions
from benchmark.runner.progress import Display, Progress
from benchmark.store import StoredRun, find

if TYPE_CHECKING:
    from distributed import Client

    from benchmark.config.spec import RunSpec

CONNECT_SECONDS = 10  # for the scheduler to answer
WORKERS_SECONDS = 60  # for the first worker to come
FOLLOW_SECONDS = 1.0  # between two looks at which runs are being trained


class Dask(Backend):
    """The workers of a dask cluster: every worker is a slot and uses its own device."""

    name = "dask"
    title = "a dask cluster"
    needs_scheduler = True

    def run(self, specs: Sequence[RunSpec], options: RunOptions, display: Display | None = None) -> Progress:
        return self._carry_out(specs, options, display, runs=True)

    def prepare(self, specs: Sequence[RunSpec], options: RunOptions, display: Display | None = None) -> Progress:
        return self._carry_out(specs, options, display, runs=False)

    def _carry_out(
        self, specs: Sequence[RunSpec], options: RunOptions, display: Display | None, runs: bool
    ) -> Progress:
        progress = Progress(len(specs) if runs else 0)
        absolute = replace(options, results=options.results.resolve(), data=options.data.resolve(), device=self.device)
        with self._connect() as client:
            check_workers(client, self.scheduler, absolute.results)
            work = Work(client, self.scheduler, absolute, progress)
            work.waiting = {spec.digest: spec for spec in specs} if runs else {}
            follow = following(work.waiting, options.results, progress, display)
            show_while(lambda: work.carry_out(specs), follow)
            progress.running = {}
            if display is not None:
                display(progress)
        return progress

    def _connect(self) -> Client:
        try:
            from distributed import Client
        except ImportError:
            raise CandidError("--backend dask needs the extra `cluster`: pip install dask distributed.") from None
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # a lost scheduler is one sentence of ours
        try:
            return Client(self.scheduler, timeout=CONNECT_SECONDS)
        except (OSError, TimeoutError, ValueError) as error:
            raise CandidError(f"No dask scheduler answers at {self.scheduler} ({type(error).__name__}).") from None


class Work:
    """The runs of one command on a cluster: first the candidate sets, side by side, and after each the runs on it."""

    def __init__(self, client: Client, scheduler: str, options: RunOptions, progress: Progress) -> None:
        self.client, self.scheduler, self.options, self.progress = client, scheduler, options, progress
        self.waiting: dict[str, RunSpec] = {}  # runs by digest
        self.tasks: dict[Any, RunSpec | Sets] = {}  # by future
        self.given_up: Counter[str] = Counter()
        self.call = remote_call(str(ROOT))

    def carry_out(self, specs: Sequence[RunSpec]) -> None:
        import asyncio

        from distributed import KilledWorker, as_completed

        unfinished = as_completed([self._prepare(sets) for sets in grouped(specs)])
        for future in unfinished:
            task = self.tasks.pop(future)
            try:
                answer = future.result()
            except KilledWorker as error:
                for again in self._died(task, error.last_worker.address):
                    unfinished.add(again)
                continue
            except (asyncio.CancelledError, CancelledError):
                raise CandidError(
                    f"The connection to the dask scheduler at {self.scheduler} was lost; when it is there again, "
                    f"the same command goes on from here."
                ) from None
            if isinstance(task, Sets):
                for more in self._prepared(task, {key: Outcome(**found) for key, found in answer.items()}):
                    unfinished.add(more)
            else:
                self._end(task, Outcome(**answer))

    def _submit(self, task: RunSpec | Sets, *values: Any, priority: int = 0) -> Any:
        future = self.client.submit(self.call, *values, pure=False, priority=priority)
        self.tasks[future] = task
        return future

    def _prepare(self, sets: Sets, wait: bool = False) -> Any:
        """Sets that another command is making come behind all that can be done meanwhile, and then wait."""
        self.progress.preparing[id(sets)] = sets.name
        specs = {key: spec.plain() for key, spec in sets.specs.items()}
        options = as_plain(self.options)
        return self._submit(sets, "prepare_here", specs, options, wait, priority=-1 if wait else 0)

    def _run(self, spec: RunSpec) -> Any:
        return self._submit(spec, "execute_here", spec.plain(), as_plain(self.options))

    def _prepared(self, sets: Sets, found: dict[str, Outcome]) -> list[Any]:
        """What comes next: the runs whose set is there, and sets that are asked for again."""
        del self.progress.preparing[id(sets)]
        for key, outcome in found.items():
            if outcome.status != "claimed":
                del sets.specs[key]
            if outcome.status == "failed":
                self._lose(key, outcome.reason)
            say_doubts(sets, outcome)
        ready = {key for key, outcome in found.items() if outcome.status == "done"}
        runs = [self._run(spec) for spec in list(self.waiting.values()) if shared_key(spec) in ready]
        return runs + ([self._prepare(sets, wait=True)] if sets.specs else [])

    def _lose(self, key: str, reason: str) -> None:
        """Runs whose candidate set cannot be had; the reason is shown once."""
        lost = [spec for spec in self.waiting.values() if shared_key(spec) == key]
        for number, spec in enumerate(lost):
            self._end(spec, Outcome("failed", reason, skipped=number > 0))

    def _died(self, task: RunSpec | Sets, worker: str) -> list[Any]:
        """Dask blames everything that a dying worker had, not only what killed it: once more."""
        name, key = (task.name, task.name) if isinstance(task, Sets) else (task.label, task.digest)
        self.given_up[key] += 1
        if self.given_up[key] < DEATHS_ALLOWED:
            warn(f"dask workers died repeatedly ({worker}); {name} is tried again.")
            return [self._prepare(task) if isinstance(task, Sets) else self._run(task)]
        if isinstance(task, Sets):
            reason = f"dask workers kept dying on the candidate labels of {name}"
            return self._prepared(task, {key: Outcome("failed", reason) for key in task.specs})
        self._end(task, Outcome("failed", "dask workers kept dying on it"))
        return []

    def _end(self, spec: RunSpec, outcome: Outcome) -> None:
        del self.waiting[spec.digest]
        self.progress.outcomes.append((spec, outcome))


BACKEND = Dask


def following(
    waiting: dict[str, RunSpec], results: Path, progress: Progress, display: Display | None
) -> Callable[[], None]:
    """A function that shows runs on other machines: whose lock is held is being trained."""
    folders: dict[str, StoredRun] = {}
    last = 0.0

    def show() -> None:
        nonlocal last
        if display is None or time.monotonic() - last < FOLLOW_SECONDS:
            return
        last = time.monotonic()
        for digest, spec in list(waiting.items()):
            if digest not in folders and (found := find(results, spec)) is not None:
                folders[digest] = found
        training = [s for d, s in list(waiting.items()) if d in folders and is_locked(folders[d].lock.path)]
        progress.running = dict(enumerate(training))
        display(progress)

    return show


def check_workers(client: Client, scheduler: str, results: Path) -> None:
    """Before anything is sent: that there is a worker, and that each finds this program and the results folder."""
    try:
        client.wait_for_workers(1, timeout=WORKERS_SECONDS)
    except TimeoutError:
        raise CandidError(f"No dask worker came to {scheduler} within {WORKERS_SECONDS} s; start some first.") from None
    answers = client.run(remote_call(str(ROOT)), "is_folder_here", str(results), on_error="return")
    for worker, answer in answers.items():
        if isinstance(answer, BaseException):
            raise CandidError(
                f"The dask worker {worker} cannot use {ROOT} ({answer}); it must be there on all machines."
            )
        if not answer:
            raise CandidError(f"The dask worker {worker} does not see the results folder {results}; it must be shared.")


# on dask workers ------------------------------------------------------------------------------------------------------


def remote_call(root: str) -> Callable[..., Any]:
    """A function for dask that calls another of this module by name, with plain values.

    `dask worker` and `dask scheduler` do not look for modules in the folder in which they were started, so nothing that
    is sent may refer to this program. An inner function is sent as its code, and it finds the checkout by its path.
    """

    def call(name: str, *values: Any) -> Any:
        import sys

        if root not in sys.path:
            sys.path.insert(0, root)
        from benchmark.runner.backends import dask

        return getattr(dask, name)(*values)

    return call


def as_plain(options: RunOptions) -> dict[str, Any]:
    """As plain values."""
    return {key: str(v) if isinstance(v, Path) else v for key, v in asdict(options).items()}


def is_folder_here(folder: str) -> bool:
    return Path(folder).is_dir()


_one_run = threading.Lock()  # of a dask worker with several threads: torch's generator belongs to the whole process


def options_here(options: dict[str, Any]) -> RunOptions:
    """On this worker's device; UsageError if it has none as was asked for."""
    paths = {key: Path(options[key]) for key in ("results", "data")}
    return RunOptions(**options | paths | {"device": devices.claim(devices.resolve(options["device"]))})


def prepare_here(specs: dict[str, dict[str, Any]], options: dict[str, Any], wait: bool) -> dict[str, dict[str, Any]]:
    """The candidate sets of one annotator on this worker; if another process is at it, `claimed`, or `wait` for it."""
    from benchmark.config.spec import RunSpec
    from benchmark.runner.worker import prepare

    outcomes: dict[str, dict[str, Any]] = {}
    for key, spec in specs.items():
        try:
            with _one_run:
                outcome = prepare(RunSpec.from_plain(spec), options_here(options), wait)
        except UsageError as error:
            outcome = Outcome("failed", str(error))
        outcomes[key] = asdict(outcome)
        if outcome.status == "claimed":
            break
    return outcomes


def execute_here(spec: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """One run on this worker. If another has it (a lost one that lives on), wait until that ends."""
    from benchmark.config.spec import RunSpec
    from benchmark.runner.worker import execute

    try:
        here = options_here(options)
    except UsageError as error:
        return asdict(Outcome("failed", str(error)))
    whole = RunSpec.from_plain(spec)
    while True:
        with _one_run:
            outcome = in_own_process(spec, as_plain(here)) if whole.runs_user_code else execute(whole, here)
        if outcome.status != "claimed":
            return asdict(outcome)
        time.sleep(0.5)


def in_own_process(spec: dict[str, Any], options: dict[str, Any]) -> Outcome:
    """Do a run that executes a user's file in a process of its own: that code may change anything in its process.

    After a death of that process the run resumes from its last checkpoint, as on this machine's own workers.
    """
    call = [sys.executable, "-c", "from benchmark.runner.backends.dask import serve_one; serve_one()"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _ in range(DEATHS_ALLOWED + 1):
        done = subprocess.run(
            call, input=json.dumps([spec, options]), text=True, stdout=subprocess.PIPE, env=environment
        )
        try:
            return Outcome(**json.loads(done.stdout.splitlines()[-1]))
        except (IndexError, ValueError, TypeError):
            warn(f"the process of a plug-in's run ended with code {done.returncode}")
    return Outcome("failed", f"its process died {DEATHS_ALLOWED + 1} times (out of memory, crash, or a signal)")


def serve_one() -> None:
    """Do the run that standard input describes and print its outcome."""
    from benchmark.config.spec import RunSpec
    from benchmark.runner.worker import execute, start_worker

    start_worker(os.getppid())
    spec, options = json.load(sys.stdin)
    paths = {key: Path(options[key]) for key in ("results", "data")}
    print(json.dumps(asdict(execute(RunSpec.from_plain(spec), RunOptions(**options | paths)))))
