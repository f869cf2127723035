"""What a free slot does next: make a candidate set that runs wait for, or do a run whose set is there.

A run starts as soon as its own set is ready. Sets of different data sets are made side by side; one that another process
is making is passed over while there is anything else to do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.config.spec import canonical
from benchmark.errors import warn
from benchmark.files import is_locked
from benchmark.runner.options import Outcome

if TYPE_CHECKING:
    from benchmark.config.spec import RunSpec

PAUSE = 0.5  # seconds before what another process has is asked for again


@dataclass
class Sets:
    """Candidate sets that share data and annotator: one slot makes them, the annotator with the first."""

    name: str
    specs: dict[str, RunSpec] = field(default_factory=dict)  # by shared key, a run of each set that is still to be made
    taken: bool = False
    lock: Path | None = None  # of the process that is making them
    again: float = 0.0  # when to ask again
    doubted: bool = False  # that they are worth little has been said


@dataclass
class Waiting:
    """A run that is to be done."""

    spec: RunSpec
    key: str  # shared
    was_claimed: bool = False  # another process had it
    again: float = 0.0


class Schedule:
    """The work of one command; slots ask it from threads of their own."""

    def __init__(self, specs: Sequence[RunSpec], slots: int, runs: bool = True, wait: bool = True) -> None:
        self.slots, self.wait = slots, wait
        self.runs = [Waiting(spec, shared_key(spec)) for spec in specs] if runs else []
        self.sets = grouped(specs)
        self.ready: set[str] = set()  # shared keys
        self.unusable: dict[str, str] = {}  # by shared key, why
        self.busy, self.preparing = 0, 0  # slots at work, those of them that make sets
        self.over = False
        self.change = threading.Condition()

    def take(self) -> Sets | Waiting | None:
        """The next work, as soon as there is some; None if there will be none."""
        with self.change:
            while not self.over:
                work = self._next()
                if work is not None:
                    self.busy += 1
                    self.preparing += isinstance(work, Sets)
                    return work
                if not self.runs and not self.sets and not self.busy:
                    break
                self.change.wait(PAUSE)
            self.change.notify_all()
            return None

    def _next(self) -> Sets | Waiting | None:
        now = time.monotonic()
        run = next((r for r in self.runs if r.key in self.ready and r.again <= now), None)
        group = next((g for g in self.sets if not g.taken and g.again <= now and not _held(g)), None)
        # One slot of several is always ahead with the next set; a single one makes it when nothing else is left.
        if group is not None and (run is None or (self.slots > 1 and not self.preparing)):
            group.taken = True
            return group
        if run is not None:
            self.runs.remove(run)
        return run

    def prepared(self, key: str, reason: str = "") -> list[RunSpec]:
        """A set is there, or cannot be had; the runs that are lost by it."""
        with self.change:
            if not reason:
                self.ready.add(key)
                self.change.notify_all()
                return []
            self.unusable[key] = reason
            lost = [run for run in self.runs if run.key == key]
            self.runs = [run for run in self.runs if run.key != key]
            return [run.spec for run in lost]

    def leave(self, work: Sets | Waiting) -> None:
        """The slot is free again. Sets that are not all made are asked for later, a run if it was put back."""
        with self.change:
            self.busy -= 1
            if isinstance(work, Sets):
                self.preparing -= 1
                work.taken, work.again = False, time.monotonic() + PAUSE
                work.specs = {k: s for k, s in work.specs.items() if k not in self.ready and k not in self.unusable}
                if not work.specs:
                    self.sets.remove(work)
            self.change.notify_all()

    def put_back(self, run: Waiting) -> bool:
        """A run that another process has comes behind all others, once or as long as it takes; whether it does."""
        if run.was_claimed and not self.wait:
            return False
        with self.change:
            self.runs.append(Waiting(run.spec, run.key, True, time.monotonic() + PAUSE if self.wait else 0.0))
        return True

    def elsewhere(self) -> int:
        return sum(run.was_claimed for run in list(self.runs))

    def stop(self) -> None:
        """Nothing is begun any more. Called by a signal handler, so it waits for nobody."""
        self.over = True


def say_doubts(sets: Sets, outcome: Outcome) -> None:
    """Candidate sets that are made and worth little, said once per annotator: their sizes look right."""
    if outcome.status == "done" and outcome.reason and not sets.doubted:
        sets.doubted = True
        warn(f"{sets.name}: {outcome.reason}")


def _held(group: Sets) -> bool:
    return group.lock is not None and is_locked(group.lock)


def shared_key(spec: RunSpec) -> str:
    """Runs with the same key share data, annotator and candidate labels."""
    config = spec.config.to_json()
    return canonical([config[key] for key in ("dataset", "annotator", "backbone", "seed")])


def grouped(specs: Sequence[RunSpec]) -> list[Sets]:
    """The sets of runs, those with one annotator together, in the order of the runs."""
    groups: dict[str, Sets] = {}
    for spec in specs:
        config = spec.config.to_json()
        split = spec.data_seed if spec.data.split < 0 else 0  # another split is another annotator
        key = canonical([*(config[name] for name in ("dataset", "annotator", "backbone")), split])
        groups.setdefault(key, Sets(spec.dataset)).specs.setdefault(shared_key(spec), spec)
    return list(groups.values())
