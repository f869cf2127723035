"""Choose what a free slot does next: draw a candidate set that runs need, or do a run whose set is there.

A run starts as soon as its own set is ready. Sets of different datasets are drawn side by side; one that another process
is drawing is passed over while there is anything else to do.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.config.spec import canonical
from benchmark.files import is_locked

if TYPE_CHECKING:
    from benchmark.config.spec import RunSpec
    from methods.registry import Entry

PAUSE = 0.5  # seconds before asking again for what another process has


@dataclass
class CandidateJob:
    """Candidate sets that share data and annotator: one slot draws them, and trains the annotator with the first."""

    dataset: str
    specs: dict[str, RunSpec] = field(default_factory=dict)  # by shared key, a run of each set that is not yet drawn
    taken: bool = False
    lock: Path | None = None  # of the process that is drawing them
    not_before: float = 0.0
    warned: bool = False  # that the sets are doubtful


@dataclass
class PendingRun:
    """A run that is to be done."""

    spec: RunSpec
    key: str  # shared
    was_claimed: bool = False  # by another process
    not_before: float = 0.0


class Schedule:
    """The work of one command; each slot asks for it from a thread of its own."""

    def __init__(self, specs: Sequence[RunSpec], slots: int, runs: bool = True, wait: bool = True) -> None:
        self.slots, self.wait = slots, wait
        self.runs = [PendingRun(spec, shared_key(spec)) for spec in specs] if runs else []
        self.jobs = candidate_jobs(specs)
        self.ready: set[str] = set()  # shared keys
        self.unusable: set[str] = set()
        self.busy, self.preparing = 0, 0  # slots at work, and those of them that draw candidate sets
        self.over = False
        self.change = threading.Condition()

    def take(self) -> CandidateJob | PendingRun | None:
        """Return the next work as soon as there is some, or None if there will be none."""
        with self.change:
            while not self.over:
                work = self._next()
                if work is not None:
                    self.busy += 1
                    self.preparing += isinstance(work, CandidateJob)
                    return work
                if not self.runs and not self.jobs and not self.busy:
                    break
                self.change.wait(PAUSE)
            self.change.notify_all()
            return None

    def _next(self) -> CandidateJob | PendingRun | None:
        now = time.monotonic()
        run = next((r for r in self.runs if r.key in self.ready and r.not_before <= now), None)
        free = (job for job in self.jobs if not job.taken and job.not_before <= now)
        job = next((job for job in free if job.lock is None or not is_locked(job.lock)), None)
        # One slot of several is always ahead with the next set; a single one draws it when nothing else is left.
        if job is not None and (run is None or (self.slots > 1 and not self.preparing)):
            job.taken = True
            return job
        if run is not None:
            self.runs.remove(run)
        return run

    def prepared(self, key: str, usable: bool = True) -> list[RunSpec]:
        """Record that a set was drawn, or cannot be; return the runs that cannot be done without it."""
        with self.change:
            if usable:
                self.ready.add(key)
                self.change.notify_all()
                return []
            self.unusable.add(key)
            lost = [run.spec for run in self.runs if run.key == key]
            self.runs = [run for run in self.runs if run.key != key]
            return lost

    def leave(self, work: CandidateJob | PendingRun) -> None:
        """Free the slot. Sets that are not all drawn are asked for later."""
        with self.change:
            self.busy -= 1
            if isinstance(work, CandidateJob):
                self.preparing -= 1
                work.taken, work.not_before = False, time.monotonic() + PAUSE
                settled = self.ready | self.unusable
                work.specs = {key: spec for key, spec in work.specs.items() if key not in settled}
                if not work.specs:
                    self.jobs.remove(work)
            self.change.notify_all()

    def put_back(self, run: PendingRun) -> bool:
        """Put a run that another process has behind all others; return False if that is not to be waited for."""
        if run.was_claimed and not self.wait:
            return False
        with self.change:
            not_before = time.monotonic() + PAUSE if self.wait else 0.0
            self.runs.append(PendingRun(run.spec, run.key, True, not_before))
        return True

    def elsewhere(self) -> int:
        return sum(run.was_claimed for run in list(self.runs))

    def stop(self) -> None:
        """Begin nothing more. Takes no lock, because a signal handler calls it."""
        self.over = True


def shared_key(spec: RunSpec) -> str:
    """Return a key that is equal for runs that share data, annotator and candidate labels."""
    config = spec.to_json()
    return canonical([config[key] for key in ("dataset", "annotator", "backbone", "seed")])


def candidate_jobs(specs: Sequence[RunSpec]) -> list[CandidateJob]:
    """Group the candidate sets of runs by their annotator, in the order of the runs."""
    jobs: dict[str, CandidateJob] = {}
    for spec in specs:
        config = spec.to_json()
        split = spec.data_seed if spec.data.split < 0 else 0  # another split has another annotator
        key = canonical([*(config[name] for name in ("dataset", "annotator", "backbone")), split])
        jobs.setdefault(key, CandidateJob(spec.dataset)).specs.setdefault(shared_key(spec), spec)
    return list(jobs.values())


def cost(spec: RunSpec, entry: Entry) -> float:
    """Return a number that grows with the length of a run, to start the longest first: passes × images × epochs."""
    from datasets import registry  # imports NumPy, which `--help` does without

    forwards = re.search(r"[\d.]+", entry.forwards)  # of a whole network per sample and step, as the method declares
    passes = 1 + 2 * (float(forwards[0]) if forwards else 1.0)
    train_size = registry.get(spec.paths.get("dataset") or spec.dataset).train_size
    return passes * float(spec.dataset_settings.get("train") or train_size or 1000) * spec.train.epochs
