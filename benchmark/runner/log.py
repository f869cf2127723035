"""The log of a run, and the sentence that explains its failure. Needs no torch."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

from benchmark.errors import CandidError
from benchmark.files import ROOT, no_link, without_paths
from datasets.base import DataError
from methods.registry import MethodError

LOG_LIMIT = 1 << 20  # characters that a method may print into its log


class Log(io.TextIOBase):
    """A stream into a file, up to a limit; a full disk loses the text and not the run."""

    def __init__(self, path: Path) -> None:
        self.path, self.left = path, LOG_LIMIT

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.left > 0:
            with contextlib.suppress(OSError), open(self.path, "a", encoding="utf-8", opener=no_link) as stream:
                stream.write(text[: self.left])
                self.left -= len(text)
                if self.left <= 0:
                    stream.write("\n[the rest of the output was not kept]\n")
        return len(text)


@contextlib.contextmanager
def captured(path: Path) -> Iterator[None]:
    """Append to a file what is printed, which would disturb the progress display."""
    with contextlib.redirect_stdout(Log(path)) as log, contextlib.redirect_stderr(log):
        yield


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Drop what is printed."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield


def sentence(error: BaseException, plugin: str = "") -> str:
    """Return one line for a table's notes: what went wrong and, for an unexpected error, in which line.

    In a run of a plug-in it is the plug-in's last line, whoever found the fault, or its class where the fault is in what
    it handed over. No folder is named: it may be shared.
    """
    return str(without_paths(_sentence(error, plugin).replace(f"{ROOT}/", "")))


def _sentence(error: BaseException, plugin: str) -> str:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left on the disk of {error.filename or 'the results folder'}"
    if plugin:
        frames = traceback.extract_tb(error.__traceback__)
        explained = isinstance(error, CandidError | DataError | MethodError)
        text, file = str(error) if explained else _first_line(error), Path(plugin).name
        line = next((f.lineno for f in reversed(frames) if Path(f.filename) == Path(plugin)), None)
        line = line or (None if explained else _class_line(Path(plugin)))
        where = f" ({file}:{line})" if line and f"{plugin}:" not in text else ""
        return f"{text.replace(plugin, file)}{where}; `./reproduce.sh check {file}` tries the whole contract"
    if isinstance(error, CandidError | DataError | MethodError):
        return str(error)
    where = ""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if "site-packages" not in frame.filename and "/lib/python" not in frame.filename:
            where = f" ({os.path.relpath(frame.filename, ROOT)}:{frame.lineno})"
            break
    return f"{_first_line(error)}{where}"


def _class_line(plugin: Path) -> int | None:
    """Return the line in which the method of a file begins."""
    try:
        lines = plugin.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return None
    return next((number for number, line in enumerate(lines, 1) if line.startswith("@register")), None)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error) or 'no message').strip().splitlines()[0]}"


def is_out_of_memory(error: BaseException) -> bool:
    text = str(error)
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and ("can't allocate memory" in text or "out of memory" in text))
    )
