"""Clocks for measurements on a machine that others use too."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch

CPU = torch.device("cpu")
Work = Callable[[], Any]


def now(device: torch.device) -> float:
    """Seconds: of this process on a CPU, which waiting for others does not lengthen; of the wall on an accelerator."""
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def seconds(work: Work, device: torch.device = CPU) -> float:
    """How long `work` takes."""
    start = now(device)
    work()
    return now(device) - start


def compare(slow: Work, fast: Work, rounds: int, clock: Callable[[Work], float] = seconds) -> tuple[float, ...]:
    """Median seconds of both, which take turns, and the median of how many times faster the second is."""
    slow(), fast()
    times = [(clock(slow), clock(fast)) for _ in range(rounds)]
    return median(a for a, _ in times), median(b for _, b in times), median(a / b for a, b in times)


@contextmanager
def one_thread() -> Iterator[None]:
    """Measure on one thread, with memory that is reused."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.zeros(
        6 << 20
    )  # glibc keeps freed memory only after a large block was freed; before, page faults are measured
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def forked(*works: Callable[[], float]) -> list[float]:
    """What each returns in a process of its own, all at the same time; EOFError where one died."""
    context = multiprocessing.get_context("fork")
    started = []
    for work in works:
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=lambda sender=sender, work=work: sender.send(work()))
        child.start()
        sender.close()
        started.append((child, receiver))
    try:
        return [receiver.recv() for _, receiver in started]
    finally:
        for child, _ in started:
            child.join()
