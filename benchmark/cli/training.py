"""What commands that train or read runs share: the selection and place of a request, the plan, the training itself."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmark.cli.options import Request
from benchmark.errors import UsageError
from benchmark.store import STATES, Store
from datasets.base import plural

if TYPE_CHECKING:
    from benchmark.config.selection import Selection
    from benchmark.config.spec import RunSpec
    from benchmark.runner.options import RunOptions
    from benchmark.runner.pool import Backend
    from benchmark.runner.progress import Progress
    from benchmark.store import PlanStatus


def default_profile(request: Request) -> tuple[str, str]:
    """The profile and why it was taken."""
    from benchmark.runner import devices

    if request.profile:
        return request.profile, "as asked"
    if request.device != "cpu" and devices.cuda_devices():
        return "paper", "a CUDA device is here"
    return "quick", "no CUDA device is here; the paper's protocol is --profile paper"


def selection_of(request: Request, profile: str | None = None) -> Selection:
    """Everything typed, checked."""
    from benchmark.config.selection import select

    return select(
        profile or default_profile(request)[0],
        methods=request.methods,
        datasets=request.datasets,
        seeds=request.seeds,
        plugins=request.plugins,
        settings=request.settings,
        epochs=request.epochs,
        eval_every=request.eval_every,
    )


def devices_here(request: Request) -> list[str]:
    """Those of this machine that were asked for; the cards of a cluster are its workers', a login node may have none."""
    from benchmark.runner import devices

    return devices.resolve("auto" if request.scheduler and request.device.startswith("cuda") else request.device)


def place_of(request: Request) -> RunOptions:
    """Where runs find and leave things, on the first of the devices."""
    from benchmark.runner.options import RunOptions

    return RunOptions(
        request.results,
        request.data,
        devices_here(request)[0],
        checkpoint_seconds=request.checkpoint_seconds,
        retry_diverged=request.retry_diverged,
        track=request.track or "",
        grace=request.grace,
        typed=request.typed,
        keep_model=request.keep_model,
    )


def train(request: Request, selection: Selection, specs: Sequence[RunSpec]) -> Progress:
    """Do what is missing, showing progress; the plan is printed first."""
    from benchmark.files import ensure_writable
    from benchmark.runner.missing import refuse_missing
    from benchmark.runner.progress import Progress, display_for
    from benchmark.runner.schedule import cost
    from benchmark.runner.tracking import check_tracker

    place = place_of(request)
    check_tracker(place.track)
    slots, backend = slots_and_backend(request)
    now = Store(request.results).status(specs, request.keep_model)
    todo = sorted(now.todo, key=lambda s: -cost(s, selection.entry(s.method)))
    if not request.quiet:
        where = request.scheduler or f"{len(slots)} × {slots[0] if len(set(slots)) == 1 else 'GPU'}"
        print(f"{plan_line(now, where)}; results in {request.results}.", flush=True)
    say_weights(request, todo)
    if request.dry_run:
        print("\n".join(grouped_runs(todo) or ["To do            nothing"]))
        say_missing(request, todo)
    if request.dry_run or not todo:
        return Progress(0)
    if not backend.needs_scheduler:  # else the data lie where the workers are
        refuse_missing(todo, request.data)
    ensure_writable(request.results)
    chosen = backend(tuple(slots[: len(todo)]), not request.no_wait, request.scheduler or "", request.device)
    return chosen.run(todo, place, display_for(request.quiet, request.results))


def grouped_runs(specs: Sequence[RunSpec]) -> list[str]:
    """Which runs, a line per data set, and per profile where there are several: methods with their seeds."""
    found: dict[str, dict[str, list[int]]] = {}
    several = len({spec.profile for spec in specs}) > 1
    for spec in specs:
        where = f"{spec.dataset}, {spec.profile}" if several else spec.dataset
        found.setdefault(where, {}).setdefault(spec.label, []).append(spec.seed)
    lines = []
    for where, methods in found.items():
        by_seeds: dict[str, list[str]] = {}
        for label, seeds in methods.items():
            by_seeds.setdefault(", ".join(map(str, sorted(seeds))), []).append(label)
        parts = [f"{', '.join(labels)}, seed{'s' * (', ' in seeds)} {seeds}" for seeds, labels in by_seeds.items()]
        lines.append(f"To do            {where}: {'; '.join(parts)}")
    return lines


def say_missing(request: Request, specs: Sequence[RunSpec]) -> dict[str, str]:
    """Print which datasets of these runs are not on this machine, and return them with the reason."""
    from benchmark.runner.missing import missing_data

    missing = missing_data(specs, request.data)
    for name, reason in missing.items():
        print(f"Missing data     {name}: {reason}")
    return missing


def make_sets(request: Request, specs: Sequence[RunSpec]) -> None:
    """Train the annotators that are missing and draw the candidate sets of these runs, showing progress."""
    from benchmark.files import ensure_writable
    from benchmark.runner.progress import display_for
    from datasets.candidates.generators import GENERATORS

    annotated = [spec for spec in specs if GENERATORS[spec.data.generator].annotator]
    slots, backend = slots_and_backend(request)
    if not annotated:
        return
    ensure_writable(request.results)
    chosen = backend(tuple(slots[: len(annotated)]), True, request.scheduler or "", request.device)
    chosen.prepare(annotated, place_of(request), display_for(request.quiet, request.results))


def slots_and_backend(request: Request) -> tuple[list[str], type[Backend]]:
    """Where to carry runs out, checked."""
    from benchmark.runner.backends import BACKENDS
    from benchmark.runner.devices import parse_jobs

    slots = parse_jobs(request.jobs, devices_here(request))
    backend = BACKENDS[request.backend]
    if backend.needs_scheduler and not request.scheduler:
        raise UsageError(f"--backend {backend.name} needs --scheduler ADDRESS, for example tcp://127.0.0.1:8786.")
    if request.scheduler and not backend.needs_scheduler:
        names = " or ".join(name for name, found in BACKENDS.items() if found.needs_scheduler)
        raise UsageError(f"--scheduler {request.scheduler} is for --backend {names}; write both or neither.")
    if request.scheduler and not re.fullmatch(r"(\w+://)?[^/]+:\d+", request.scheduler):
        raise UsageError(f"--scheduler {request.scheduler}: that is no address; write it as tcp://host:8786.")
    return list(slots), backend


def say_weights(request: Request, specs: Sequence[RunSpec]) -> None:
    """Which weights the runs start from and whether they are here; that some cannot be had is said in any case."""
    from benchmark.config.weights import needed
    from methods.networks.pretrained import whereabouts

    for weights in needed(specs):
        found = whereabouts(weights.network, weights.file)
        if found.here and request.quiet:
            continue
        print(weights.sentence(found), file=sys.stdout if found.here else sys.stderr, flush=True)


def plan_line(now: PlanStatus, where: str) -> str:
    """The plan in one line: how many runs, how many of them are there, on what."""
    counts = [f"{now.count('done')} done"]
    counts += [f"{now.count(state)} {state}" for state in STATES if state != "done" and now.count(state)]
    return f"Plan: {plural(len(now.specs), 'run')}, {', '.join(counts)}, {len(now.todo)} to do on {where}"


def announce(request: Request, what: str, selection: Selection) -> None:
    """The first line that a command prints."""
    if not request.quiet:
        _, why = default_profile(request)
        print(f"{what}, profile {selection.profile.name} ({why}).", flush=True)
    for reason in selection.unusable:
        print(f"reproduce.sh: {reason} The others go on without it.", file=sys.stderr, flush=True)
