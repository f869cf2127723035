"""Joining results folders: finished runs and their candidate sets are copied, nothing is overwritten, conflicts are named."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.files import is_locked
from benchmark.kept import PREDICTIONS
from benchmark.share.reading import MODEL_FILES, Held, candidate_files, candidate_matrix, forgeries, regular, runs_in
from benchmark.store import RunFolder

COPIED = ("run.json", "metrics.jsonl", "metrics.jsonl.gz", "log.txt", PREDICTIONS, *MODEL_FILES)


@dataclass
class Plan:
    """What a merge would do, or has done."""

    runs: list[Held] = field(default_factory=list)
    sets: list[Path] = field(default_factory=list)
    already: int = 0
    unfinished: int = 0
    conflicts: list[str] = field(default_factory=list)


def plan(source: Path, target: Path) -> Plan:
    """Compare two results folders; neither is touched."""
    made = Plan()
    stored = candidate_files(source)
    bad_sets = _sets(source, target, made)
    there = {held.place: held for held in runs_in(target)}
    here = set(candidate_files(target))
    for held in runs_in(source):
        document = held.document
        if document is None:
            made.conflicts.append(f"{held.place}: {held.problem}; it is not taken.")
            continue
        if document["status"] != "done":
            made.unfinished += 1
            continue
        wrong = forgeries(held)
        sha = document.get("candidates_sha256", "")
        if wrong:
            made.conflicts.append(f"{held.name}: {wrong[0]}; it is not taken.")
        elif sha in bad_sets:
            made.conflicts.append(f"{held.name}: its candidate set {bad_sets[sha]}; it is not taken.")
        elif held.place in there:
            _same_place(held, there[held.place], made)
        else:
            if sha not in stored and sha not in here and document["config"]["dataset"].get("generator") != "own":
                made.conflicts.append(f"{held.name}: its candidate set is in neither folder; it is taken all the same.")
            made.runs.append(held)
    return made


def _sets(source: Path, target: Path, made: Plan) -> dict[str, str]:
    """Candidate files to copy; by SHA-256 what is wrong with the others."""
    bad, known = {}, candidate_files(target)
    for sha, path in candidate_files(source).items():
        other = target / path.relative_to(source)
        try:
            candidate_matrix(path)
        except ValueError as error:
            bad[sha] = f"is damaged ({path.name}: {error})"
            continue
        if not other.exists():
            made.sets.append(path)
        elif sha not in known:
            bad[sha] = f"is another one than {other} has for the same request (made on another machine)"
    annotators = [p for p in sorted((source / "candidates").glob("*/annotator-*.npz")) if regular(p)]
    made.sets += [path for path in annotators if not (target / path.relative_to(source)).exists()]
    return bad


def _same_place(held: Held, other: Held, made: Plan) -> None:
    """A run that both have: equal, or a conflict."""
    assert held.document is not None
    if other.document is None:
        made.conflicts.append(f"{held.name}: {other.path} is half there ({other.problem}); remove it and merge again.")
    elif is_locked(other.path / "lock"):
        made.conflicts.append(f"{held.name}: it is being done right now; merge again when it has ended.")
    elif other.document["status"] != "done":
        made.conflicts.append(
            f"{held.name}: {other.document['status']} there; `clean --failed --interrupted` removes it, then merge again."
        )
    elif _numbers(held.document) == _numbers(other.document):
        made.already += 1
    else:
        made.conflicts.append(f"{held.name}: done in both with other numbers; the one that was there stays.")


def _numbers(document: dict[str, Any]) -> tuple[Any, ...]:
    return document["identity"], document.get("weights_sha256"), document.get("summary")


def carry_out(made: Plan, source: Path, target: Path) -> None:
    """Copy what the plan names; a run folder appears whole or not at all."""
    for path in made.sets:
        other = target / path.relative_to(source)
        other.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=other.parent, prefix=f".{other.name}.", delete=False) as partial:
            partial.write(path.read_bytes())
        os.chmod(partial.name, 0o644)
        os.replace(partial.name, other)
    for held in made.runs:
        other = target / held.place
        other.parent.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(dir=other.parent, prefix=f".{other.name}."))
        try:
            for name in COPIED:
                if regular(held.path / name):
                    shutil.copyfile(held.path / name, staged / name)
            if held.packed and held.document:
                fresh = RunFolder(staged)
                fresh.write(held.document)
                for record in held.packed.epochs():
                    fresh.append_epoch(record)
            staged.chmod(0o755)
            os.rename(staged, other)  # fails if somebody has made the folder in the meantime
        except BaseException:
            shutil.rmtree(staged, ignore_errors=True)
            raise
