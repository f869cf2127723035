"""The click application: commands in groups, errors in one sentence. `--help` imports neither NumPy, pandas nor torch."""

from __future__ import annotations

import io
import os
import shlex
import signal
import sys
from collections.abc import Sequence

import click

from benchmark.cli import data, development, results, tables, training, tune
from benchmark.errors import FAILED, INTERRUPTED, USAGE, CandidError, UsageError, did_you_mean
from benchmark.exhibits.base import all_exhibits
from benchmark.files import ROOT
from datasets.base import DataError
from methods.registry import MethodError

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
    "plot selection": "use `selection`",
    "realworld-all": "use `realworld --all-methods`",
    "variance": "sweep the seed of the candidate sets: `run --sweep data.seed=0,1,2`",
}


class Commands(click.Group):
    """A group that suggests a command for an unknown word, or says what replaces a removed one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            name = f"{ctx.command_path} {args[0]}".partition(" ")[2]
            if name in REMOVED:
                ctx.fail(f"'{name}' was removed: {REMOVED[name]}.")
            ctx.fail(f"unknown '{args[0]}'.{did_you_mean(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


class Application(Commands):
    """The commands under headings, in the order of use; without any word it prints its help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, commands in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(str(command.name), command.get_short_help_str(limit=formatter.width)) for command in commands]
                )


plot = Commands("plot", help="Draw stored runs: accuracy curves with seed bands, average ranks.", no_args_is_help=False)
for _exhibit in all_exhibits():
    if _exhibit.kind == "plot":
        plot.add_command(tables.command_of(_exhibit))
GROUPS = {
    "Tables and figures": tables.commands(),
    "Training": [training.run, tune.tune, training.estimate, training.candidates, training.fetch],
    "Results": [results.status, results.list_, plot, results.report, results.export, results.verify],
    "Your own data": [data.fit, data.predict, data.labels],
    "Development": [development.check, development.doctor, development.test, development.python],
}


def _print_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        import tomllib

        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        print(f"Candid {project['version']}")
        context.exit()


@click.group(cls=Application, context_settings={"max_content_width": 100})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
              help="Show the version and exit.")  # fmt: skip
def application() -> None:
    """Candid: a reproducible benchmark for partial-label learning.

    Start with `table2`; every command has --help.
    """


for _commands in GROUPS.values():
    for _command in _commands:
        application.add_command(_command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is its result."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    for stream in (sys.stdout, sys.stderr):  # question marks for what the terminal's encoding lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        refuse_inexpressible((*words, str(ROOT)))
        line = shlex.join(["./reproduce.sh", *words])
        with application.make_context("reproduce.sh", words, obj=line) as context:
            return application.invoke(context)
    except click.exceptions.Exit as stop:  # after --help and --version
        return stop.exit_code
    except click.UsageError as error:
        program = error.ctx.command_path if error.ctx else "reproduce.sh"
        message = sentence(error, program)
        stop_mark = "" if message.endswith((".", "?")) else "."
        print(f"{program}: {message}{stop_mark} See `{program} --help`.", file=sys.stderr)
        return USAGE
    except (CandidError, DataError, MethodError) as error:
        print(f"reproduce.sh: {error}", file=sys.stderr)
        return error.code if isinstance(error, CandidError) else FAILED
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


def sentence(error: click.UsageError, program: str) -> str:
    """Return what is wrong in one line, with a suggestion for an unknown word."""
    command = error.ctx.command if error.ctx else application
    if isinstance(error, click.NoSuchOption):
        name = error.option_name
        names, of_run = ([word for p in each.params for word in p.opts] for each in (command, training.run))
        advice = " It is an option of `run`" if name in of_run else ""
        if name == "--epochs":
            advice = " Use --set train.epochs=N."
        elif advice:
            advice += "." if command in GROUPS["Your own data"] else f"; train first, then call `{command.name}`."
        return f"unknown option '{name}'.{advice or did_you_mean(name, names)}"
    return " ".join(error.format_message().split())


def refuse_inexpressible(words: Sequence[str]) -> None:
    """Refuse names that cannot be written as UTF-8, as under LC_ALL=C with PYTHONUTF8=0."""
    for word in words:
        try:
            word.encode("utf-8")
        except UnicodeEncodeError:
            name = word.encode("ascii", "replace").decode()
            raise UsageError(
                f"{name} has characters that this locale cannot express; unset PYTHONUTF8 or choose a UTF-8 locale."
            ) from None
