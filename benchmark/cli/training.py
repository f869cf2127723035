"""What each command does, as a function of the parsed arguments; returns the exit code."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from benchmark.errors import COMPLETE, FAILED, INCOMPLETE, CandidError, UsageError
from benchmark.files import refuse_links
from benchmark.run import devices
from benchmark.run.options import RunOptions
from datasets.base import DataError
from methods.registry import MethodError

if TYPE_CHECKING:
    from benchmark.plan.selection import Selection
    from benchmark.plan.spec import RunSpec
    from benchmark.run.progress import Progress

READ_ONLY = ("list", "status", "estimate", "doctor", "fetch", "check")  # commands that write nothing into the results


def dispatch(arguments: argparse.Namespace) -> int:
    """Find the command's function; errors of data and methods are sentences too."""
    name = arguments.command
    special: dict[str, Callable[[argparse.Namespace], int]] = {
        "run": run,
        "list": _lazy("cli.overview", "listing"),
        "status": _lazy("cli.overview", "status"),
        "estimate": _lazy("cli.overview", "estimate"),
        "doctor": _lazy("cli.overview", "doctor"),
        "fetch": _lazy("cli.overview", "fetch"),
        "candidates": _lazy("cli.overview", "candidates"),
        "plot": _lazy("exhibits.base", "plot"),
        "report": _lazy("exhibits.base", "report"),
        "export": _lazy("exhibits.base", "export"),
        "check": _lazy("contract.command", "command"),
        "tune": _lazy("cli.tune", "command"),
        "speed": _lazy("speed.command", "command"),
    }
    try:
        if name not in READ_ONLY:
            refuse_links(arguments.results)
        if name in special:
            return special[name](arguments)
        return _lazy("exhibits.base", "make")(arguments)
    except (DataError, MethodError) as error:
        raise CandidError(str(error)) from None


def _lazy(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    def call(arguments: argparse.Namespace) -> int:
        import importlib

        return getattr(importlib.import_module(f"benchmark.{module}"), function)(arguments)

    return call


def default_profile(arguments: argparse.Namespace) -> tuple[str, str]:
    """The profile and why it was taken."""
    if arguments.profile:
        return arguments.profile, "as asked"
    if arguments.device != "cpu" and devices.cuda_devices():
        return "paper", "a CUDA device is here"
    return "quick", "no CUDA device is here; the paper's protocol is --profile paper"


def selection_of(arguments: argparse.Namespace) -> Selection:
    """Everything typed, checked."""
    from benchmark.plan.selection import select

    profile, _ = default_profile(arguments)
    place = RunOptions(
        arguments.results,
        arguments.data,
        checkpoint_seconds=arguments.checkpoint_seconds,
        retry_diverged=arguments.retry_diverged,
        track=arguments.track or "",
        step_seconds=arguments.step_seconds,
    )
    return select(
        profile=profile,
        place=place,
        devices=devices.resolve(arguments.device),
        methods=arguments.methods,
        datasets=arguments.datasets,
        seeds=arguments.seeds,
        plugins=arguments.plugin,
        settings=arguments.settings,
        epochs=arguments.epochs,
        eval_every=arguments.eval_every,
    )


def train(arguments: argparse.Namespace, selection: Selection, specs: Sequence[RunSpec]) -> Progress:
    """Do what is missing, showing progress; the plan is printed first."""
    from benchmark.files import ensure_writable
    from benchmark.plan.selection import cost, standing
    from benchmark.run.backends import BACKENDS
    from benchmark.run.devices import parse_jobs
    from benchmark.run.progress import Progress, display_for
    from benchmark.run.tracking import check_tracker

    check_tracker(selection.place.track)
    slots = parse_jobs(arguments.jobs, selection.devices)
    backend = BACKENDS[arguments.backend]
    if backend.needs_scheduler and not arguments.scheduler:
        raise UsageError(f"--backend {backend.name} needs --scheduler ADDRESS, for example tcp://127.0.0.1:8786.")
    if arguments.scheduler and not backend.needs_scheduler:
        names = " or ".join(name for name, found in BACKENDS.items() if found.needs_scheduler)
        raise UsageError(f"--scheduler {arguments.scheduler} is for --backend {names}; write both or neither.")
    if arguments.scheduler and not re.fullmatch(r"(\w+://)?[^/]+:\d+", arguments.scheduler):
        raise UsageError(f"--scheduler {arguments.scheduler}: that is no address; write it as tcp://host:8786.")
    now = standing(specs, arguments.results)
    todo = sorted(now.todo, key=lambda s: -cost(s, selection.entry(s.method)))
    if not arguments.quiet:
        where = arguments.scheduler or f"{len(slots)} × {slots[0] if len(set(slots)) == 1 else 'GPU'}"
        print(plan_line(selection, now, where), flush=True)
    if arguments.dry_run or not todo:
        return Progress(0)
    ensure_writable(arguments.results)
    chosen = backend(tuple(slots[: len(todo)]), not arguments.no_wait, arguments.scheduler or "", arguments.device)
    return chosen.run(todo, selection.place, display_for(arguments.quiet, arguments.results))


def plan_line(selection: Selection, now: object, where: str) -> str:
    """The plan in one line: how many runs, how many of them are there, on what."""
    from benchmark.plan.selection import Standing

    assert isinstance(now, Standing)
    counts = [f"{now.count('done')} done"]
    for state in ("running", "interrupted", "failed", "diverged", "oom"):
        if now.count(state):
            counts.append(f"{now.count(state)} {state}")
    return (
        f"Plan: {len(now.specs)} runs, {', '.join(counts)}, {len(now.todo)} to do "
        f"on {where}; results in {selection.place.results}."
    )


def announce(arguments: argparse.Namespace, what: str, selection: Selection) -> None:
    """The first line that a command prints."""
    if not arguments.quiet:
        _, why = default_profile(arguments)
        print(f"{what}, profile {selection.profile.name} ({why}).", flush=True)
    for reason in selection.unusable:
        print(f"reproduce.sh: {reason} The others go on without it.", file=sys.stderr, flush=True)


def run(arguments: argparse.Namespace) -> int:
    """`run`: train a grid."""
    selection = selection_of(arguments)
    announce(arguments, "Training", selection)
    progress = train(arguments, selection, selection.specs())
    code = report_failures(progress)
    return FAILED if selection.unusable else code


def report_failures(progress: Progress) -> int:
    """Say what did not end well; the exit code of `run`."""
    bad = [(spec, outcome) for spec, outcome in progress.outcomes if outcome.status not in ("done", "claimed")]
    for spec, outcome in bad:
        print(f"{spec.dataset} {spec.label} seed {spec.seed}: {outcome.status}: {outcome.reason}")
    claimed = sum(outcome.status == "claimed" for _, outcome in progress.outcomes)
    if claimed:
        print(f"{claimed} run{'s are' if claimed > 1 else ' is'} still in the hands of other processes.")
    return FAILED if bad else INCOMPLETE if claimed else COMPLETE
