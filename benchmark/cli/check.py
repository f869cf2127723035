"""`check FILE`: the contract on every method of a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmark.cli.options import Command, Request
from benchmark.errors import UsageError
from benchmark.flags import flag


@dataclass(frozen=True)
class Own:
    file: Path = flag(None, positional=True, kind=Path)


def run(request: Request, own: Own) -> int:
    from benchmark.contract.command import check

    if not own.file.is_file():
        raise UsageError(f"There is no file {own.file}; name the one that holds the method.")
    return check(own.file)


COMMANDS = (
    Command(
        "check",
        "run the contract tests on a method file and say what is wrong, with the line",
        run,
        (),
        Own,
        writes=False,
    ),
)
