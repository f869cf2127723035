"""Options and outcome of a run. Needs no torch."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmark.config.spec import RunSpec

DEATHS_ALLOWED = 2  # of worker processes on one run in one command


@dataclass(frozen=True)
class RunOptions:
    """Folders, device and habits of a run; none of it enters the run's identity."""

    results: Path
    data: Path
    device: str = "cpu"
    checkpoint_seconds: float | None = None
    retry_diverged: bool = False
    track: str = ""  # "tensorboard" or "wandb"
    command: str = field(default_factory=lambda: uuid.uuid4().hex)  # one call of the program, on however many workers
    started: float = field(default_factory=time.time)  # when that was
    typed: str = ""  # its words, for the record of a session
    keep_model: bool = False  # a run without its model is done again
    grace: float | None = None  # seconds to save after a signal; None: by the device


@dataclass(frozen=True)
class Outcome:
    """Result of an attempt. `claimed`: another process has the run."""

    status: str
    reason: str = ""
    accuracy: float | None = None
    seconds: float = 0.0
    label_free: str = ""  # scores in words where there are no true labels
    skipped: bool = False  # nothing was done for it, so it has no line of its own


def task_title(task: str, spec: RunSpec) -> str:
    """Return what a worker does, in words: its run, or the candidate labels that it needs."""
    return run_title(spec) if task == "execute" else f"the candidate labels of {spec.dataset}"


def run_title(spec: RunSpec) -> str:
    """Return the name of a run for people, for example `digits proden seed 0`."""
    return f"{spec.dataset} {spec.label} seed {spec.seed}"
