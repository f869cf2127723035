"""`run`: train a grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmark.cli.exhibits import show
from benchmark.cli.options import TRAINING, Command, Request
from benchmark.cli.training import announce, place_of, selection_of, train
from benchmark.errors import COMPLETE, FAILED, INCOMPLETE
from benchmark.exhibits.base import Inputs, Output
from benchmark.files import file_name
from benchmark.flags import flag
from datasets.base import plural

if TYPE_CHECKING:
    from benchmark.config.selection import Selection
    from benchmark.config.spec import RunSpec
    from benchmark.runner.progress import Progress

NAMED = 5  # runs that a line of failures names


@dataclass(frozen=True)
class Flags:
    sweep: str | None = flag(
        None, "train every value of a setting, then a table and a plot of them", metavar="KEY=A,B,C"
    )


def run(request: Request, own: Flags) -> int:
    selection = selection_of(request)
    if own.sweep:
        return sweep(request, selection, own.sweep)
    announce(request, "Training", selection)
    progress = train(request, selection, selection.specs())
    code = report_failures(progress, request.quiet)
    return FAILED if selection.unusable else code


def sweep(request: Request, selection: Selection, text: str) -> int:
    """`--sweep`: the runs of all values, then their table and plot."""
    from benchmark.exhibits.parts.sweep import sweep_of, sweep_plot, sweep_table

    chosen = sweep_of(text, selection, request.methods is not None)
    announce(request, f"Sweep of {chosen.name}", selection)
    required = chosen.required_runs(selection)
    unique = {spec.digest: spec for spec in required.specs}
    code = report_failures(train(request, selection, list(unique.values())), request.quiet)
    if request.dry_run:
        return code
    inputs = Inputs(selection, required, place_of(request))
    stem = file_name("-".join(["sweep", text, *([selection.altered] if selection.altered else [])]))
    table = sweep_table(chosen, inputs)
    show(Output(table, selection.profile.name, stem), request)
    if inputs.status.count("done"):
        show(Output(sweep_plot(chosen, inputs), selection.profile.name, stem), request)
    return code or (COMPLETE if table.complete else INCOMPLETE)


def report_failures(progress: Progress, quiet: bool = True) -> int:
    """Say what did not end well, unless it is the only line above; the exit code of `run`."""
    bad: dict[tuple[str, str, str], list[RunSpec]] = {}  # one reason may stop all runs on a data set: it is said once
    for spec, outcome in progress.outcomes:
        if outcome.status not in ("done", "claimed"):
            bad.setdefault((spec.dataset, outcome.status, outcome.reason), []).append(spec)
    alone = not quiet and [outcome.skipped for _, outcome in progress.outcomes] == [False]
    for (dataset, status, reason), specs in () if alone else bad.items():
        names = ", ".join(f"{spec.label} seed {spec.seed}" for spec in specs[:NAMED])
        more = f" and {plural(len(specs) - NAMED, 'other run')}" if len(specs) > NAMED else ""
        print(f"{dataset} {names}{more}: {status}: {reason}")
    claimed = sum(outcome.status == "claimed" for _, outcome in progress.outcomes)
    if claimed:
        print(f"{claimed} run{'s are' if claimed > 1 else ' is'} still in the hands of other processes.")
    return FAILED if bad else INCOMPLETE if claimed else COMPLETE


COMMANDS = (Command("run", "train a grid of methods, data sets and seeds", run, TRAINING, Flags),)
