"""Warnings, and the errors that end a command with one sentence and an exit code."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from difflib import get_close_matches

COMPLETE, FAILED, USAGE, INCOMPLETE, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143


class CandidError(Exception):
    """An error with a sentence and an exit code."""

    code = FAILED


class MissingRuns(CandidError):
    """A table or figure that the runs in the results folder do not give."""


class UsageError(CandidError):
    """Wrong input on the command line or in a profile."""

    code = USAGE


class MethodDefect(CandidError):
    """A method that breaks the contract; the text names its file and line, and what is wrong."""

    def __init__(self, method: type, text: str, where: str = "") -> None:
        try:
            where = where or f"{inspect.getsourcefile(method)}:{inspect.getsourcelines(method)[1]}"
        except (OSError, TypeError):
            where = method.__qualname__
        super().__init__(f"{where}: {text}")


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return ' Did you mean …?' with the names that are close to a word, or an empty text."""
    close = get_close_matches(word, list(names), n=2, cutoff=0.5)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def warn(message: str) -> None:
    print(f"warning: {message}", file=sys.__stderr__)  # not into the log of a run
