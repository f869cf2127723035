"""What each known way to train faster gains on this machine, in the profile's own training: why defaults are as they are.

A gain is the time without it over the time with it, of two things that take turns in one run. The method is PRODEN,
whose step is nearly all network.
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Callable
from typing import Any

from benchmark.plan.spec import RunSpec
from benchmark.run.capture import silenced
from benchmark.run.devices import cores
from benchmark.run.failures import sentence
from benchmark.run.options import RunOptions
from benchmark.speed.timing import Work, compare, forked
from benchmark.speed.training import TimedTrainer

Pair = tuple[Work, Work]  # without the lever, and with it


def measure(spec: RunSpec, place: RunOptions, rounds: int) -> list[dict[str, Any]]:
    """A row per lever: how many times faster, and what Candid does with it; or why it cannot be tried here."""
    with silenced():
        timed = TimedTrainer(spec, place)
    steps = timed.steps_in_a_round()
    default = _training(timed, steps)
    rows: list[dict[str, Any]] = []

    def variant(**changes: Any) -> Work:
        with silenced():
            return _training(TimedTrainer(spec.with_train(**changes), place), steps)

    def lever(
        name: str, against: str, used: str, make: Callable[[], Pair], clock: Callable[[Work], float] = timed.seconds
    ) -> None:
        gain = None
        try:
            gain = compare(*make(), rounds, clock)[2]
        except Exception as error:  # no compiler, or a network that one of them does not suit
            used = f"not here: {sentence(error)}"
        rows.append({"lever": name, "against": against, "used": used, "times_faster": gain})

    if place.device == "cpu" and cores() > 1:  # first, because what is compiled does not survive a fork
        processes = _processes(spec, place, steps)
        lever("two processes of one thread", "one process of two", "default", lambda: processes, lambda work: work())
    lever("channels last", "channels first", "default", lambda: (variant(channels_last=False), default))
    lever("views of many batches at once", "batch by batch", "default", lambda: _views(timed))
    lever("optimiser with foreach", "fused", "default", lambda: (_fused(spec, place, steps), default))
    lever("bfloat16 autocast", "float32", "option train.amp", lambda: (default, variant(amp="bfloat16")))
    lever("compiled step", "as written", "option train.compile", lambda: (default, variant(compile=True)))
    return rows


def _training(timed: TimedTrainer, steps: int) -> Work:
    batches = itertools.cycle(timed.batches())
    return lambda: timed.steps(list(itertools.islice(batches, steps)))


def _processes(spec: RunSpec, place: RunOptions, steps: int) -> Pair:
    """As many steps by one process with two threads and by two with one thread each; both return seconds of the wall."""

    def wall_seconds(processes: int, threads: int, steps: int) -> float:
        ready = multiprocessing.get_context("fork").Barrier(processes, timeout=600)  # seconds; the other may have died

        def train() -> float:
            with silenced():
                work = _training(TimedTrainer(spec.with_train(threads=threads), place), steps)
            work()
            ready.wait()
            start = time.perf_counter()
            work()
            return time.perf_counter() - start

        return max(forked(*[train] * processes))

    return lambda: wall_seconds(1, 2, 2 * steps), lambda: wall_seconds(2, 1, steps)


def _views(timed: TimedTrainer) -> Pair:
    """An epoch's views, batch by batch and as the trainer makes them."""
    trainer = timed.trainer
    order = trainer.order(trainer.epoch)
    alone = order[: trainer.steps_per_epoch * trainer.batch_size].split(trainer.batch_size)
    return lambda: [trainer.batch(part) for part in alone], lambda: list(trainer.batches(order, 0))


def _fused(spec: RunSpec, place: RunOptions, steps: int) -> Work:
    """Training with torch's fused form of the same optimiser."""
    with silenced():
        timed = TimedTrainer(spec, place)
    optimizer, method = timed.trainer.optimizer, timed.trainer.method
    options = optimizer.torch.defaults | {"foreach": False, "fused": True}
    optimizer.torch = type(optimizer.torch)(method.param_groups(), **options)
    return _training(timed, steps)
