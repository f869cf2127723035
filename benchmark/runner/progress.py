"""Show the progress of a command: bars on a terminal; elsewhere a line per finished run and a heartbeat."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmark.accuracy import SELECTING, in_words
from benchmark.runner.options import Outcome, run_title
from benchmark.store import TUNING, StoredRun, annotators, find

if TYPE_CHECKING:
    from benchmark.config.spec import RunSpec

SHOW_SECONDS = 0.5  # between two looks at the records of running jobs
PATIENCE = 10.0  # seconds before plain output names the datasets in preparation
HEARTBEAT = 60.0  # seconds between two plain lines on one annotator or run


@dataclass
class Progress:
    """The state of a set of runs; a back-end writes it, a display reads it."""

    total: int
    preparing: dict[int, str] = field(default_factory=dict)  # by slot: datasets whose candidate labels are being drawn
    running: dict[int, RunSpec] = field(default_factory=dict)  # by slot
    outcomes: list[tuple[RunSpec, Outcome]] = field(default_factory=list)
    elsewhere: int = 0  # runs that other processes have
    over: bool = False
    started: float = field(default_factory=time.time)


Display = Callable[[Progress], None]


def blind(spec: RunSpec) -> bool:
    """Return whether test accuracies are hidden: those who choose a setting must not see them on the way."""
    return spec.purpose == TUNING


def outcome_line(spec: RunSpec, outcome: Outcome) -> str:
    head = run_title(spec)
    if outcome.status == "done":
        result = outcome.label_free or "trained" if outcome.accuracy is None else f"{outcome.accuracy:.2f} %"
        result = "trained" if blind(spec) else result
        return f"{head}: {result} in {duration(outcome.seconds)}"
    return f"{head}: {outcome.status}{f': {outcome.reason}' if outcome.reason else ''}"


def duration(seconds: float) -> str:
    """Return a duration in words: '8 s', '3 min 20 s', '2 h 05 min'."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


def preparing_lines(names: Iterable[str], results: Path) -> list[str]:
    """Describe the work on datasets whose candidate labels are being drawn: annotators in training, or what is before."""
    lines = []
    for name in sorted(set(names)):
        training = [run for run in annotators(results, name) if run.status == "running"]
        lines += [f"{name} annotator: {progress_words(run, hide_test=True)}" for run in training]
        if not training:
            lines.append(f"{name}: drawing its candidate labels")
    return lines


def progress_words(run: StoredRun, hide_test: bool) -> str:
    """Return how far a stored run is and how long it will take: 'epoch 3/60, test 45.1 %, 2 min 10 s left'."""
    epochs, total = run.epochs(), run.document["config"]["train"]["epochs"]
    results = [record["result"] for record in reversed(epochs)]
    if hide_test:
        results = [{key: result.get(key) for key in SELECTING.values()} for result in results]
    last_scores = next(filter(None, map(in_words, results)), "")  # not every epoch is evaluated
    seconds = median([record["time"]["seconds"] for record in epochs] or [0.0]) * (total - len(epochs))
    left = f"{duration(seconds)} left" if epochs else ""
    return ", ".join(filter(None, (f"epoch {len(epochs)}/{total}", last_scores, left)))


def running_line(spec: RunSpec, results: Path) -> str:
    """Describe a running job from what it has written so far."""
    run = find(results, spec)
    return f"{run_title(spec)}: {'starting' if run is None else progress_words(run, blind(spec))}"


class Lines:
    """Output without a terminal: a line per finished run, and a heartbeat per run and per dataset in preparation."""

    def __init__(self, results: Path) -> None:
        self.results, self.shown = results, 0
        self.next: dict[str, float] = {}  # time of the next line on a dataset or a run

    def __call__(self, progress: Progress) -> None:
        now = time.time()
        for name in sorted(set(progress.preparing.values())) if now - progress.started > PATIENCE else ():
            if now >= self.next.get(name, 0):
                self.next[name] = now + HEARTBEAT
                print("\n".join(preparing_lines([name], self.results)), flush=True)
        for _, spec in sorted(progress.running.items()):
            if now >= self.next.setdefault(spec.digest, now + HEARTBEAT):
                self.next[spec.digest] = now + HEARTBEAT
                print(running_line(spec, self.results), flush=True)
        for spec, outcome in progress.outcomes[self.shown :]:
            self.shown += 1
            if not outcome.skipped:
                print(f"[{self.shown}/{progress.total}] {outcome_line(spec, outcome)}", flush=True)


class Bars:
    """Output on a terminal: a bar for all runs, and below it a line per running job."""

    def __init__(self, results: Path) -> None:
        from tqdm.auto import tqdm

        self.results, self.tqdm = results, tqdm
        self.shown, self.last = 0, 0.0
        self.total: Any = None
        self.lines: list[Any] = []

    def __call__(self, progress: Progress) -> None:
        finished = progress.outcomes[self.shown :]
        if not finished and not progress.over and time.time() - self.last < SHOW_SECONDS:
            return
        self.last, self.shown = time.time(), self.shown + len(finished)
        if self.total is None:
            self.total = self._bar(total=progress.total, unit="run", disable=not progress.total)
        for spec, outcome in finished:
            if not outcome.skipped:
                self.tqdm.write(outcome_line(spec, outcome), file=sys.stdout)
        lines = preparing_lines(progress.preparing.values(), self.results)
        lines += [running_line(spec, self.results) for _, spec in sorted(progress.running.items())]
        self._show_lines([] if progress.over else lines)
        self.total.set_postfix_str(f"{progress.elsewhere} in another process" if progress.elsewhere else "", False)
        self.total.n = self.shown
        self.total.refresh()
        if progress.over:
            self.total.close()

    def _show_lines(self, lines: list[str]) -> None:
        while len(self.lines) > len(lines):
            self.lines.pop().close()
        while len(self.lines) < len(lines):
            self.lines.append(self._bar(bar_format="{desc}", leave=False))
        for bar, line in zip(self.lines, lines, strict=True):
            bar.set_description_str(f"  {line}")

    def _bar(self, **words: Any) -> Any:
        return self.tqdm(file=sys.stdout, dynamic_ncols=True, **words)


@contextmanager
def without_bars() -> Iterator[None]:
    """Take bars off the terminal for a line of text."""
    from tqdm import tqdm

    with tqdm.external_write_mode(file=sys.stdout):
        yield
