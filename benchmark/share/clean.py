"""What a results folder could do without: failed and outdated runs, checkpoints, kept files. Runs in progress are left alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmark import store
from benchmark.files import is_locked
from benchmark.kept import PREDICTIONS
from benchmark.report.scope import Scope, choose
from benchmark.report.sections import outdated, views_of
from benchmark.share.reading import MODEL_FILES, Held, runs_in
from benchmark.store import RunFolder, current_sources, source_of


@dataclass(frozen=True)
class Waste:
    """Something that can be removed: a whole run folder, or one file of it."""

    path: Path
    place: str
    reason: str

    @property
    def size(self) -> int:
        parts = [self.path] if self.path.is_file() else [p for p in self.path.rglob("*") if p.is_file()]
        return sum(part.stat().st_size for part in parts)

    def remove(self) -> bool:
        """False if a process has taken the run in the meantime."""
        folder = RunFolder(self.path if self.path.is_dir() else self.path.parent)
        if not folder.lock.acquire():
            return False
        try:
            if self.path.is_dir():
                shutil.rmtree(self.path)
                _remove_empty(self.path.parent)
            else:
                self._forget(folder)
                self.path.unlink(missing_ok=True)
        finally:
            folder.lock.release()
        return True

    def _forget(self, folder: RunFolder) -> None:
        """The document no longer names a kept file that is removed, or the run would seem to have it."""
        document = folder.read()
        if document is not None and self.path.name in (document.get("files") or {}):
            document["files"] = {name: d for name, d in document["files"].items() if name != self.path.name}
            folder.write(document)


def _remove_empty(folder: Path) -> None:
    """The folders of method, data set and profile, if this was their last run."""
    for part in (folder, *folder.parents[:2]):
        try:
            part.rmdir()
        except OSError:
            return


Finder = Callable[[list[Held], Path, Scope], Iterator[Waste]]


def _ended(*states: str) -> Finder:
    def find(runs: list[Held], results: Path, scope: Scope) -> Iterator[Waste]:
        for held in runs:
            state = "" if held.document is None else store.state_of(held.folder, held.document)
            if held.document is not None and state in states:
                reason = str(held.document.get("reason") or "")
                yield Waste(held.path, held.name, state + (f": {reason}" if reason else ""))

    return find


def _damaged(runs: list[Held], results: Path, scope: Scope) -> Iterator[Waste]:
    for held in runs:
        if held.document is None:
            yield Waste(held.path, held.place, held.problem)


def _outdated(runs: list[Held], results: Path, scope: Scope) -> Iterator[Waste]:
    """Finished runs of another version of a plug-in, or of other values than their profile has today."""
    catalogue = scope.catalogue()
    chosen = choose(results, scope, catalogue)
    sources = current_sources(held.document for held in runs if held.document)
    stale = {digest for view in views_of(chosen, catalogue, scope) for digest in outdated(view)}
    current = {str(folder.path) for folder, _ in chosen.runs}
    for held in runs:
        document = held.document
        if document is None or document["status"] != "done":
            continue
        if str(held.path) not in current and source_of(document) != sources[document["method"]]:
            yield Waste(held.path, held.name, "another version of the plug-in")
        elif document["config_digest"] in stale:
            yield Waste(held.path, held.name, f"profile {document['profile']} has other values today")


def _files(*patterns: str, done: bool) -> Finder:
    def find(runs: list[Held], results: Path, scope: Scope) -> Iterator[Waste]:
        for held in runs:
            if held.document is None or (done and held.document["status"] != "done"):
                continue
            for path in sorted(path for pattern in patterns for path in held.path.glob(pattern)):
                yield Waste(path, f"{held.name}, {path.name}", f"the run is {held.document['status']}")

    return find


KINDS: dict[str, Finder] = {
    "failed": _ended("failed", "diverged", "oom"),
    "interrupted": _ended("interrupted"),
    "outdated": _outdated,
    "damaged": _damaged,
    "checkpoints": _files("checkpoint*.pt*", "*.damaged*", done=False),
    "predictions": _files(PREDICTIONS, done=True),
    "models": _files(*MODEL_FILES, done=True),
}


def waste(results: Path, kind: str, scope: Scope) -> list[Waste]:
    """What of one kind could be removed; runs that a process is doing are left alone."""
    name = scope.profile_name
    runs = [
        held
        for held in runs_in(store.existing(results))
        if held.packed is None
        and held.path.is_dir()
        and not is_locked(held.path / "lock")
        and (name is None or held.document is None or held.document["profile"] == name)
    ]
    return list(KINDS[kind](runs, results, scope))
