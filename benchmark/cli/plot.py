"""`plot curves|selection|ranks` from what a results folder holds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from benchmark.cli.exhibits import check_reference, show, under_its_profile, with_known_reference
from benchmark.cli.options import SELECTION, Command, Request
from benchmark.cli.training import place_of, selection_of
from benchmark.errors import COMPLETE, CandidError, UsageError
from benchmark.exhibits.base import Exhibit, FolderPlot, Inputs, Output, all_exhibits


def of_profile(exhibit: Exhibit, request: Request, own: Any) -> int:
    """A plot of the runs that a profile plans."""
    selection = selection_of(under_its_profile(request, exhibit, own))
    own = with_known_reference(own, selection)
    check_reference(exhibit, own, selection.methods)
    inputs = Inputs(selection, exhibit.required_runs(selection, own), place_of(request))
    show(Output(exhibit.make(inputs, own), selection.profile.name, exhibit.stem(own, selection.altered)), request)
    return COMPLETE


def of_folder(exhibit: FolderPlot, request: Request, own: Any) -> int:
    """A plot of whatever runs are there."""
    from benchmark import store
    from benchmark.config.profile import profile_name
    from benchmark.config.selection import as_known, short_list
    from datasets.registry import SOURCES
    from methods.registry import discover

    results = request.results
    runs = store.current_runs(results, request.profile, request.plugins)
    frame = store.epoch_frame(runs)
    if frame.empty:
        raise CandidError(f"There are no runs in {results}; train some first, for example `./reproduce.sh table2`.")
    entries = discover(request.plugins, tolerant=True).entries.values()
    chosen = {
        "method": as_known((request.methods or "").split(","), entries),
        "dataset": as_known((request.datasets or "").split(","), SOURCES.values()),
    }
    for column, wanted in chosen.items():
        if any(wanted):
            there = set(frame[column]) | set(frame["label"])
            unknown = [w for w in wanted if w not in there]
            if unknown:
                known = ", ".join(sorted(set(frame[column])))
                raise UsageError(f"--{column}s: no run of '{unknown[0]}' in {results}; there are {known}.")
            frame = frame[frame[column].isin(wanted) | frame["label"].isin(wanted)]
    if getattr(own, "reference", None) is not None:
        own = replace(own, reference=as_known((own.reference,), entries)[0])
        check_reference(exhibit, own, sorted(set(frame["method"])))
    figure = exhibit.draw(frame, chosen["method"], {entry.name: entry.title for entry in entries}, own)
    named = "-".join(
        short_list([name for name in words if name], f"{kind}s") for kind, words in chosen.items() if any(words)
    )
    profiles = [request.profile] if request.profile else sorted(set(frame["profile"]))
    folder = profile_name(profiles[0]) if len(profiles) == 1 else "all"
    show(Output(figure, folder, exhibit.stem(own, named)), request)
    return COMPLETE


def _command(exhibit: Exhibit) -> Command:
    if isinstance(exhibit, FolderPlot):
        takes: tuple[str, ...] = ("profile", "results", "plugins", "methods", "datasets", "out")
        return Command(exhibit.name, exhibit.title, partial(of_folder, exhibit), takes, exhibit.Options)
    takes = (*(name for name in SELECTION if name != "data"), "out")
    return Command(exhibit.name, exhibit.title, partial(of_profile, exhibit), takes, exhibit.Options)


COMMANDS = (
    Command(
        "plot",
        "accuracy curves with seed bands, ranks, selection rules, from the results folder",
        parts=tuple(_command(exhibit) for exhibit in all_exhibits() if exhibit.kind == "plot"),
    ),
)
