"""Clocks for measurements on a machine that others use too."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch


def now(device: torch.device) -> float:
    """Seconds: of this process on a CPU, which waiting for others does not lengthen; of the wall on an accelerator."""
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def seconds(work: Callable[[], Any], device: torch.device) -> float:
    """How long `work` takes."""
    start = now(device)
    work()
    return now(device) - start


@contextmanager
def one_thread() -> Iterator[None]:
    """Measure on one thread, with memory that is reused.

    glibc hands freed memory back to the system after every step until a large block has once been freed, as any
    training does sooner or later; without that, page faults are measured.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.zeros(6 << 20)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def keep_large_blocks() -> None:
    """From now on the C library keeps freed blocks of any size, as torch does on an accelerator; glibc only.

    Else a block above 32 MB is fetched from the system page by page each time, and growth with the number of classes
    shows where blocks pass that size instead of what is computed.
    """
    largest = 2**31 - 1
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-4, 0)  # M_MMAP_MAX: no block has pages of its own
        mallopt(-1, largest)  # M_TRIM_THRESHOLD: nothing is handed back
