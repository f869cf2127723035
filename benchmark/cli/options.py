"""From the words on the command line to a `Request`: the only code that sees argparse."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.errors import USAGE, did_you_mean
from benchmark.exhibits.base import NoFlags
from benchmark.files import ROOT
from benchmark.flags import flag
from benchmark.runner import backends


def positive(text: str, of: str = "") -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"'{text}' is no number{of} above 0")
    return value


def _seconds(text: str) -> float:
    return positive(text, " of seconds")


@dataclass(frozen=True)
class Request:
    """What was asked for, as far as commands share it; an option that a command does not take is at its default."""

    profile: str | None = flag(None, "quick, paper, or a .toml file (default: paper with a CUDA device, else quick)")
    results: Path = flag(ROOT / "results", "where results live", kind=Path, metavar="DIR")
    data: Path = flag(ROOT / "data", "where data sets live", kind=Path, metavar="DIR")
    device: str = flag("auto", "auto, cpu, cuda or cuda:N")
    plugins: tuple[str, ...] = flag((), "a method outside the tree", repeat=True, names=("--plugin",), metavar="FILE")
    settings: tuple[str, ...] = flag(
        (),
        "override a setting: method.alpha=0.5, cel.beta=1, train.lr=0.1, data.rate=0.2",
        repeat=True,
        names=("--set",),
        metavar="KEY=VALUE",
    )
    epochs: int | None = flag(None, "short for --set train.epochs=N", kind=int, metavar="N")
    eval_every: int | None = flag(
        None, "short for --set train.eval_every=N; the last epochs (2 %%) always", kind=int, metavar="N"
    )
    methods: str | None = flag(
        None, "comma list (default: the profile's); `all` adds the profile's extensions", metavar="A,B"
    )
    datasets: str | None = flag(
        None, "comma list of names, or a path to your own data", names=("--datasets", "--dataset"), metavar="A,B"
    )
    seeds: str | None = flag(None, "comma list or range, 0,1,2 or 0-4", metavar="0,1,2")
    jobs: str | None = flag(None, "runs at once: N, or K/gpu (default: one per GPU, or per core)", metavar="N")
    backend: str = flag(
        backends.DEFAULT,
        ", or ".join(backend.title for backend in backends.BACKENDS.values()),
        choices=tuple(backends.BACKENDS),
    )
    scheduler: str | None = flag(None, "of the dask cluster, for example tcp://host:8786", metavar="ADDRESS")
    dry_run: bool = flag(False, "print the plan and stop")
    quiet: bool = flag(False, "no progress")
    keep_model: bool = flag(False, "keep the trained model beside the numbers; see `predict` and `labels`")
    out: Path | None = flag(
        None,
        "write it there: a name, whose suffix says in which form, or without one in all",
        kind=Path,
        metavar="FILE",
    )
    no_run: bool = flag(False, "make it from what is there")
    no_wait: bool = flag(False, "do not wait for runs that another process is doing")
    retry_diverged: bool = flag(False, "run diverged runs again (same seed, same end)")
    track: str | None = flag(None, "also record curves there (extra `track`)", choices=("tensorboard", "wandb"))
    grace: float | None = flag(
        None, "to save in after Ctrl-C or SIGTERM (default: 7, on GPUs 30)", kind=_seconds, metavar="S"
    )
    checkpoint_seconds: float | None = flag(None, kind=float, hidden=True)
    typed: str = ""  # the whole command line, for the record of a run; no option


CHOICE = ("plugins", "settings", "epochs", "eval_every", "methods", "datasets", "seeds")
SELECTION = ("profile", "results", "data", "device", *CHOICE)  # what names a set of runs and where they live
TRAINING = (
    *SELECTION, "jobs", "backend", "scheduler", "dry_run", "quiet", "no_wait", "retry_diverged", "track", "grace",
    "checkpoint_seconds", "keep_model",
)  # fmt: skip


@dataclass(frozen=True)
class Command:
    """One command: what it takes of the shared options, its own flags, and what it does."""

    name: str
    help: str
    run: Callable[[Request, Any], int] | None = None
    takes: tuple[str, ...] = ()  # fields of Request
    own: type = NoFlags  # a dataclass of flags
    writes: bool = True  # into the results folder: links that lead out of it are refused
    parts: tuple[Command, ...] = ()  # of a command that is two words, as `plot curves`


REMOVED = {  # commands of earlier versions -> what to use instead
    "show": "read run.json in the run's folder, or click the cell in the page of `report`",
    "bundle": "pack the run folders with `tar`; see docs/share.md",
    "merge": "copy run folders with examples/merge_results.py; see docs/share.md",
    "compare": "compare two folders with pandas; see docs/share.md",
    "clean": "delete run folders with `rm`; see docs/share.md",
    "trial": "use `table2 --profile paper-trial`",
    "speed": "use `./reproduce.sh python -m benchmark.tools.speed`",
    "measures": "use `export --runs`, which has one row per run with its measures",
    "overall": "use `comparisons`",
    "pairs": "use `comparisons`",
    "plot agreement": "use `realworld`, which also writes this figure",
    "plot profiles": "use `comparisons`",
    "variance": "sweep the seed of the candidate sets: `run --sweep data.seed=0,1,2`",
}


class Parser(argparse.ArgumentParser):
    """One sentence on wrong usage, with a suggestion, instead of a page."""

    def error(self, message: str) -> Any:
        if "invalid choice" in message:
            word = message.split("invalid choice: ")[1].split("'")[1]
            names = [n for a in self._actions if isinstance(a.choices, dict | list | tuple) for n in a.choices or ()]
            message = f"unknown '{word}'.{did_you_mean(word, names)}"
            command = f"{self.prog} {word}".partition(" ")[2]
            if command in REMOVED:
                message = f"'{command}' was removed: {REMOVED[command]}."
        stop = "" if message.endswith((".", "?")) else "."
        print(f"{self.prog}: {message}{stop} See `{self.prog} --help`.", file=sys.stderr)
        sys.exit(USAGE)


def parser_of(commands: Sequence[Command]) -> Parser:
    """The whole command line."""
    top = Parser(prog="reproduce.sh", description="Candid: an honest benchmark for partial-label learning.")
    _add_commands(top, commands, "COMMAND")
    return top


def _add_commands(parser: Parser, commands: Sequence[Command], metavar: str) -> None:
    group = parser.add_subparsers(metavar=metavar, required=True, parser_class=Parser)
    for command in commands:
        # Whole words only: where --data is no option it must not be taken for --datasets.
        own = group.add_parser(command.name, help=command.help, description=command.help, allow_abbrev=False)
        if command.parts:
            _add_commands(own, command.parts, "WHAT")
            continue
        shared = own.add_argument_group("common options") if command.takes else own
        by_name = {one.name: one for one in dataclasses.fields(Request)}
        for name in command.takes:
            _add_flag(shared, by_name[name])
        for one in dataclasses.fields(command.own):
            _add_flag(own, one)
        own.set_defaults(command=command)


def _add_flag(parser: Any, one: dataclasses.Field[Any]) -> None:
    how: Mapping[str, Any] = one.metadata
    words: dict[str, Any] = {"help": argparse.SUPPRESS if how.get("hidden") else how["help"] or None}
    words |= {key: how[key] for key in ("choices", "metavar") if key in how}
    if "kind" in how:
        words["type"] = how["kind"]
    if how.get("positional"):
        optional = {} if one.default is None else {"nargs": "?", "default": one.default}
        parser.add_argument(one.name, **words, **optional)
        return
    names = how.get("names", ("--" + one.name.replace("_", "-"),))
    if one.default is False:
        parser.add_argument(*names, dest=one.name, action="store_true", help=words["help"])
    elif how.get("repeat"):
        parser.add_argument(*names, dest=one.name, action="append", default=[], **words)
    else:
        parser.add_argument(*names, dest=one.name, default=one.default, **words)


def parse(commands: Sequence[Command], words: Sequence[str] | None) -> tuple[Command, Request, Any]:
    """The command, what it shares with others, and its own flags."""
    typed = vars(parser_of(commands).parse_args(words))
    command: Command = typed["command"]
    shared = {name: typed[name] for name in command.takes}
    for name, value in shared.items():
        if isinstance(value, list):
            shared[name] = tuple(value)
    own = command.own(**{one.name: typed[one.name] for one in dataclasses.fields(command.own)})
    line = shlex.join(["./reproduce.sh", *(sys.argv[1:] if words is None else words)])
    return command, Request(**shared, typed=line), own
