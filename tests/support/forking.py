"""The command line in processes that are forked from one that has torch: as real as any, without its import each time."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

# A server of its own, because a process that has run a backward pass (as pytest's has) must not be forked any more.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["torch._dynamo", "benchmark.runner.worker", "benchmark.exhibits.base", "matplotlib.figure", "scipy.stats"]
)


Limit = tuple[int, int]  # a resource, such as resource.RLIMIT_FSIZE, and how much of it a command may use


def _child(
    argv: Sequence[str], folder: str, environment: Mapping[str, str], limit: Limit | None, out: str, err: str
) -> None:
    os.setsid()
    for path, number in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    sys.__stderr__ = sys.stderr  # type: ignore[misc]
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if limit is not None:
        resource.setrlimit(limit[0], (limit[1], limit[1]))
    from benchmark.cli.main import main

    sys.exit(main(argv))


class Command:
    """What `subprocess.Popen` is to a program, for a forked command in a session of its own."""

    def __init__(self, argv: Sequence[str], folder: Path, limit: Limit | None = None) -> None:
        assert threading.current_thread() is threading.main_thread()
        self.outputs = tempfile.TemporaryDirectory()
        self.files = [os.path.join(self.outputs.name, name) for name in ("out", "err")]
        values = (list(argv), str(folder), dict(os.environ), limit, *self.files)
        self.process = _context.Process(target=_child, args=values)
        self.process.start()
        self.pid: int = self.process.pid or 0

    def poll(self) -> int | None:
        return self.process.exitcode

    @property
    def returncode(self) -> int:
        assert self.process.exitcode is not None
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired("benchmark", timeout or 0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.wait(timeout)
        texts = [Path(name).read_text() if os.path.exists(name) else "" for name in self.files]
        return texts[0], texts[1]

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)
