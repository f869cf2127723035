"""Finds the commands and runs one. Answers --help without importing NumPy, pandas or torch."""

from __future__ import annotations

import codecs
import importlib
import io
import os
import pkgutil
import signal
import sys
import unicodedata
from collections.abc import Sequence

from benchmark import cli
from benchmark.cli.options import Command, Parser, Request, parse, parser_of
from benchmark.errors import FAILED, INTERRUPTED, CandidError
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
    speak_plainly()
    try:
        command, request, own = parse(commands(), argv)
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


def speak_plainly() -> None:
    """On a terminal that is not UTF-8 signs that it lacks become plain characters: a table is no reason for a traceback."""
    codecs.register_error("candid", _plain_sign)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and (stream.encoding or "").lower().replace("-", "") != "utf8":
            stream.reconfigure(errors="candid")


SIGNS = {"±": "+/-", "×": "x", "−": "-", "–": "-", "…": "...", "·": ".", "•": "*", "★": "*", "†": "+", "─": "-", "│": "|",
         "█": "#", "→": "->", "≤": "<=", "≥": ">=", "’": "'", "“": '"', "”": '"', "α": "alpha", "β": "beta", "γ": "gamma",
         "₁": "1", "₂": "2", "η": "eta", "λ": "lambda", "ρ": "rho", "⌈": "", "⌉": "", "‖": "||", "Δ": "Delta", "σ": "sigma",
         "°": "^", "‡": "!", "√": "sqrt", "≈": "~", "—": "-", "τ": "tau", "μ": "mu"}  # fmt: skip


def _plain_sign(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    return "".join(SIGNS[sign] if sign in SIGNS else _unaccented(sign) for sign in signs), error.end


def _unaccented(sign: str) -> str:
    return unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode() or "?"


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
