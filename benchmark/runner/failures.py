"""What went wrong with a run, as one sentence. Needs no torch."""

from __future__ import annotations

import errno
import os
import re
import traceback
from pathlib import Path

from benchmark.errors import CandidError
from benchmark.files import ROOT
from datasets.base import DataError
from methods.registry import MethodError

FOLDERS = re.compile(r"(?<![\w.:/…])/(?:[^\s/'\"`:;,()]+/)+")  # of an absolute path, up to its last part


def sentence(error: BaseException, plugin: str = "") -> str:
    """One line for a table's notes: what went wrong and, for an unexpected error, in which line.

    In a run of a plug-in it is the plug-in's last line, whoever found the fault, or its class where the fault is in what
    it handed over. No folder is named: it may be shared.
    """
    return FOLDERS.sub("…/", _told(error, plugin).replace(f"{ROOT}/", ""))


def _told(error: BaseException, plugin: str) -> str:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left on the disk of {error.filename or 'the results folder'}"
    if plugin:
        frames = traceback.extract_tb(error.__traceback__)
        known = isinstance(error, CandidError | DataError | MethodError)
        text, file = str(error) if known else _first_line(error), Path(plugin).name
        line = next((f.lineno for f in reversed(frames) if Path(f.filename) == Path(plugin)), None)
        line = line or (None if known else _class_line(Path(plugin)))
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
    """Where the method of the file begins."""
    try:
        lines = plugin.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return None
    marked = (number for number, line in enumerate(lines, 1) if line.startswith("@register"))
    return next(marked, None)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error) or 'no message').strip().splitlines()[0]}"


def is_out_of_memory(error: BaseException) -> bool:
    text = str(error)
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and ("can't allocate memory" in text or "out of memory" in text))
    )
