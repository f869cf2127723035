"""Files that are either the old or the new version, never half of one; locks between processes; damaged files set aside."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

_held: set[str] = set()


def atomic_write(path: str | Path, content: bytes | str) -> None:
    """Write `content` (text as UTF-8) to `path`: temporary file in the same folder, flush, fsync, rename."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode("utf-8") if isinstance(content, str) else content
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            # mkstemp makes files private; results are to be read by whoever may read the folder.
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def set_aside(path: Path) -> Path:
    """Rename a damaged file to the first free `<name>.damaged<k>` and return that path."""
    k = 1
    while (aside := path.with_name(f"{path.name}.damaged{k}")).exists():
        k += 1
    os.replace(path, aside)
    return aside


class Lock:
    """An exclusive lock between processes. By lockf: it ends with its owner, also when forked children live on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it."""
        key = os.path.realpath(self.path)
        if key in _held:
            return False
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        # `is_locked` of another process holds the lock for an instant; a few tries tell it from an owner.
        for _ in range(5):
            with contextlib.suppress(BlockingIOError, PermissionError):
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._descriptor = descriptor
                _held.add(key)
                return True
            time.sleep(0.01)
        os.close(descriptor)
        return False

    def release(self) -> None:
        """Give the lock back; harmless when it is not held."""
        if self._descriptor is not None:
            _held.discard(os.path.realpath(self.path))
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        if not self.try_acquire():
            raise BlockingIOError(f"{self.path} is held by another process.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock of `path`."""
    # Closing any descriptor of a file drops this process's own lockf locks on it, so a held one is never opened.
    if os.path.realpath(path) in _held:
        return True
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    except PermissionError:
        # A read-only copy of somebody's results: nobody can be writing it here.
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    finally:
        os.close(descriptor)
    return False
