"""`run`: train a grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmark.cli.options import TRAINING, Command, Request
from benchmark.cli.training import announce, selection_of, train
from benchmark.errors import COMPLETE, FAILED, INCOMPLETE
from benchmark.exhibits.base import NoFlags

if TYPE_CHECKING:
    from benchmark.run.progress import Progress


def run(request: Request, own: NoFlags) -> int:
    selection = selection_of(request)
    announce(request, "Training", selection)
    progress = train(request, selection, selection.specs())
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


COMMANDS = (Command("run", "train a grid of methods, data sets and seeds", run, TRAINING),)
