"""Carry out the runs of a command: print the plan, train what is missing, report failures."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmark.cli.options import Options, default_profile, devices_here, run_options
from benchmark.errors import COMPLETE, FAILED, INCOMPLETE, UsageError
from benchmark.store import STATES, Store
from datasets.base import plural

if TYPE_CHECKING:
    from benchmark.config.selection import Selection
    from benchmark.config.spec import RunSpec
    from benchmark.runner.progress import Progress
    from benchmark.store import PlanStatus

NAMED = 5  # runs that a line of failures names


def train(options: Options, selection: Selection, specs: Sequence[RunSpec]) -> Progress:
    """Print the plan, then train what is missing, showing progress."""
    from benchmark.runner.missing import refuse_missing
    from benchmark.runner.progress import Progress
    from benchmark.runner.schedule import cost
    from benchmark.runner.tracking import check_tracker

    place, devices = run_options(options), checked_devices(options)
    check_tracker(place.track)
    plan = Store(place.results).status(specs, place.keep_model)
    todo = sorted(plan.todo, key=lambda s: -cost(s, selection.entry(s.method)))
    if not options["quiet"]:
        where = options.get("scheduler") or f"{len(devices)} × {devices[0] if len(set(devices)) == 1 else 'GPU'}"
        print(f"{plan_line(plan, where)}; results in {place.results}.", flush=True)
    say_weights(options, todo)
    if options["dry_run"]:
        print("\n".join(grouped_runs(todo) or ["To do            nothing"]))
        say_missing(options, todo)
    if options["dry_run"] or not todo:
        return Progress(0)
    if not options.get("scheduler"):  # else the data are where the workers are
        refuse_missing(todo, place.data)
    return work(options, todo, devices)


def make_sets(options: Options, specs: Sequence[RunSpec]) -> None:
    """Train the annotators that are missing and draw the candidate sets of these runs, showing progress."""
    from datasets.candidates.generators import GENERATORS

    annotated, devices = [s for s in specs if GENERATORS[s.data.generator].annotator], checked_devices(options)
    if annotated:
        work(options, annotated, devices, runs=False)


def work(options: Options, specs: Sequence[RunSpec], devices: Sequence[str], runs: bool = True) -> Progress:
    """Do runs, or only draw their candidate sets, on this machine or on a dask cluster."""
    from benchmark.files import ensure_writable
    from benchmark.runner.dask import cluster_slots
    from benchmark.runner.pool import carry_out, local_slots
    from benchmark.runner.progress import Bars, Lines

    place, scheduler, wait = run_options(options), options.get("scheduler"), not options.get("no_wait")
    ensure_writable(place.results)
    display = None if options["quiet"] else (Bars if sys.stdout.isatty() else Lines)(place.results)
    if scheduler:
        with cluster_slots(scheduler, len(specs), place, options["device"]) as (slots, place):
            return carry_out(specs, slots, place, display, runs, wait)
    return carry_out(specs, local_slots(devices[: len(specs)]), place, display, runs, wait)


def checked_devices(options: Options) -> list[str]:
    """Return the device of every simultaneous run here; refuse a backend and a scheduler that do not go together."""
    from benchmark.runner.devices import parse_jobs

    devices, scheduler = parse_jobs(options["jobs"], devices_here(options)), options.get("scheduler")
    if bool(scheduler) != (options.get("backend") == "dask"):
        raise UsageError("--backend dask and --scheduler ADDRESS belong together, for example tcp://127.0.0.1:8786.")
    if scheduler and not re.fullmatch(r"(\w+://)?[^/]+:\d+", scheduler):
        raise UsageError(f"--scheduler {scheduler} is not an address; write it as tcp://host:8786.")
    return devices


def announce(options: Options, title: str, selection: Selection) -> None:
    """Print the first line of a command."""
    if not options["quiet"]:
        name, reason = default_profile(options)
        reason = reason if options.get("profile") or name == selection.profile.name else "its own"
        print(f"{title}, profile {selection.profile.name} ({reason}).", flush=True)


def plan_line(plan: PlanStatus, where: str) -> str:
    """Return the plan in one line: how many runs, in which states, on what."""
    counts = [f"{plan.count('done')} done"]
    counts += [f"{plan.count(state)} {state}" for state in STATES if state != "done" and plan.count(state)]
    return f"Plan: {plural(len(plan.specs), 'run')}, {', '.join(counts)}, {len(plan.todo)} to do on {where}"


def grouped_runs(specs: Sequence[RunSpec]) -> list[str]:
    """Return a line per dataset, and per profile where there are several: number of runs, methods and seeds."""
    groups: dict[str, list[RunSpec]] = {}
    several = len({spec.profile for spec in specs}) > 1
    for spec in specs:
        groups.setdefault(f"{spec.dataset}, {spec.profile}" if several else spec.dataset, []).append(spec)
    lines = []
    for where, group in groups.items():
        methods, seeds = dict.fromkeys(spec.method for spec in group), sorted({spec.seed for spec in group})
        of_seeds = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
        lines.append(f"To do            {where}: {plural(len(group), 'run')} of {', '.join(methods)}, {of_seeds}")
    return lines


def say_missing(options: Options, specs: Sequence[RunSpec]) -> dict[str, str]:
    """Print which datasets of these runs are not on this machine, and return them with the reason."""
    from benchmark.runner.missing import missing_data

    missing = missing_data(specs, options["data"])
    for name, reason in missing.items():
        print(f"Missing data     {name}: {reason}")
    return missing


def say_weights(options: Options, specs: Sequence[RunSpec]) -> None:
    """Print which pretrained weights the runs start from; missing ones are reported even with --quiet."""
    from benchmark.runner.missing import needed_weights

    for weights in needed_weights(specs):
        here = weights.location.here
        if not here or not options["quiet"]:
            print(weights.sentence, file=sys.stdout if here else sys.stderr, flush=True)


def report_failures(progress: Progress, quiet: bool = True) -> int:
    """Print what did not end well, unless it is the only line above; return the exit code of `run`."""
    failures: dict[tuple[str, str, str], list[RunSpec]] = {}  # runs by dataset, status and reason, each printed once
    for spec, outcome in progress.outcomes:
        if outcome.status not in ("done", "claimed"):
            failures.setdefault((spec.dataset, outcome.status, outcome.reason), []).append(spec)
    alone = not quiet and [outcome.skipped for _, outcome in progress.outcomes] == [False]
    for (dataset, status, reason), specs in () if alone else failures.items():
        names = ", ".join(f"{spec.label} seed {spec.seed}" for spec in specs[:NAMED])
        more = f" and {plural(len(specs) - NAMED, 'other run')}" if len(specs) > NAMED else ""
        print(f"{dataset} {names}{more}: {status}: {reason}")
    elsewhere = sum(outcome.status == "claimed" for _, outcome in progress.outcomes)
    if elsewhere:
        print(f"{plural(elsewhere, 'run')} {'are' if elsewhere > 1 else 'is'} being trained by other processes.")
    return FAILED if failures else INCOMPLETE if elsewhere else COMPLETE
