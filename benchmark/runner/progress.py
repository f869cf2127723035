"""How a command shows what it is doing: a line per running job and a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.accuracy import SELECTING, in_words
from benchmark.runner.annotators import annotators
from benchmark.runner.options import Outcome
from benchmark.store import TUNING, StoredRun, find

if TYPE_CHECKING:
    from benchmark.config.spec import RunSpec

BAR = 30
PATIENCE = 10.0  # seconds before plain output says what it waits for
HEARTBEAT = 60.0  # seconds between two plain lines on one annotator or run


@dataclass
class Progress:
    """How far a set of runs is; a back-end writes it, a display reads it."""

    total: int
    preparing: dict[int, str] = field(default_factory=dict)  # by slot: data sets whose candidate labels are being made
    running: dict[int, RunSpec] = field(default_factory=dict)  # by slot
    outcomes: list[tuple[RunSpec, Outcome]] = field(default_factory=list)
    elsewhere: int = 0  # runs that other processes have
    started: float = field(default_factory=time.time)


Display = Callable[[Progress], None]


def display_for(quiet: bool, results: Path) -> Display | None:
    """The display that fits where the output goes."""
    if quiet:
        return None
    return Terminal(results) if sys.stdout.isatty() else Lines(results)


def blind(spec: RunSpec) -> bool:
    """Whoever chooses a setting must not see test accuracies on the way."""
    return spec.purpose == TUNING


def outcome_line(spec: RunSpec, outcome: Outcome) -> str:
    head = f"{spec.dataset} {spec.label} seed {spec.seed}"
    if outcome.status == "done":
        result = outcome.told or "trained" if outcome.accuracy is None else f"{outcome.accuracy:.2f} %"
        result = "trained" if blind(spec) else result
        return f"{head}: {result} in {duration(outcome.seconds)}"
    return f"{head}: {outcome.status}{f': {outcome.reason}' if outcome.reason else ''}"


def duration(seconds: float) -> str:
    """'8 s', '3 min 20 s', '2 h 05 min'."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


def preparing_lines(names: Iterable[str], results: Path) -> list[str]:
    """What is going on for data sets whose candidate labels are being made: their annotators, or what comes before."""
    lines = []
    for name in sorted(set(names)):
        training = [found for found in annotators(results, name) if found.status == "running"]
        lines += [
            f"{name}: {found.words()}{f', {duration(found.seconds_left)} left' if found.seconds_left else ''}"
            for found in training
        ]
        if not training:
            lines.append(f"{name}: making its candidate labels")
    return lines


class Jobs:
    """How far running jobs are, from what they have written so far."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self.folders: dict[str, StoredRun] = {}
        self.since: dict[str, tuple[float, int]] = {}  # when this process first saw a run, and at which epoch

    def line(self, spec: RunSpec) -> str:
        head = f"{spec.dataset} {spec.label} seed {spec.seed}"
        folder = self.folders.get(spec.digest)
        if folder is None:
            found = find(self.results, spec)
            if found is None:
                return f"{head}: starting"
            folder = self.folders[spec.digest] = found
        epochs, total = folder.epochs(), spec.train.epochs
        start, first = self.since.setdefault(spec.digest, (time.time(), len(epochs)))
        if not epochs:
            return f"{head}: epoch 0/{total}"
        results = [record["result"] for record in reversed(epochs)]
        if blind(spec):
            results = [{key: result.get(key) for key in SELECTING.values()} for result in results]
        shown = next((f", {told}" for told in map(in_words, results) if told), "")
        left = ""
        if len(epochs) > first:
            left = f", {duration((time.time() - start) / (len(epochs) - first) * (total - len(epochs)))} left"
        return f"{head}: epoch {len(epochs)}/{total}{shown}{left}"


class Lines:
    """One plain line per finished run, and now and then one per run and per data set that is being prepared."""

    def __init__(self, results: Path) -> None:
        self.results, self.jobs = results, Jobs(results)
        self.shown = 0
        self.next: dict[str, float] = {}  # when to speak of a data set or a run

    def __call__(self, progress: Progress) -> None:
        now = time.time()
        for name in sorted(set(progress.preparing.values())) if now - progress.started > PATIENCE else ():
            if now >= self.next.get(name, 0):
                self.next[name] = now + HEARTBEAT
                print("\n".join(preparing_lines([name], self.results)), flush=True)
        for _, spec in sorted(progress.running.items()):
            if now >= self.next.setdefault(spec.digest, now + HEARTBEAT):
                self.next[spec.digest] = now + HEARTBEAT
                print(self.jobs.line(spec), flush=True)
        for spec, outcome in progress.outcomes[self.shown :]:
            self.shown += 1
            if not outcome.skipped:
                print(f"[{self.shown}/{progress.total}] {outcome_line(spec, outcome)}", flush=True)


class Terminal:
    """Running jobs with epoch, accuracy and time left, and an overall bar; redrawn in place."""

    def __init__(self, results: Path) -> None:
        self.results, self.jobs = results, Jobs(results)
        self.shown, self.height, self.last, self.ended = 0, 0, 0.0, False

    def __call__(self, progress: Progress) -> None:
        finished = progress.outcomes[self.shown :]
        over = not progress.running and not progress.preparing and len(progress.outcomes) >= progress.total
        if not finished and (self.ended if over else time.time() - self.last < 0.5):
            return
        self.last, self.ended = time.time(), over
        out = [f"\x1b[{self.height}A\x1b[J"] if self.height else []
        for spec, outcome in finished:
            self.shown += 1
            if not outcome.skipped:
                out.append(outcome_line(spec, outcome) + "\n")
        width, height = shutil.get_terminal_size()
        lines = [] if over else self._jobs(progress, max(1, height - 3))
        lines += [self._bar(progress)] if progress.total else []
        lines = [line[: width - 1] for line in lines]  # one that wraps would be two, and the next redraw one too short
        self.height = 0 if over else len(lines)
        sys.stdout.write("".join(out) + "".join(f"{line}\n" for line in lines))
        sys.stdout.flush()

    def _jobs(self, progress: Progress, most: int) -> list[str]:
        """What is going on, a line each, in as many lines as there is room for."""
        running = sorted(progress.running.items())
        room = most if len(running) <= most else most - 1
        lines = [f"  {line}" for line in preparing_lines(progress.preparing.values(), self.results)]
        lines += [f"  {self.jobs.line(spec)}" for _, spec in running[:room]]
        return lines + ([f"  and {len(running) - room} more"] if len(running) > room else [])

    def _bar(self, progress: Progress) -> str:
        done, total = len(progress.outcomes), max(progress.total, 1)
        filled = BAR * done // total
        elapsed = time.time() - progress.started
        left = f", about {duration(elapsed / done * (total - done))} left" if 0 < done < total else ""
        waiting = f", {progress.elsewhere} in another process" if progress.elsewhere else ""
        return f"[{'█' * filled}{'·' * (BAR - filled)}] {done}/{total} runs, {duration(elapsed)}{left}{waiting}"
