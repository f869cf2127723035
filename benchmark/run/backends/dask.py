"""Many runs on several machines: each is a future of a dask cluster, and a lost worker's runs go to another."""

from __future__ import annotations

import logging
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
from benchmark.run import devices
from benchmark.run.backends.base import Backend, one_command, show_while
from benchmark.run.options import DEATHS_ALLOWED, Outcome, RunOptions
from benchmark.run.progress import Display, Progress
from benchmark.store import RunFolder, find

if TYPE_CHECKING:
    from distributed import Client

    from benchmark.plan.spec import RunSpec

WORKERS_SECONDS = 60  # for the first worker to come
FOLLOW_SECONDS = 1.0  # between two looks at which runs are being trained


class Dask(Backend):
    """The workers of a dask cluster: every worker is a slot and uses its own device."""

    name = "dask"
    title = "a dask cluster"
    needs_scheduler = True

    def run(self, specs: Sequence[RunSpec], options: RunOptions, display: Display | None = None) -> Progress:
        progress = Progress(len(specs))
        absolute = replace(options, results=options.results.resolve(), data=options.data.resolve(), device=self.device)
        with self._connect() as client:
            check_workers(client, self.scheduler, absolute.results)
            waiting = {spec.digest: spec for spec in specs}
            follow = following(waiting, options.results, progress, display)
            show_while(lambda: self._work(client, waiting, one_command(absolute), progress), follow)
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
            return Client(self.scheduler, timeout="10s")
        except (OSError, TimeoutError, ValueError) as error:
            raise CandidError(f"No dask scheduler answers at {self.scheduler} ({type(error).__name__}).") from None

    def _work(self, client: Client, waiting: dict[str, RunSpec], options: RunOptions, progress: Progress) -> None:
        import asyncio

        from distributed import KilledWorker, as_completed

        call = remote_call(str(ROOT))

        def submit(spec: RunSpec) -> Any:
            return client.submit(call, "execute_here", *as_plain(spec, options), pure=False)

        specs = {submit(spec): spec for spec in list(waiting.values())}  # dask starts them in this order
        given_up: Counter[str] = Counter()
        unfinished = as_completed(list(specs))
        for future in unfinished:
            spec = specs.pop(future)
            try:
                outcome = Outcome(**future.result())
            except KilledWorker as error:
                # Dask blames every run that a dying worker had, not only the one that killed it: once more.
                given_up[spec.digest] += 1
                if given_up[spec.digest] < DEATHS_ALLOWED:
                    warn(f"dask workers died repeatedly ({error.last_worker.address}); {spec.label} is tried again.")
                    again = submit(spec)
                    specs[again] = spec
                    unfinished.add(again)
                    continue
                outcome = Outcome("failed", "dask workers kept dying on it")
            except (asyncio.CancelledError, CancelledError):
                raise CandidError(
                    f"The connection to the dask scheduler at {self.scheduler} was lost; when it is there again, "
                    f"the same command goes on from here."
                ) from None
            del waiting[spec.digest]
            progress.outcomes.append((spec, outcome))


BACKEND = Dask


def following(
    waiting: dict[str, RunSpec], results: Path, progress: Progress, display: Display | None
) -> Callable[[], None]:
    """A function that shows runs on other machines: whose lock is held is being trained."""
    folders: dict[str, RunFolder] = {}
    last = 0.0

    def show() -> None:
        nonlocal last
        if display is None or time.monotonic() - last < FOLLOW_SECONDS:
            return
        last = time.monotonic()
        for digest, spec in list(waiting.items()):
            if digest not in folders and (found := find(results, spec)) is not None:
                folders[digest] = found[0]
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
        from benchmark.run.backends import dask

        return getattr(dask, name)(*values)

    return call


def as_plain(spec: RunSpec, options: RunOptions) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both as plain values."""
    return spec.plain(), {key: str(v) if isinstance(v, Path) else v for key, v in asdict(options).items()}


def is_folder_here(folder: str) -> bool:
    return Path(folder).is_dir()


_one_run = threading.Lock()  # of a dask worker with several threads: torch's generator belongs to the whole process


def execute_here(spec: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """One run on this worker. If another has it (a lost one that lives on), wait until that ends."""
    from benchmark.plan.spec import RunSpec
    from benchmark.run.worker import execute

    try:
        device = devices.claim(devices.resolve(options["device"]))
    except UsageError as error:
        return asdict(Outcome("failed", str(error)))
    paths = {key: Path(options[key]) for key in ("results", "data")}
    here = RunOptions(**options | paths | {"device": device})
    while True:
        with _one_run:
            outcome = execute(RunSpec.from_plain(spec), here)
        if outcome.status != "claimed":
            return asdict(outcome)
        time.sleep(0.5)
