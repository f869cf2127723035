"""`status`: per profile what is there, live from another shell."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmark.accuracy import SELECTING, in_words
from benchmark.cli.options import CHOICE, Command, Request
from benchmark.cli.training import selection_of
from benchmark.config.profile import profile_name
from benchmark.errors import COMPLETE, UsageError
from benchmark.exhibits.base import NoFlags
from benchmark.store import Store, StoredRun, readable


def run(request: Request, own: NoFlags) -> int:
    from benchmark.config.profile import load_profile

    store = Store(request.results)
    if request.profile and profile_name(request.profile) not in store.profiles:
        load_profile(request.profile)  # an unknown name without any run is a slip of the keyboard
    for name in [request.profile] if request.profile else sorted({*store.profiles, "quick"}):
        for title, runs, missing in (
            (name, store.of_profile(name), _missing(name, request, store)),
            (f"{name}, tuning", store.tuning_runs(name), 0),
        ):
            runs = readable(runs)
            counts = {**Counter(run.status for run in runs), "missing from table2": missing}
            counted = ", ".join(f"{n} {state}" for state, n in counts.items() if n)
            if counted or title == name:
                print(f"{title}: {counted or 'nothing yet'}")
            _print_unfinished(runs)
    _print_annotators(request.results)
    return COMPLETE


def _print_annotators(results: Path) -> None:
    """The clean-label networks behind candidate sets; profiles share them. Finished ones are counted only."""
    from benchmark.runner.annotators import annotators
    from benchmark.runner.progress import duration

    found = list(annotators(results))
    if found:
        counts = Counter(each.status for each in found)
        print("annotators: " + ", ".join(f"{n} {status}" for status, n in counts.items()))
    for each in found:
        if each.status == "running":
            left = f", about {duration(each.seconds_left)} left" if each.seconds_left else ""
            print(f"  {each.dataset} {each.words()}{left} on {each.host}")
        elif each.status != "done":
            print(f"  {each.dataset} {each.words()}: {each.status}{f': {each.reason}' if each.reason else ''}")


def _print_unfinished(runs: list[StoredRun]) -> None:
    running = [run for run in runs if run.status == "running"]
    for run in runs:
        document = run.document
        head = f"  {document['dataset']} {document['label']} seed {document['seed']}"
        if run in running:
            print(f"{head}: {_live(run)}")
        elif run.status != "done":
            print(f"{head}: {run.status}{': ' + document['reason'] if document.get('reason') else ''}")
    left = sum(map(_seconds_left, running))
    if left:
        from benchmark.runner.progress import duration

        print(f"  about {duration(left)} of computing left in running jobs")


def _missing(profile: str, request: Request, store: Store) -> int:
    """Return how many runs of the profile's own table were never started."""
    try:
        return store.status(selection_of(request, profile).specs()).count("missing")
    except UsageError:
        return 0  # a profile of somebody else's, known here only by its runs


def _live(run: StoredRun) -> str:
    epochs, total = run.epochs(), run.document["config"]["train"]["epochs"]
    results = [epoch["result"] for epoch in reversed(epochs)]
    if run.is_tuning:  # whoever chooses a setting must not see test accuracies
        results = [{key: result.get(key) for key in SELECTING.values()} for result in results]
    shown = next((f", {words}" for words in map(in_words, results) if words), "")
    return f"epoch {len(epochs)}/{total}{shown} on {run.document['time'].get('host', '?')}"


def _seconds_left(run: StoredRun) -> float:
    epochs = run.epochs()
    if not epochs:
        return 0.0
    per_epoch = sorted(e["time"]["seconds"] for e in epochs)[len(epochs) // 2]
    return per_epoch * (run.document["config"]["train"]["epochs"] - len(epochs))


COMMANDS = (
    Command(
        "status",
        "per profile: done, running, missing, failed with reasons",
        run,
        ("profile", "results", *CHOICE),
        writes=False,
    ),
)
