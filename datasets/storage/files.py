"""Write files atomically, lock files until the process ends, and make safe file names."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import IO


def file_name(text: str) -> str:
    """Return text as the name of one file or folder: no blank, no separator, no leading dot."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._") or "data"


# Writing --------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that appears under its name once it is complete and on disk: a kill leaves the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, 0o644)  # mkstemp makes files private; data and results may be shared
            yield stream
            stream.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def atomic_write(path: str | Path, content: bytes | str) -> None:
    """Write content atomically."""
    with atomic(Path(path)) as stream:
        stream.write(content.encode("utf-8") if isinstance(content, str) else content)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Locks ----------------------------------------------------------------------------------------------------------------


class Lock:
    """An exclusive lock on a file, by `fcntl.lockf`: free as soon as its process is gone, not inherited by children.

    POSIX drops such a lock when *any* descriptor of the file is closed in the process, so a process must never probe
    a lock that it holds itself.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, wait: bool = False) -> bool:
        """Take the lock; False if another process has it (and `wait` is off)."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            return False
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Busy(Exception):
    """Another process holds the lock, and the caller does not want to wait."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path


_threads = threading.Lock()
_waits: ContextVar[bool] = ContextVar("waits", default=True)


@contextlib.contextmanager
def without_waiting() -> Iterator[None]:
    """Make `locked` raise Busy instead of waiting, inside this context."""
    token = _waits.set(False)
    try:
        yield
    finally:
        _waits.reset(token)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for a lock and hold it. Threads of one process wait for each other too, so calls must not be nested."""
    if not _threads.acquire(blocking=_waits.get()):  # `lockf` excludes other processes, not other threads of this one
        raise Busy(path)
    try:
        lock = Lock(path)
        if not lock.acquire(wait=_waits.get()):
            raise Busy(path)
        try:
            yield
        finally:
            lock.release()
    finally:
        _threads.release()


def is_locked(path: Path) -> bool:
    """Return whether another process holds the lock. A missing or unreadable file counts as free.

    On Linux `fcntl` reports the owner; acquiring the lock to find out could turn away a worker that starts just then.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if sys.platform == "linux":
            question = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, question)
            return struct.unpack_from("h", answer)[0] != fcntl.F_UNLCK
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)
