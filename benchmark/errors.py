"""What ends a command: one sentence for the person at the keyboard, and the exit code."""

from __future__ import annotations

COMPLETE, FAILED, USAGE, INCOMPLETE, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143


class CandidError(Exception):
    """An error with a sentence and an exit code."""

    code = FAILED


class MissingRuns(CandidError):
    """A table or figure that the runs in the results folder do not give."""


class UsageError(CandidError):
    """Wrong input on the command line or in a profile."""

    code = USAGE
