"""`status`: per profile what is there, live from another shell."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from benchmark.accuracy import in_words
from benchmark.cli.options import CHOICE, Command, Request
from benchmark.cli.training import selection_of
from benchmark.config.profile import profile_name
from benchmark.errors import COMPLETE, UsageError
from benchmark.exhibits.base import NoFlags
from benchmark.store import RunFolder


def run(request: Request, own: NoFlags) -> int:
    from benchmark.config.profile import load_profile
    from benchmark.runner.status import readable

    by_profile: dict[str, list[tuple[RunFolder, dict[str, Any], str]]] = {}
    for folder, document, state in readable(request.results, request.profile):
        by_profile.setdefault(document["profile"], []).append((folder, document, state))
    if request.profile and not by_profile:
        load_profile(request.profile)  # an unknown name without any run is a slip of the keyboard
    wanted = [request.profile] if request.profile else sorted({*by_profile, "quick"})
    for name in wanted:
        entries = by_profile.get(profile_name(name), [])
        counts = Counter(state for _, _, state in entries)
        counts |= _planned(name, request)
        print(f"{name}: " + (", ".join(f"{n} {state}" for state, n in counts.items() if n) or "nothing yet"))
        _print_unfinished(entries)
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


def _print_unfinished(entries: list[tuple[RunFolder, dict[str, Any], str]]) -> None:
    for folder, document, state in entries:
        head = f"  {document['dataset']} {document['label']} seed {document['seed']}"
        if state == "running":
            print(f"{head}: {_live(folder, document)}")
        elif state != "done":
            print(f"{head}: {state}{': ' + document['reason'] if document.get('reason') else ''}")
    left = sum(_seconds_left(folder, document) for folder, document, state in entries if state == "running")
    if left:
        from benchmark.runner.progress import duration

        print(f"  about {duration(left)} of computing left in running jobs")


def _planned(profile: str, request: Request) -> dict[str, int]:
    """Runs of the profile's own table that are not among its folders: to do, or done by another profile."""
    from benchmark.runner.status import standing

    try:
        now = standing(selection_of(request, profile).specs(), request.results)
    except UsageError:
        return {}  # a profile of somebody else's, known here only by its runs
    counts = Counter(f"done by profile {lender}" for lender in now.lenders.values())
    return {**counts, "missing from table2": now.count("missing")}


def _live(folder: RunFolder, document: dict[str, Any]) -> str:
    epochs = folder.epochs()
    total = document["config"]["train"]["epochs"]
    shown = next((f", {told}" for told in (in_words(e["result"]) for e in reversed(epochs)) if told), "")
    return f"epoch {len(epochs)}/{total}{shown} on {document['time'].get('host', '?')}"


def _seconds_left(folder: RunFolder, document: dict[str, Any]) -> float:
    epochs = folder.epochs()
    if not epochs:
        return 0.0
    per_epoch = sorted(e["time"]["seconds"] for e in epochs)[len(epochs) // 2]
    return per_epoch * (document["config"]["train"]["epochs"] - len(epochs))


COMMANDS = (
    Command(
        "status",
        "per profile: done, running, missing, failed with reasons",
        run,
        ("profile", "results", *CHOICE),
        writes=False,
    ),
)
