"""What went wrong with a run, as one sentence, and how it is written down. Needs no torch."""

from __future__ import annotations

import errno
import os
import traceback
from typing import Any

from benchmark import watchdog
from benchmark.errors import CandidError
from benchmark.files import ROOT
from benchmark.run.provenance import now
from benchmark.store import RunFolder, warn
from datasets.base import DataError
from methods.registry import MethodError


def sentence(error: BaseException) -> str:
    """One line for a table's notes: what went wrong and, for an unexpected error, in which line."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left on the disk of {error.filename or 'the results folder'}"
    if isinstance(error, CandidError | DataError | MethodError):
        return str(error)
    where = ""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == watchdog.__file__:  # the alarm; the line that it interrupted is the one to name
            continue
        if "site-packages" not in frame.filename and "/lib/python" not in frame.filename:
            where = f" ({os.path.relpath(frame.filename, ROOT)}:{frame.lineno})"
            break
    first = (str(error) or "no message").strip().splitlines()[0]
    return f"{type(error).__name__}: {first}{where}"


def is_out_of_memory(error: BaseException) -> bool:
    text = str(error)
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and ("can't allocate memory" in text or "out of memory" in text))
    )


def write_failed(folder: RunFolder, document: dict[str, Any], reason: str) -> None:
    """Write down that a run was given up; its lock must be held."""
    document |= {"status": "failed", "reason": reason}
    document["time"]["finished"] = now()
    write_or_warn(folder, document)


def write_or_warn(folder: RunFolder, document: dict[str, Any]) -> OSError | None:
    """A full disk is a warning: the last whole files stay as they are."""
    try:
        folder.write(document)
    except OSError as error:
        warn(f"{folder.document_path} could not be written: {sentence(error)}")
        return error
    return None
