"""Files that are either the old or the new version, never half of one; locks between processes; damaged files set aside."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import threading
import time
from pathlib import Path

# lockf does not exclude the threads of one process from each other: what this process holds is kept here, by process id,
# since a forked child inherits the set but not the locks.
_held: set[tuple[int, str]] = set()
_guard = threading.Lock()


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


def _key(path: Path) -> tuple[int, str]:
    return os.getpid(), os.path.realpath(path)


class Lock:
    """An exclusive lock between processes. By lockf: it ends with its owner, also when forked children live on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Take the lock if nobody has it; never waits for its owner."""
        with _guard:
            return self._acquire(_key(self.path))

    def _acquire(self, key: tuple[int, str]) -> bool:
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
        with _guard:
            if self._descriptor is not None:
                _held.discard(_key(self.path))
                os.close(self._descriptor)
                self._descriptor = None


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock of `path`."""
    # Closing any descriptor of a file drops this process's own lockf locks on it, so a held one is never opened.
    with _guard:
        return _key(path) in _held or _held_elsewhere(path)


def _held_elsewhere(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        # No lock file, or a read-only copy of somebody's results: nobody can be writing it here.
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    finally:
        os.close(descriptor)
    return False
