"""Files that are either whole or not there, and locks that die with their process."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from benchmark.errors import CandidError

ROOT = Path(__file__).resolve().parents[1]  # of the checkout


def atomic_write(path: str | Path, content: bytes | str) -> None:
    """Temporary file in the same folder, flush, fsync, rename: a kill leaves the old file or the new, never half."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode("utf-8") if isinstance(content, str) else content
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchmod(
                stream.fileno(), 0o644
            )  # mkstemp makes files private; results are for whoever may read the folder
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def no_link(path: str, flags: int) -> int:
    """An `opener` that writes to the file itself, never through a symbolic link to another."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)


def sync_folder(folder: Path) -> None:
    """Make a rename durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def set_aside(path: Path) -> Path:
    """Rename a damaged file out of the way, keeping it: name.damaged, name.damaged-2, …"""
    number = 1
    while True:
        target = path.with_name(f"{path.name}.damaged{'' if number == 1 else f'-{number}'}")
        if not target.exists():
            os.replace(path, target)
            return target
        number += 1


def ensure_writable(folder: Path) -> None:
    """One sentence instead of a traceback when results cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"0")
            probe.flush()
    except OSError as error:
        raise CandidError(
            f"The results folder {folder} cannot be written ({error.strerror}); choose another with --results."
        ) from None


def refuse_links(folder: Path) -> None:
    """Refuse symbolic links that lead out of a results folder: one from a stranger must not choose where we write."""
    root = folder.resolve()
    pending = [str(root)]
    while pending:
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError:
            continue
        for entry in entries:
            if entry.is_symlink():
                if not Path(entry.path).resolve().is_relative_to(root):
                    raise CandidError(
                        f"{entry.path} is a link that leads out of the results folder; remove it, or name the folder "
                        f"that it points to with --results."
                    )
            elif entry.is_dir() and entry.name != "wandb":  # that tracker links to its own log under ~/.cache
                pending.append(entry.path)


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

    def __enter__(self) -> Lock:
        self.acquire(wait=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def is_locked(path: Path) -> bool:
    """Whether another process holds the lock. A missing or unreadable file counts as free.

    Linux is asked who has it; taking it to find out would make a worker that comes at that moment believe it is taken.
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
