"""Many runs on several machines: each is a task of a dask cluster, and the runs of a lost worker go to another."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.errors import CandidError, UsageError
from benchmark.files import ROOT
from benchmark.runner import devices
from benchmark.runner.options import Outcome, RunOptions, task_title
from benchmark.runner.pool import Slot, WorkerDied, ending, say

if TYPE_CHECKING:
    from distributed import Client

    from benchmark.config.spec import RunSpec

CONNECT_SECONDS = 10  # for the scheduler to answer
WORKERS_SECONDS = 60  # for the first worker to come


@contextmanager
def cluster_slots(
    scheduler: str, runs: int, options: RunOptions, device: str
) -> Iterator[tuple[Sequence[Slot], RunOptions]]:
    """Connect; yield a slot for every run, as dask queues them and workers may still join, and the workers' options.

    Every worker does one run at a time, on its own device.
    """
    results, data = options.results.resolve(), options.data.resolve()
    with connect(scheduler) as client:
        check_workers(client, scheduler, results)
        cluster = Cluster(client)
        for topic in (options.command, "all"):
            client.subscribe_topic(topic, cluster.on_event)
        # No time to wait after a signal: runs that workers have begun go on there.
        options = replace(options, results=results, data=data, device=device, grace=0.0)
        yield [cluster] * min(runs, devices.MOST_JOBS), options


def connect(scheduler: str) -> Client:
    try:
        from distributed import Client

        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # a lost scheduler is one sentence
        return Client(scheduler, timeout=CONNECT_SECONDS)
    except ImportError:
        raise CandidError("--backend dask needs the extra `cluster`: pip install dask distributed.") from None
    except (OSError, TimeoutError, ValueError) as error:
        raise CandidError(f"No dask scheduler answers at {scheduler} ({type(error).__name__}).") from None


class Cluster(Slot):
    """The slots of a cluster: any number of threads may have a task done at the same time."""

    def __init__(self, client: Client) -> None:
        self.client, self.call = client, remote_call(str(ROOT))
        self.tasks: dict[str, tuple[str, Callable[[], None]]] = {}  # by key: its name, and whom to tell that it began
        self.at_work: dict[str, str] = {}  # by address of a worker, the key of its task

    def do(self, task: str, spec: RunSpec, options: RunOptions, started: Callable[[], None]) -> Outcome:
        import asyncio

        from distributed import KilledWorker

        key = f"{task}-{uuid.uuid4().hex}"
        values = (task, asdict(spec), as_plain(options), key)
        self.tasks[key] = task_title(task, spec), started
        try:
            answer = self.client.submit(self.call, "do_here", *values, key=key, pure=False).result()
        except KilledWorker as error:
            raise WorkerDied(f"with several dask workers, the last at {error.last_worker.address}") from None
        except (asyncio.CancelledError, CancelledError):
            raise CandidError("The connection to the dask scheduler was lost; rerun the command to resume.") from None
        finally:
            del self.tasks[key]
        if "died" in answer:
            raise WorkerDied(answer["died"])
        return Outcome(**answer)

    def on_event(self, event: tuple[float, Any]) -> None:
        """Note that a worker has begun a task; report one that is gone, with the task that dask gives to another."""
        message = event[1] if isinstance(event[1], dict) else {}
        worker, key = message.get("worker", ""), message.get("begun", "")
        if key in self.tasks:
            self.at_work[worker] = key
            self.tasks[key][1]()
        elif message.get("action") == "remove-worker" and self.at_work.get(worker) in self.tasks:
            name, _ = self.tasks[self.at_work.pop(worker)]
            how = "left" if message.get("expected") else "died"
            say(f"dask worker {worker} {how}; resuming {name} from its last checkpoint")


def as_plain(options: RunOptions) -> dict[str, Any]:
    return {key: str(v) if isinstance(v, Path) else v for key, v in asdict(options).items()}


def check_workers(client: Client, scheduler: str, results: Path) -> None:
    """Refuse a cluster without workers, or with one that does not find this program and the results folder."""
    try:
        client.wait_for_workers(1, timeout=WORKERS_SECONDS)
    except TimeoutError:
        raise CandidError(
            f"No dask worker connected to {scheduler} within {WORKERS_SECONDS} s; start workers first."
        ) from None
    answers = client.run(remote_call(str(ROOT)), "is_folder_here", str(results), on_error="return")
    for worker, answer in answers.items():
        if isinstance(answer, BaseException):
            raise CandidError(f"dask worker {worker} cannot use {ROOT} ({answer}); it must be there on all machines.")
        if not answer:
            raise CandidError(f"dask worker {worker} does not see the results folder {results}; it must be shared.")


# On dask workers ------------------------------------------------------------------------------------------------------


def remote_call(root: str) -> Callable[..., Any]:
    """Return a function for dask that calls another of this module by name, with plain values.

    `dask worker` and `dask scheduler` do not look for modules in the folder in which they were started, so nothing that
    is sent may refer to this program. An inner function is sent as its code, and it finds the checkout by its path.
    """

    def call(name: str, *values: Any) -> Any:
        import sys

        if root not in sys.path:
            sys.path.insert(0, root)
        from benchmark.runner import dask

        return getattr(dask, name)(*values)

    return call


def is_folder_here(folder: str) -> bool:
    return Path(folder).is_dir()


_one_task = threading.Lock()  # of a dask worker with several threads: torch's generator belongs to the whole process


def do_here(task: str, spec: dict[str, Any], options: dict[str, Any], key: str) -> dict[str, Any]:
    """Do a task on this worker and return its outcome, or how its process died."""
    from distributed import get_worker

    try:
        device = devices.claim(devices.resolve(options["device"]))
    except UsageError as error:  # this worker has no device as was asked for
        return asdict(Outcome("failed", str(error)))
    with _one_task:
        get_worker().log_event(options["command"], {"begun": key, "worker": get_worker().address})
        return do_plain(task, spec, options | {"device": device}, own_process=True)


def do_plain(task: str, plain: dict[str, Any], options: dict[str, Any], own_process: bool = False) -> dict[str, Any]:
    """Do a task in this process; with `own_process`, one that executes a user's file in a process of its own."""
    from benchmark.config.sections import SECTIONS
    from benchmark.config.spec import RunSpec
    from benchmark.runner import worker

    spec = RunSpec(**plain | {name: section(**plain[name]) for name, section in SECTIONS.items()})
    if own_process and spec.runs_user_code:
        return in_own_process(task, plain, options)
    here = {key: Path(options[key]) for key in ("results", "data")}
    return asdict(getattr(worker, task)(spec, RunOptions(**options | here)))


def in_own_process(*task: Any) -> dict[str, Any]:
    """Do a task in a process that ends with it: a user's file may change anything in its process.

    Not with `multiprocessing`, whose processes a dask worker below a nanny must not start.
    """
    call = [sys.executable, "-c", "from benchmark.runner.dask import serve_one; serve_one()"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(call, input=json.dumps(task), text=True, stdout=subprocess.PIPE, env=environment)
    try:
        return asdict(Outcome(**json.loads(done.stdout.splitlines()[-1])))
    except (IndexError, ValueError, TypeError):
        return {"died": ending(done.returncode)}


def serve_one() -> None:
    """Do the task that standard input describes and print its outcome."""
    from benchmark.runner.worker import start_worker

    start_worker(os.getppid())
    print(json.dumps(do_plain(*json.load(sys.stdin))))
