"""Checkpoints: two generations, each with a digest and the identity of its run; never a pickle.

Layout of a file: one header line of JSON (format, identity, SHA-256 of the rest), then what `torch.save` writes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmark.errors import warn
from benchmark.files import atomic_write, set_aside

MAGIC = "candid-checkpoint-1"
CURRENT, PREVIOUS = "checkpoint.pt", "checkpoint-previous.pt"
SHARE = 0.01  # of the time may go into checkpoints
SECONDS = 20.0  # at least, between two checkpoints


class SaveTimer:
    """Decide when to save: every `seconds`, or as rarely as the cost of saving demands."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.last, self.cost = time.perf_counter(), 0.0

    def is_due(self) -> bool:
        pause = max(SECONDS, self.cost / SHARE) if self.seconds is None else self.seconds
        return time.perf_counter() - self.last >= pause

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Measure the time that saving takes."""
        started = time.perf_counter()
        yield
        self.last = time.perf_counter()
        self.cost = self.last - started


class DamagedCheckpoint(Exception):
    """Raised for a file that is not a complete checkpoint of this run."""


def sealed(payload: bytes, identity: str) -> bytes:
    """Return the content of a file: what `torch.save` wrote, under its header."""
    header = {"magic": MAGIC, "identity": identity, "sha256": hashlib.sha256(payload).hexdigest()}
    return json.dumps(header).encode() + b"\n" + payload


def save(folder: Path, identity: str, state: dict[str, Any]) -> None:
    """Write a new generation and keep the last one."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    fresh = folder / "checkpoint-new.pt"
    atomic_write(fresh, sealed(buffer.getvalue(), identity))
    current = folder / CURRENT
    if current.exists():
        os.replace(current, folder / PREVIOUS)
    os.replace(fresh, current)


def read(path: Path, identity: str) -> dict[str, Any]:
    """Return the state of one generation or raise DamagedCheckpoint; the digest is checked before decoding."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedCheckpoint(f"it cannot be read ({error.strerror})") from None
    payload = content.partition(b"\n")[2]
    if content != sealed(payload, identity):
        raise DamagedCheckpoint("it is cut off, was changed, or belongs to another run")
    try:
        return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except Exception as error:
        raise DamagedCheckpoint(f"it contains more than plain tensors ({type(error).__name__})") from None


def load(
    folder: Path, identity: str, check: Callable[[dict[str, Any]], None] = lambda state: None
) -> dict[str, Any] | None:
    """Return the newest complete generation; damaged ones are set aside with one warning each.

    `check` raises DamagedCheckpoint for a state that does not fit the run.
    """
    for name in (CURRENT, PREVIOUS):
        path = folder / name
        try:
            state = read(path, identity)
            check(state)
            return state
        except FileNotFoundError:
            continue
        except DamagedCheckpoint as damage:
            reason = str(damage)
        except (KeyError, TypeError, AttributeError, IndexError):
            reason = "its parts are not of the right kind"
        warn(f"{path} was set aside as {set_aside(path).name}: {reason}.")
    return None


def remove(folder: Path) -> None:
    """Delete the checkpoints of a finished run."""
    for name in (CURRENT, PREVIOUS, "checkpoint-new.pt"):
        (folder / name).unlink(missing_ok=True)
