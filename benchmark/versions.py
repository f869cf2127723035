"""Two versions of a plug-in are two methods: which one counts, and what the others are called.

A run's configuration holds the SHA-256 of the plug-in's file; a method of the tree has none, its version is the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

SHORT = 8  # characters of a digest
Wanted = Literal["newest", "all"] | Mapping[str, str]  # or by method, the source that counts


def source_of(document: Mapping[str, Any]) -> str:
    """Short digest of the source of a run's method; empty for a method of the tree."""
    config = document.get("config")
    method = config.get("method") if isinstance(config, dict) else None
    source = method.get("source") if isinstance(method, dict) else None
    return source[:SHORT] if isinstance(source, str) else ""


def _last(document: Mapping[str, Any]) -> str:
    """When a run ended, or else began, to the minute."""
    time = document.get("time")
    known = time if isinstance(time, dict) else {}
    return str(known.get("finished") or known.get("started") or "")[:16].replace("T", " ")


@dataclass
class Version:
    """The runs of one source of a method."""

    method: str
    source: str
    runs: int = 0
    done: int = 0
    last: str = ""  # date of its newest run, of the finished ones if there are any

    def add(self, document: Mapping[str, Any]) -> None:
        self.runs += 1
        finished, when = document.get("status") == "done", _last(document)
        if finished and not self.done:
            self.last = when
        elif finished or not self.done:
            self.last = max(self.last, when)
        self.done += finished

    def left_out(self) -> str:
        many = f"{self.runs} run{'s' if self.runs > 1 else ''}"
        return (
            f"{self.method} of {self.last or 'unknown date'} (source {self.source or 'of the tree'}, {many}) is another "
            f"version of the method and is left out."
        )


class Versions:
    """Every source of every method in a set of runs.

    The newest counts, by its last finished run; one without any counts only where no other has one. `wanted` names the
    source of some methods instead.
    """

    def __init__(self, documents: Iterable[Mapping[str, Any]], wanted: Wanted = "newest") -> None:
        self.everything = wanted == "all"
        self.given = {} if isinstance(wanted, str) else {name: source[:SHORT] for name, source in wanted.items()}
        self._found: dict[str, dict[str, Version]] = {}
        for document in documents:
            method, source = str(document.get("method")), source_of(document)
            known = self._found.setdefault(method, {})
            known.setdefault(source, Version(method, source)).add(document)

    def current(self, method: str) -> str:
        """The source that counts."""
        if method in self.given:
            return self.given[method]
        known = self._found.get(method, {}).values()
        return max(known, key=lambda v: (v.done > 0, v.last, v.source)).source if known else ""

    def keeps(self, document: Mapping[str, Any]) -> bool:
        return self.everything or source_of(document) == self.current(str(document.get("method")))

    def every(self) -> list[Version]:
        """By method and date."""
        found = [version for known in self._found.values() for version in known.values()]
        return sorted(found, key=lambda v: (v.method, v.last, v.source))

    def others(self) -> list[Version]:
        """What does not count."""
        return [version for version in self.every() if version.source != self.current(version.method)]

    def mark(self, document: Mapping[str, Any]) -> str:
        """What follows the label of a run whose version does not count: its date, and the source where dates are equal."""
        method, source = str(document.get("method")), source_of(document)
        if source == self.current(method):
            return ""
        last = self._found[method][source].last
        alone = [v.last for v in self._found[method].values()].count(last) == 1
        beside = "" if alone else f", source {source or 'of the tree'}"
        return f" (of {last or 'unknown date'}{beside})"

    def notes(self) -> list[str]:
        """A sentence for every version that is left out."""
        return [] if self.everything else [version.left_out() for version in self.others()]
