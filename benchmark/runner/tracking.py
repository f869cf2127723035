"""Optional trackers: the curves of a run also in TensorBoard or Weights & Biases (extra `track`).

The results folder stays the record; a tracker only follows it. Nothing leaves the machine unless it is asked to:
Weights & Biases writes offline files, to be sent with `wandb sync`, unless WANDB_MODE says online.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from benchmark.config.spec import RunSpec
from benchmark.errors import UsageError, warn

PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb"}


def check_tracker(name: str) -> None:
    """One sentence before anything runs if the package of a tracker is not installed."""
    if name and find_spec(PACKAGES[name]) is None:
        raise UsageError(
            f"--track {name}: the package {PACKAGES[name]} is not installed; pip install {PACKAGES[name]}."
        )


class Tracker(Protocol):
    """Takes the epochs of one sitting of a run."""

    def epoch(self, record: dict[str, Any]) -> None:
        """One line of metrics.jsonl."""

    def close(self) -> None:
        """No more epochs in this sitting."""


class TensorBoard:
    """Event files in the run's own folder: `tensorboard --logdir results/runs`."""

    def __init__(self, folder: Path, epochs_done: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Epochs after the checkpoint are trained again; TensorBoard drops what an earlier sitting wrote of them.
        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=epochs_done)

    def epoch(self, record: dict[str, Any]) -> None:
        for name, value in numbers(record).items():
            self.writer.add_scalar(name, value, record["epoch"])
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class WeightsAndBiases:
    """A run of the project `candid`, offline unless WANDB_MODE is set; resumed sittings continue it."""

    def __init__(self, folder: Path, spec: RunSpec, identity: str) -> None:
        import wandb

        self.run = wandb.init(
            project="candid",
            id=identity[:16],
            name=f"{spec.dataset} {spec.label} seed {spec.seed}",
            group=f"{spec.profile}/{spec.dataset}/{spec.label}",
            config=spec.config.to_json(),
            dir=str(folder),
            resume="allow",
            mode=os.environ.get("WANDB_MODE", "offline"),
        )

    def epoch(self, record: dict[str, Any]) -> None:
        self.run.log(numbers(record), step=record["epoch"])

    def close(self) -> None:
        self.run.finish()


def numbers(record: dict[str, Any]) -> dict[str, float]:
    """The numbers of an epoch under the names that trackers group by: 'result/test_accuracy', 'time/seconds'."""
    return {
        f"{part}/{name}": float(value)
        for part in ("result", "time")
        for name, value in record[part].items()
        if isinstance(value, int | float)
    }


@contextlib.contextmanager
def following(name: str, folder: Path, spec: RunSpec, identity: str) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that passes epochs on to the tracker of that name, if one is named.

    A tracker follows and never leads: its own failure is a warning, and the run goes on without it.
    """
    tracker: Tracker | None = None
    broken = not name

    def guarded(action: Callable[[], None]) -> None:
        nonlocal broken
        try:
            action()
        except Exception as error:  # whatever a foreign package may do wrong
            broken = True
            warn(f"{spec.dataset} {spec.label} seed {spec.seed}: {name} stopped following ({type(error).__name__}).")

    def on_epoch(record: dict[str, Any]) -> None:
        def pass_on() -> None:
            nonlocal tracker
            if tracker is None:
                tracker = _open(name, folder, spec, identity, record["epoch"])
            tracker.epoch(record)

        if not broken:
            guarded(pass_on)

    try:
        yield on_epoch
    finally:
        if tracker is not None:
            guarded(tracker.close)


def _open(name: str, folder: Path, spec: RunSpec, identity: str, first_epoch: int) -> Tracker:
    if name == "tensorboard":
        return TensorBoard(folder, first_epoch)
    return WeightsAndBiases(folder, spec, identity)
