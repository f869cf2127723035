"""`trial`: the whole path of a plan with real data, weights and annotators, cut to minutes; then what the plan would meet."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.cli.estimate import print_costs, print_disk
from benchmark.cli.exhibits import every_one, make_with, needs_of, selection_for, under_its_profile, with_defaults
from benchmark.cli.options import SELECTION, Command, Request, whole
from benchmark.cli.training import announce, place_of, say_weights
from benchmark.errors import COMPLETE, FAILED, INCOMPLETE, CandidError, MissingRuns, UsageError
from benchmark.exhibits.base import all_exhibits
from benchmark.flags import flag
from datasets.base import DataError

if TYPE_CHECKING:
    from benchmark.plan.profile import Profile
    from benchmark.plan.selection import Selection
    from benchmark.plan.spec import RunSpec
    from benchmark.run.options import RunOptions

FOLDER, MARK = "trial", "made by trial.txt"
EPOCHS = 4  # so that warm-ups end and every phase of a method has its turn
CPU_BATCH = 16
LEAST_ROWS, LEAST_TESTS = 128, 100
ESTIMATE_SECONDS = 30.0


@dataclass(frozen=True)
class Own:
    what: str = flag("table2", positional=True, choices=(*(exhibit.name for exhibit in all_exhibits()), "all"))
    steps: int = flag(2, "training steps of an epoch", kind=whole, metavar="N")


def run(request: Request, own: Own) -> int:
    from benchmark.run.missing import MissingData, missing_data, refuse_missing

    wanted = every_one() if own.what == "all" else with_defaults()
    chosen = {e: options for e, options in wanted.items() if own.what in (e.name, "all")}
    if len(chosen) == 1:
        request = under_its_profile(request, next(iter(chosen)))
    selection = selection_for(request, chosen)
    announce(request, f"Trial of {own.what}", selection)
    specs = [spec for need in needs_of(chosen, selection).values() for spec in (*need.specs, *need.sets)]
    if not specs:
        raise UsageError(f"{own.what} needs no runs; there is nothing to try.")
    missing = missing_data(specs, request.data)
    here = tuple(name for name in selection.datasets if name not in missing)
    if not here:
        refuse_missing(specs, request.data)
        raise MissingData("No data set of this plan is here.")
    place = place_of(request)
    cut = replace(
        selection,
        profile=cut_profile(selection, own.steps, place.device == "cpu", rows_of(selection, here, place)),
        datasets=here,
        seeds=selection.seeds[:1],
    )
    inside = replace(request, results=fresh_folder(request.results), seeds=None)
    try:
        make_with(cut, "", inside, f"Trial of {own.what}", chosen)
    except MissingRuns as error:
        print(f"Not made: {error}")
    return verdict(request, inside, cut, specs, missing)


def rows_of(selection: Selection, datasets: Sequence[str], place: RunOptions) -> dict[str, tuple[int, int, int]]:
    """Training rows, test rows and classes of the data sets that can be read; the trial says what is wrong with others."""
    from benchmark.train.loading import dataset_of

    found = {}
    for name in datasets:
        with suppress(DataError):
            dataset = dataset_of(selection.specs(selection.methods[:1], [name])[0], place.data)
            found[name] = len(dataset.train), len(dataset.test), dataset.num_classes
    return found


def cut_profile(selection: Selection, steps: int, slow: bool, sizes: Mapping[str, tuple[int, int, int]]) -> Profile:
    """The profile with a few rows, steps and epochs of everything, under a name of its own."""
    profile = selection.profile
    train: dict[str, Any] = {"epochs": EPOCHS, "steps": steps, "eval_every": EPOCHS}
    annotator: dict[str, Any] = {"epochs": 1}
    if slow:
        train["batch"] = annotator["batch"] = CPU_BATCH
    added = [{"method": "*", "dataset": "*", "source": "trial", "train": train, "annotator": annotator}]
    batch = CPU_BATCH if slow else int(profile.train.get("batch", 128))
    for name, (rows, tests, classes) in sizes.items():
        cut = {"train": min(max(LEAST_ROWS, classes, 2 * batch), rows), "test": min(max(LEAST_TESTS, classes), tests)}
        added.append({"method": "*", "dataset": name, "source": "trial", "settings": cut})
    return replace(profile, name=f"{profile.name}-trial", values=(*profile.values, *added))


def fresh_folder(results: Path) -> Path:
    """A results folder inside the other that no table of results reads, without what an earlier trial left."""
    folder = results / FOLDER
    if folder.exists() and not (folder / MARK).is_file():
        raise UsageError(f"{folder} was not made by `trial`; move it away, or choose another folder with --results.")
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / MARK).write_text("Numbers in here mean nothing: the runs were cut to a few steps.\n")
    except OSError as error:
        raise CandidError(f"{folder} cannot be written: {error.strerror}.") from None
    return folder


def verdict(
    request: Request, inside: Request, cut: Selection, specs: Sequence[RunSpec], missing: dict[str, str]
) -> int:
    """Say what the real plan would meet; the exit code."""
    from benchmark import store
    from benchmark.run import devices
    from benchmark.run.devices import parse_jobs
    from benchmark.run.estimate import Estimate, annotators_of
    from benchmark.run.memory import memory_lines, memory_of_a_run

    print("\nWhat the real plan would meet, by this trial (its numbers above mean nothing):")
    tried = {(spec.label, spec.dataset): "it did not start, see above" for spec in cut.specs()}
    for _, document in store.documents(inside.results, cut.profile.name):
        reason = "" if document["status"] == "done" else f"{document['status']}: {document.get('reason', '')}"
        tried[document["label"], document["dataset"]] = reason
    failed = {pair: reason for pair, reason in tried.items() if reason}
    done = len(tried) - len(failed)
    print(f"Tried            {done} of {len(tried)} pairs of method and data set went through")
    for (label, dataset), reason in failed.items():
        print(f"Fails            {label} on {dataset}: {reason}")
    for name, reason in missing.items():
        print(f"Missing data     {name}: {reason}")
    sys.stdout.flush()
    say_weights(request, specs)
    place, slots = place_of(request), parse_jobs(request.jobs, devices.resolve(request.device))
    annotators = annotators_of(specs, place)
    estimate = Estimate(specs, place, missing)
    estimate.measure(ESTIMATE_SECONDS)
    print_costs(estimate, specs, annotators, slots)
    print_disk(estimate, specs, len(slots), request.results)
    for line in memory_lines(estimate, specs, memory_of_a_run(slots)):
        print(line)
    if failed or cut.unusable:
        return FAILED
    return INCOMPLETE if missing else COMPLETE


COMMANDS = (
    Command(
        "trial",
        "try a plan in minutes: real data, weights and annotators, a few rows and steps of every run",
        run,
        (*SELECTION, "jobs", "quiet"),
        Own,
    ),
)
