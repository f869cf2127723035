"""Results on disk: what is benchmark's own beside the locks and atomic files of `datasets.storage.files`."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from pathlib import Path
from typing import Any

from benchmark.errors import CandidError, UsageError
from datasets.storage.files import Lock, atomic_write, file_name, is_locked

__all__ = [
    "ROOT", "Lock", "atomic_write", "check_out", "ensure_writable", "file_name", "is_locked", "no_link", "read_regular", "refuse_links", "set_aside", "without_paths",
]  # fmt: skip

PART = r"[^\s/'\":,;=()<>\[\]]"  # a character of a folder's name outside quotes
PATH = re.compile(rf"(?<=')/[^']+(?=')|(?<![\w.~/<-])(?:~(?:/{PART}*)+|(?:/{PART}+)+/?)")  # absolute, or under a home
ROOT = Path(__file__).resolve().parents[1]  # of the checkout


def check_out(file: Path) -> None:
    """Raise UsageError if an output file cannot be written, before the work is done."""
    try:
        ensure_writable(file.parent)
    except CandidError:
        raise UsageError(f"--out {file}: nothing can be written to that folder; name another file.") from None


def read_regular(path: Path, limit: int = 1 << 28) -> bytes:
    """Return the content of a regular file; ValueError for a pipe, a device or a file beyond `limit` bytes.

    A results folder from elsewhere may hold anything, and opening a pipe would wait for ever.
    """
    with open(path, "rb", buffering=0, opener=_without_waiting) as stream:
        facts = os.fstat(stream.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise ValueError("it is not a regular file")
        if facts.st_size > limit:
            raise ValueError(f"it is larger than {limit >> 20} MB")
        return stream.readall()


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def no_link(path: str, flags: int) -> int:
    """Open a file for `open(opener=…)`, but never through a symbolic link."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)


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
    """Create a results folder; CandidError if it cannot be written."""
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
    """Refuse symbolic links that lead out of a results folder: a folder from elsewhere must not choose where we write."""
    root = Path(os.path.realpath(folder))  # unlike Path.resolve it does not raise on a loop of links
    pending = [str(root)]
    while pending:
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError:
            continue
        for entry in entries:
            if entry.is_symlink():
                if not Path(os.path.realpath(entry.path)).is_relative_to(root):
                    raise CandidError(
                        f"{entry.path} is a link that leads out of the results folder; remove it, or name the folder "
                        f"that it points to with --results."
                    )
            elif entry.is_dir() and entry.name != "wandb":  # that tracker links to its own log under ~/.cache
                pending.append(entry.path)


def without_paths(value: Any) -> Any:
    """Replace every absolute path in texts by its last part."""
    if isinstance(value, str):
        return PATH.sub(lambda match: match[0].rstrip("/").rsplit("/", 1)[-1], value)
    if isinstance(value, list):
        return [without_paths(item) for item in value]
    if isinstance(value, dict):
        return {without_paths(key): without_paths(item) for key, item in value.items()}
    return value
