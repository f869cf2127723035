"""The training of an annotator as a run: a folder beside its file with progress, checkpoints, and how it stands.

results/candidates/<data set>/annotator-<network>-<digest8>/
    annotator.json   what is trained, where, since when, and how it ended
    metrics.jsonl    one line per epoch
    checkpoint*.pt   while needed
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.config.spec import digest_of
from benchmark.files import atomic_write
from benchmark.store import ANNOTATOR_DOCUMENT, RunFolder
from benchmark.trainer import checkpoint
from benchmark.trainer.trainer import Hooks, Interrupted, plain
from datasets.base import DataError
from datasets.candidates.annotator import Sitting


@dataclass(frozen=True)
class Keeper:
    """Makes the trainings of annotators runs: they can be followed, stopped and gone on with."""

    hooks: Hooks
    environment: Mapping[str, Any]  # device and versions, noted with what is made

    @contextmanager
    def sit(self, folder: Path, described: Mapping[str, Any]) -> Iterator[Sitting]:
        """Around a training, by the process that holds its lock."""
        sitting = KeptSitting(RunFolder(folder), described, self)
        sitting.write("running")
        try:
            yield sitting
        except Interrupted:
            sitting.write("interrupted")
            raise
        except BaseException as error:
            sitting.write("failed", str(error) or type(error).__name__)
            raise
        sitting.write("done")
        checkpoint.remove(folder)


@dataclass(frozen=True)
class Reader:
    """Stands where a `Keeper` does for who only reads: an annotator that is not there is one sentence, not a training."""

    environment: Mapping[str, Any] = field(default_factory=dict)

    @contextmanager
    def sit(self, folder: Path, described: Mapping[str, Any]) -> Iterator[Sitting]:
        try:
            found = json.loads((folder / ANNOTATOR_DOCUMENT).read_text(encoding="utf-8"))
            reason = found["reason"] if found["status"] == "failed" else ""
        except (OSError, ValueError, KeyError, TypeError):
            reason = ""
        raise DataError(
            str(reason) or f"the annotator of {described['dataset']} is not trained; do it without --no-run."
        )
        yield Sitting()


class KeptSitting(Sitting):
    """One sitting of a training whose lock this process holds."""

    def __init__(self, folder: RunFolder, described: Mapping[str, Any], keeper: Keeper) -> None:
        self.folder, self.hooks = folder, keeper.hooks
        self.identity = digest_of(dict(described))
        self.document = {
            "dataset": described["dataset"],
            "network": described["described"]["network"],
            "epochs": described["described"]["epochs"],
            "described": dict(described),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "environment": dict(keeper.environment),
        }
        self.pace = checkpoint.Pace(self.hooks.checkpoint_seconds)
        self.epoch_began = time.perf_counter()

    def write(self, status: str, reason: str = "") -> None:
        self.folder.path.mkdir(parents=True, exist_ok=True)
        document = self.document | {"status": status, "reason": reason}
        atomic_write(self.folder.path / ANNOTATOR_DOCUMENT, json.dumps(document, indent=1, sort_keys=True) + "\n")

    def saved(self, misfit: Callable[[Mapping[str, Any]], str]) -> Mapping[str, Any] | None:
        recorded = len(self.folder.epochs())

        def why_not(state: dict[str, Any]) -> str:
            if state["epoch"] > recorded:
                return f"it is at epoch {state['epoch']}, but metrics.jsonl holds {recorded} whole epochs"
            return misfit(state)

        state = checkpoint.load(self.folder.path, self.identity, why_not)
        self.folder.truncate_epochs(state["epoch"] if state else 0)
        return state

    def after_step(self, state: Callable[[], dict[str, Any]]) -> None:
        stop = self.hooks.stop()
        if stop or self.pace.is_due():
            with self.pace.saving():
                checkpoint.save(self.folder.path, self.identity, state())
        if stop:
            raise Interrupted

    def after_epoch(self, epoch: int, result: Mapping[str, float]) -> None:
        now = time.perf_counter()
        record = {
            "epoch": epoch,
            "result": {key: plain(value) for key, value in result.items()},
            "time": {"seconds": round(now - self.epoch_began, 4)},
        }
        self.epoch_began = now
        self.folder.append_epoch(record)
