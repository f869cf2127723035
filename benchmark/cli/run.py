"""`run`: train a grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmark.cli.options import TRAINING, Command, Request
from benchmark.cli.training import announce, selection_of, train
from benchmark.errors import COMPLETE, FAILED, INCOMPLETE
from benchmark.exhibits.base import NoFlags
from datasets.base import plural

if TYPE_CHECKING:
    from benchmark.plan.spec import RunSpec
    from benchmark.run.progress import Progress

NAMED = 5  # runs that a line of failures names


def run(request: Request, own: NoFlags) -> int:
    selection = selection_of(request)
    announce(request, "Training", selection)
    progress = train(request, selection, selection.specs())
    code = report_failures(progress)
    return FAILED if selection.unusable else code


def report_failures(progress: Progress) -> int:
    """Say what did not end well; the exit code of `run`."""
    bad: dict[tuple[str, str, str], list[RunSpec]] = {}  # one reason may stop all runs on a data set: it is said once
    for spec, outcome in progress.outcomes:
        if outcome.status not in ("done", "claimed"):
            bad.setdefault((spec.dataset, outcome.status, outcome.reason), []).append(spec)
    for (dataset, status, reason), specs in bad.items():
        names = ", ".join(f"{spec.label} seed {spec.seed}" for spec in specs[:NAMED])
        more = f" and {plural(len(specs) - NAMED, 'other run')}" if len(specs) > NAMED else ""
        print(f"{dataset} {names}{more}: {status}: {reason}")
    claimed = sum(outcome.status == "claimed" for _, outcome in progress.outcomes)
    if claimed:
        print(f"{claimed} run{'s are' if claimed > 1 else ' is'} still in the hands of other processes.")
    return FAILED if bad else INCOMPLETE if claimed else COMPLETE


COMMANDS = (Command("run", "train a grid of methods, data sets and seeds", run, TRAINING),)
