"""The command line. Answers --help without importing torch; every command imports only what it needs."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.errors import FAILED, INTERRUPTED, USAGE, CandidError
from benchmark.files import ROOT
from benchmark.run import backends

TABLES = ("table1", "table2", "table3", "table4")
FIGURES = ("fig2", "fig4", "fig5", "fig6")


class Parser(argparse.ArgumentParser):
    """One sentence on wrong usage, with a suggestion, instead of a page."""

    def error(self, message: str) -> Any:
        if "invalid choice" in message:
            from methods.registry import did_you_mean

            word = message.split("invalid choice: ")[1].split("'")[1]
            names = [n for a in self._actions if isinstance(a.choices, dict | list | tuple) for n in a.choices or ()]
            message = f"unknown '{word}'.{did_you_mean(word, names)}"
        stop = "" if message.endswith((".", "?")) else "."
        print(f"{self.prog}: {message}{stop} See `{self.prog} --help`.", file=sys.stderr)
        sys.exit(USAGE)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of seconds above 0")
    return value


def parser() -> argparse.ArgumentParser:
    common = Parser(add_help=False)
    group = common.add_argument_group("common options")
    group.add_argument(
        "--profile", help="quick, paper, or a .toml file (default: paper with a CUDA device, else quick)"
    )
    group.add_argument("--results", type=Path, default=ROOT / "results", metavar="DIR", help="where results live")
    group.add_argument("--data", type=Path, default=ROOT / "data", metavar="DIR", help="where data sets live")
    group.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    group.add_argument("--jobs", metavar="N", help="runs at once: N, or K/gpu (default: one per GPU, or per core)")
    group.add_argument(
        "--backend",
        type=backends.full_name,
        choices=tuple(backends.BACKENDS),
        default=backends.DEFAULT,
        help=", or ".join(backend.title for backend in backends.BACKENDS.values()),
    )
    group.add_argument("--scheduler", metavar="ADDRESS", help="of the dask cluster, for example tcp://host:8786")
    group.add_argument("--plugin", action="append", default=[], metavar="FILE", help="a method outside the tree")
    group.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
                       help="override a setting: method.alpha=0.5, cel.beta=1, train.lr=0.1, data.rate=0.2")  # fmt: skip
    group.add_argument("--epochs", type=int, metavar="N", help="short for --set train.epochs=N")
    group.add_argument(
        "--eval-every", type=int, metavar="N", help="short for --set train.eval_every=N; the last epochs (2 %%) always"
    )
    group.add_argument("--methods", metavar="A,B", help="comma list (default: the profile's)")
    group.add_argument("--datasets", "--dataset", metavar="A,B", help="comma list of names, or a path to your own data")
    group.add_argument("--seeds", metavar="0,1,2", help="comma list")
    group.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    group.add_argument("--quiet", action="store_true", help="no progress")
    group.add_argument("--no-wait", action="store_true", help="do not wait for runs that another process is doing")
    group.add_argument("--retry-diverged", action="store_true", help="run diverged runs again (same seed, same end)")
    group.add_argument("--track", choices=("tensorboard", "wandb"), help="also record curves there (extra `track`)")
    group.add_argument("--step-seconds", type=_seconds, default=3600.0, metavar="S",
                       help="a step that takes longer is given up as endless")  # fmt: skip
    group.add_argument("--checkpoint-seconds", type=float, help=argparse.SUPPRESS)

    top = Parser(prog="reproduce.sh", description="Candid: an honest benchmark for partial-label learning.")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)

    def add(name: str, text: str, needs_common: bool = True) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, parents=[common] if needs_common else [])

    for name in TABLES:
        table = add(name, f"run what is missing for Table {name[-1]} of the paper, then write it")
        table.add_argument("--reference", default="cel", help="the method that is compared with the others")
        table.add_argument("--test", choices=("paired", "student", "welch", "wilcoxon"), default="paired")
        table.add_argument(
            "--accuracy", choices=("last", "last10", "oracle", "covering", "approximated"), default="last"
        )
        table.add_argument("--no-run", action="store_true", help="write it from what is there")
        if name == "table3":
            table.add_argument("--from-paper", action="store_true", help="re-derive it from the published Table 2")
    for name in FIGURES:
        figure = add(name, f"run what is missing for Figure {name[-1]} of the paper, then draw it")
        figure.add_argument("--no-run", action="store_true", help="draw it from what is there")
    add("all", "every table and figure").add_argument("--no-run", action="store_true", help="from what is there")
    add("run", "train a grid of methods, data sets and seeds")
    listing = add("list", "methods, datasets, generators, profiles or runs, one line each")
    listing.add_argument("what", choices=("methods", "datasets", "generators", "profiles", "runs"))
    listing.add_argument("--json", action="store_true", help="machine-readable")
    add("status", "per profile: done, running, missing, failed with reasons")
    estimate = add("estimate", "the plan before it starts: runs, forward passes, hours and disk on this machine")
    estimate.add_argument("what", nargs="?", default="table2", choices=(*TABLES, *FIGURES, "run", "all"))
    plot = add("plot", "accuracy curves with seed bands from the results folder")
    plot.add_argument("what", choices=("curves", "selection", "ranks"))
    plot.add_argument("--metric", default="test_accuracy", help="any recorded metric")
    plot.add_argument("--out", type=Path, metavar="FILE", help=".png or .pdf (default: results/figures/<profile>/)")
    report = add("report", "results/report.html: one self-contained page")
    report.add_argument("--out", type=Path, metavar="FILE")
    export = add("export", "one tidy CSV of all epochs of all runs")
    export.add_argument("--out", type=Path, metavar="FILE", help="default: results/epochs.csv; - for the screen")
    candidates = add("candidates", "build or inspect candidate sets, with a data card")
    candidates.add_argument("--out", type=Path, metavar="FOLDER")
    check = add("check", "run the contract tests on a method file and say what is wrong, with the line")
    check.add_argument("file", type=Path)
    tune = add("tune", "grid over lr and weight decay, selected without true labels")
    tune.add_argument("--grid", choices=("full", "small"), default="full")
    tune.add_argument("--select", choices=("covering", "approximated"), default="approximated")
    tune.add_argument(
        "--out", type=Path, metavar="FILE", help="TOML for --profile (default: results/tuned-<profile>.toml)"
    )
    speed = add("speed", "throughput of each method against the bare loop, in one run")
    speed.add_argument("--views", action="store_true", help="batched views against one picture at a time")
    speed.add_argument("--losses", action="store_true", help="vectorised losses and state against loops")
    speed.add_argument("--knn", action="store_true", help="VALEN's neighbour graph: seconds and memory")
    speed.add_argument("--levers", action="store_true", help="ways to train faster: what each gains here")
    speed.add_argument("--rounds", type=int, default=5, metavar="N", help="medians are of so many (default: 5)")
    speed.add_argument("--docs", action="store_true", help="renew docs/speed.md and docs/cost.json")
    fetch = add("fetch", "download, verify and unpack a data set")
    fetch.add_argument("name", metavar="DATASET")
    add("doctor", "what this machine has: device, memory, disk, data sets, versions")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is its result."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        arguments = parser().parse_args(argv)
        from benchmark.cli import training as commands

        return commands.dispatch(arguments)
    except CandidError as error:
        print(f"reproduce.sh: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("reproduce.sh: stopped.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _terminate(number: int, _: object) -> None:
    sys.exit(128 + number)
