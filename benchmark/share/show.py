"""Everything about one cell on one screen: numbers, every value with its source, data, candidate sets, machines, commands."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmark import store
from benchmark.accuracy import ACCURACIES
from benchmark.analysis import statistics as st
from benchmark.analysis.table import NONE, aligned
from benchmark.errors import CandidError
from benchmark.plan.spec import values_by_source
from benchmark.report.scope import Scope
from benchmark.report.sections import View, command, definition_of, outdated, read_runs
from benchmark.share.reading import candidate_files, candidate_matrix
from benchmark.store import RunFolder, digest_of, printable, source_of
from methods.registry import did_you_mean

Run = tuple[RunFolder, dict[str, Any]]
INDENT = 14


def cell(
    results: Path, method: str, dataset: str, scope: Scope, sources: Mapping[str, str]
) -> tuple[list[Run], list[str]]:
    """The runs of one cell, and a sentence about each other group of runs that the words could mean."""
    found = store.current_runs(results, scope.profile, sources)
    on = [run for run in found if str(run[1]["dataset"]).lower() == dataset.lower()]
    if not on:
        there = sorted({str(document["dataset"]) for _, document in found})
        raise CandidError(_nothing(f"on '{dataset}'", dataset, there, results))
    exact = [run for run in on if str(run[1]["label"]).lower() == method.lower()]
    named = exact or [run for run in on if str(run[1]["method"]).lower() == method.lower()]
    if not named:
        raise CandidError(
            _nothing(f"of '{method}' on '{dataset}'", method, sorted({str(d["label"]) for _, d in on}), results)
        )
    groups: dict[str, list[Run]] = {}
    for run in named:
        document = run[1]
        alike = {**document["config"], "seed": None}
        groups.setdefault(f"{document['profile']} {document['label']} {digest_of(alike)}", []).append(run)
    ordered = sorted(groups.values(), key=lambda runs: max((d["status"] == "done", _last(d)) for _, d in runs))
    others = [_other(runs) for runs in ordered[:-1]]
    return sorted(ordered[-1], key=lambda run: run[1]["seed"]), others


def _nothing(what: str, word: str, there: Sequence[str], results: Path) -> str:
    known = f" There are {', '.join(there)}." if there else ""
    return f"There are no runs {what} in {results}.{did_you_mean(word.lower(), there)}{known}"


def _last(document: Mapping[str, Any]) -> str:
    return str(document["time"].get("finished") or document["time"].get("started") or "")


def _other(runs: Sequence[Run]) -> str:
    first, seeds = runs[0][1], ", ".join(str(d["seed"]) for _, d in runs)
    return f"{first['label']} of profile {first['profile']}, seeds {seeds}, last {max(_last(d) for _, d in runs)[:16]}"


def screen(runs: Sequence[Run], others: Sequence[str], results: Path, scope: Scope) -> str:
    """The text. `runs` differ in their seed alone."""
    first = runs[0][1]
    parts = [
        [f"{first['label']} on {first['dataset']}, profile {first['profile']}: {_mean(runs)}"],
        _numbers(runs),
        _field("Method", _method(first)),
        _values(first),
        _field("Candidates", *_candidates(runs, results)),
        *(_field(f"Sitting {i}" if i else "Sittings", line) for i, line in enumerate(_sittings(runs))),
        *_again(runs, scope),
        *(_field("Also here", line) for line in others),
    ]
    return "\n".join(str(printable(line)) for part in parts for line in part)


def _field(name: str, *lines: str) -> list[str]:
    """A name at the left, its text wrapped beside it."""
    width = max(60, shutil.get_terminal_size((120, 40)).columns)
    shown = []
    for line in lines:
        shown += textwrap.wrap(line, width - INDENT, break_long_words=False, break_on_hyphens=False) or [""]
    return [f"{name if i == 0 else '':<{INDENT}}{line}" for i, line in enumerate(shown)]


def _mean(runs: Sequence[Run]) -> str:
    values = [d["summary"].get("accuracy") for _, d in runs if d["status"] == "done"]
    if not values:
        return "no finished run"
    if None in values:
        return "not scored, for want of true labels"
    low, high = st.t_interval(values)
    spread = f" ± {st.sample_std(values):.2f}, 95 % interval {low:.2f} to {high:.2f}" if len(values) > 1 else ""
    return f"{st.mean(values):.2f} %{spread} over {len(values)} of {len(runs)} seeds"


def _numbers(runs: Sequence[Run]) -> list[str]:
    rows = [["seed", *(rule.title.lower() for rule in ACCURACIES), "state", "epochs", "weights", "folder"]]
    for folder, document in runs:
        summary = document.get("summary") or {}
        epochs, state = document["config"]["train"]["epochs"], store.state_of(folder, document)
        numbers = [summary.get(rule.key) if epochs >= rule.fewest else None for rule in ACCURACIES]
        rows.append(
            [
                str(document["seed"]),
                *(f"{value:.2f}" if store.is_number(value) and state == "done" else NONE for value in numbers),
                state + (f" ({document['reason']})" if document.get("reason") else ""),
                f"{document.get('epochs_done', 0)}/{epochs}",
                str(document.get("weights_sha256", ""))[: 64 if len(runs) == 1 else 16] or NONE,
                folder.path.name,
            ]
        )
    return [*(f"  {line}" for line in aligned(rows)), f"  in {runs[0][0].path.parent}"]


def _method(document: Mapping[str, Any]) -> str:
    source = source_of(document)
    return f"{document['method']}, " + (f"a plug-in with source {source}…" if source else "of the tree")


def _values(document: Mapping[str, Any]) -> list[str]:
    """Every value of the configuration under where it comes from."""
    config, by_source = document["config"], values_by_source(document["config"], document.get("provenance") or {})
    lines = [f"{source}: {' '.join(values)}" for source, values in by_source.items()]
    if "sha256" in config["dataset"]:
        lines.append(f"own data with SHA-256 {config['dataset']['sha256']}")
    return _field("Values", *lines, f"identity of seed {document['seed']}: {document['identity']}")


def _candidates(runs: Sequence[Run], results: Path) -> list[str]:
    files, lines = candidate_files(results), []
    for _, document in runs:
        sha = str(document.get("candidates_sha256", ""))
        path = files.get(sha)
        head = f"seed {document['seed']}: SHA-256 {sha}"
        if path is None:
            own = document["config"]["dataset"].get("generator") == "own"
            lines.append(f"{head}, {'part of the data' if own else 'no such file in ' + str(results / 'candidates')}")
            continue
        try:
            matrix, _ = candidate_matrix(path)
            lines.append(f"{head} in {path.relative_to(results)} (checked; {matrix.sum(1).mean():.2f} labels a row)")
        except ValueError as error:
            lines.append(f"{head} in {path.relative_to(results)}, which is damaged: {error}")
    return lines


def _sittings(runs: Sequence[Run]) -> list[str]:
    """One line for each machine and command; runs of one command share it."""
    shared: dict[str, list[str]] = {}
    for _, document in runs:
        time = document["time"]
        known = document.get("sittings") or [{**time, "environment": document.get("environment"), "typed": ""}]
        for number, sitting in enumerate(known, 1):
            shared.setdefault(_machine(sitting), []).append(
                f"seed {document['seed']}{f' ({number} of {len(known)})' if len(known) > 1 else ''} "
                f"{str(sitting.get('started', '?'))[:19]} to {str(sitting.get('finished', 'cut off'))[:19]}"
            )
    return [f"{'; '.join(when)}: {machine}" for machine, when in shared.items()]


def _machine(sitting: Mapping[str, Any]) -> str:
    where = sitting.get("environment") if isinstance(sitting.get("environment"), dict) else {}
    assert isinstance(where, dict)
    known = [f"{key} {value}" for key, value in where.items() if key not in ("device", "device_name") and value]
    typed = f". Typed: {sitting['typed']}" if sitting.get("typed") else ". What was typed is not recorded"
    host = f"{sitting['host']}, " if sitting.get("host") else ""
    return f"{host}{where.get('device', '?')} ({where.get('device_name', '?')}), {', '.join(known)}{typed}"


def _again(runs: Sequence[Run], scope: Scope) -> list[list[str]]:
    """The command that makes the cell again in another folder, and whether this checkout would make the same."""
    own, profile = read_runs(list(runs)), runs[0][1]["profile"]
    view = View(tuple(own), profile, own[0].setting, definition_of(profile, scope.profile), scope.catalogue())
    words = f"{command(view, own)} --results elsewhere"
    lines = [_field("Run it again", words)]
    if outdated(view):
        commit = str((runs[0][1].get("environment") or {}).get("commit") or "another commit")
        lines.append(_field("", f"Profile {profile} has other values now; the runs were made at commit {commit}."))
    return lines
