"""Finds the commands and runs one. Answers --help without importing NumPy, pandas or torch."""

from __future__ import annotations

import importlib
import io
import os
import pkgutil
import signal
import sys
from collections.abc import Sequence

from benchmark import cli
from benchmark.cli.options import Command, Parser, Request, parse, parser_of
from benchmark.errors import FAILED, INTERRUPTED, CandidError, UsageError
from benchmark.files import refuse_links

SHARED = ("main", "options", "training")  # files of this folder that are no commands


def commands() -> list[Command]:
    """Every command of this folder: the exhibits first, the others by name."""
    names = [module.name for module in pkgutil.iter_modules(cli.__path__) if module.name not in SHARED]
    names.sort(key=lambda name: (name != "exhibits", name))
    return [command for name in names for command in importlib.import_module(f"{cli.__name__}.{name}").COMMANDS]


def parser() -> Parser:
    return parser_of(commands())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is its result."""
    signal.signal(signal.SIGTERM, _terminate)
    replace_unknown_characters()
    try:
        command, request, own = parse(commands(), argv)
        check_encoding(request)
        return _run(command, request, own)
    except CandidError as error:
        print(f"reproduce.sh: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("reproduce.sh: stopped.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:  # a full, read-only or broken disk
        where = f"{error.filename}: " if error.filename else ""
        print(f"reproduce.sh: {where}{error.strerror or error}.", file=sys.stderr)
        return FAILED


def replace_unknown_characters() -> None:
    """Print a question mark for each character that the terminal's encoding lacks, instead of a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def check_encoding(request: Request) -> None:
    """Refuse folders whose names cannot be written as UTF-8, as under LC_ALL=C with PYTHONUTF8=0."""
    for path in (request.results, request.data):
        try:
            str(path).encode("utf-8")
        except UnicodeEncodeError:
            shown = str(path).encode("ascii", "replace").decode()
            raise UsageError(
                f"the folder {shown} has a name that this locale cannot express; unset PYTHONUTF8 or choose a UTF-8 locale."
            ) from None


def _run(command: Command, request: Request, own: object) -> int:
    """Errors of data and methods are sentences too."""
    from datasets.base import DataError
    from methods.registry import MethodError

    assert command.run is not None
    try:
        if command.writes:
            refuse_links(request.results)
        return command.run(request, own)
    except (DataError, MethodError) as error:
        raise CandidError(str(error)) from None


def _terminate(number: int, _: object) -> None:
    sys.exit(128 + number)
