"""Optional trackers: the curves of a run also in TensorBoard or Weights & Biases (extra `track`).

Nothing leaves the machine unless it is asked to: Weights & Biases writes offline files, to be sent with `wandb sync`,
unless WANDB_MODE says online.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmark.config.spec import RunSpec
from benchmark.errors import UsageError, warn
from benchmark.runner.options import run_title


def check_tracker(name: str) -> None:
    """Raise UsageError if the package of a tracker is not installed."""
    if name and find_spec(name) is None:
        raise UsageError(f"--track {name}: the package {name} is not installed; pip install {name}.")


Epoch = dict[str, Any]  # a line of metrics.jsonl
Follower = tuple[Callable[[Epoch], None], Callable[[], None]]  # takes an epoch; ends the session


def tensorboard(folder: Path, spec: RunSpec, identity: str, first_epoch: int) -> Follower:
    """Write event files into the run's own folder, for `tensorboard --logdir results/runs`."""
    from torch.utils.tensorboard import SummaryWriter

    # Epochs after the checkpoint are trained again; TensorBoard drops what an earlier session wrote of them.
    writer = SummaryWriter(str(folder / "tensorboard"), purge_step=first_epoch)

    def on_epoch(record: Epoch) -> None:
        for name, value in numbers(record).items():
            writer.add_scalar(name, value, record["epoch"])
        writer.flush()

    return on_epoch, writer.close


def weights_and_biases(folder: Path, spec: RunSpec, identity: str, first_epoch: int) -> Follower:
    """Open a run of the project `candid`, offline unless WANDB_MODE is set; resumed sessions continue it."""
    import wandb

    run = wandb.init(
        project="candid",
        id=identity[:16],
        name=run_title(spec),
        group=f"{spec.profile}/{spec.dataset}/{spec.label}",
        config=spec.to_json(),
        dir=str(folder),
        resume="allow",
        mode=os.environ.get("WANDB_MODE", "offline"),
    )
    return lambda record: run.log(numbers(record), step=record["epoch"]), run.finish


TRACKERS = {"tensorboard": tensorboard, "wandb": weights_and_biases}  # by the name of the package


def numbers(record: Epoch) -> dict[str, float]:
    """Return the numbers of an epoch under names that trackers group by: 'result/test_accuracy', 'time/seconds'."""
    return {
        f"{part}/{name}": float(value)
        for part in ("result", "time")
        for name, value in record[part].items()
        if isinstance(value, int | float)
    }


@contextlib.contextmanager
def following(name: str, folder: Path, spec: RunSpec, identity: str) -> Iterator[Callable[[Epoch], None]]:
    """Yield a function that passes epochs on to the tracker of that name, if one is named.

    A failure of the tracker is a warning, and the run goes on without it.
    """
    follower: Follower | None = None
    broken = not name

    def on_epoch(record: Epoch) -> None:
        nonlocal follower, broken
        try:
            if not broken:
                follower = follower or TRACKERS[name](folder, spec, identity, record["epoch"])
                follower[0](record)
        except Exception as error:  # whatever a foreign package may do wrong
            broken = True
            warn(f"{run_title(spec)}: {name} stopped following ({type(error).__name__}).")

    try:
        yield on_epoch
    finally:
        if follower is not None:
            with contextlib.suppress(Exception):
                follower[1]()
