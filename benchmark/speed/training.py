"""What a method's training costs beside the bare loop of its networks, and where the difference goes.

The two take turns step by step, because a machine's speed changes within a second. Passes that a method makes between
epochs (NEPLL's selection, VALEN's features) count on both sides.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from statistics import median
from typing import Any

import torch

from benchmark.plan.spec import RunSpec
from benchmark.run.capture import silenced
from benchmark.run.options import RunOptions
from benchmark.speed import timing
from benchmark.speed.bare_loop import BareLoop, Recording, watching
from benchmark.train.candidates import plausible_candidates
from benchmark.train.guard import peak_memory_mb, reset_peak_memory
from benchmark.train.loading import dataset_of, entry_of
from benchmark.train.trainer import Trainer
from methods.base import Batch
from methods.registry import load

REFERENCE = "proden"  # the method whose step is 1 in the docs' cost column
ROUND_SECONDS = 0.5  # of training in one round, at least one step
MOST_STEPS = 100  # in a round
RECORDED_STEPS = 8  # at most that the bare loop repeats in turn: fresh data for every step, as in training
PROGRESS = 0.75  # of training: warm-ups are over


class TimedTrainer:
    """The trainer of one run, late in training."""

    def __init__(self, spec: RunSpec, place: RunOptions) -> None:
        self.device = torch.device(place.device)
        dataset = dataset_of(spec, place.data)
        self.trainer = Trainer(spec, load(entry_of(spec)), dataset, plausible_candidates(dataset), self.device)
        self.trainer.epoch = int(self.trainer.epochs * PROGRESS)
        self.seconds = partial(timing.seconds, device=self.device)
        self.hooks()  # what a method does once in a training is not measured

    def batches(self) -> list[Batch]:
        """Those whose views are made together."""
        trainer = self.trainer
        together = trainer.inputs.batches_at_once(trainer.batch_size)
        return list(itertools.islice(trainer.batches(trainer.order(trainer.epoch), 0), together))

    def steps(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            self.trainer.step(batch)
        self.trainer.guard.check()
        self.trainer.step_in_epoch %= self.trainer.steps_per_epoch  # the schedule knows no step after the last

    def steps_in_a_round(self) -> int:
        batches = self.batches()[:1]
        self.steps(batches)
        one = self.seconds(lambda: self.steps(batches))
        return max(1, min(round(ROUND_SECONDS / max(one, 1e-6)), MOST_STEPS))

    def hooks(self) -> None:
        self.trainer.begin_epoch()
        self.trainer.end_epoch()

    def evaluate(self) -> None:
        self.trainer.evaluator.evaluate(self.trainer.method, self.trainer.autocast())


def measure(spec: RunSpec, reference_spec: RunSpec, place: RunOptions, rounds: int) -> dict[str, Any]:
    """One row: images per second with everything and bare, shares of the parts, steps of the reference."""
    with silenced():
        timed = TimedTrainer(spec, place)
        reference = timed if spec.method == reference_spec.method else TimedTrainer(reference_spec, place)
    trainer = timed.trainer
    count = timed.steps_in_a_round()
    loop = BareLoop(trainer, timed.batches()[: min(RECORDED_STEPS, count + 1)])
    spent = [_round(timed, loop, reference, count) for _ in range(rounds)]
    networks, hooks, evaluation = (seconds / trainer.steps_per_epoch for seconds in _per_epoch(timed, loop))
    rows = []
    for one in spent:
        bare = one["bare"] + networks
        everything = one["views"] + one["step"] + networks + hooks + evaluation
        parts = {"views": one["views"], "losses": one["step"] - one["bare"], "hooks": hooks, "evaluation": evaluation}
        rows.append(
            {
                "images_per_second": trainer.batch_size / everything,
                "bare_images_per_second": trainer.batch_size / bare,
                "step": one["bare"] / one["step"],
                "all_in": bare / everything,
                **{part: max(seconds, 0.0) / everything for part, seconds in parts.items()},
                "relative_to_proden": one["step"] / one["reference"],
            }
        )
    return {"method": spec.method, **{key: median(row[key] for row in rows) for key in rows[0]}}


def _round(timed: TimedTrainer, loop: BareLoop, reference: TimedTrainer, count: int) -> dict[str, float]:
    """Seconds per step of the trainer, the bare loop and the reference, which take turns, and of the views."""
    batches: list[Batch] = []
    views = timed.seconds(lambda: batches.extend(timed.batches())) / len(batches)
    others = itertools.cycle(reference.batches())
    turns: dict[str, Callable[[list[Batch]], None]] = {"step": timed.steps, "bare": loop.steps}
    if reference is not timed:
        turns["reference"] = lambda part: reference.steps([next(others) for _ in part])
    spent = dict.fromkeys(turns, 0.0)
    order = list(turns)
    at_once = 1 if timed.device.type == "cpu" else count  # an accelerator is waited for after every turn
    for start in range(0, count, at_once):
        part = [batches[k % len(batches)] for k in range(start, start + at_once)]
        for name in order:
            spent[name] += timed.seconds(partial(turns[name], part)) / count
        order.append(order.pop(0))  # whoever comes after its own networks finds them in the cache
    spent.setdefault("reference", spent["step"])
    return spent | {"views": views}


def _per_epoch(timed: TimedTrainer, loop: BareLoop) -> tuple[float, float, float]:
    """Seconds of networks in the method's hooks, of all else in them, and of evaluation."""
    calls: Recording = []
    with watching(calls):
        timed.hooks()
    networks = timed.seconds(lambda: loop.repeat(calls))
    hooks = max(timed.seconds(timed.hooks) - networks, 0.0)
    timed.evaluate()  # prepares the test images, as in the first epoch
    return networks, hooks, timed.seconds(timed.evaluate) * timed.trainer.evaluations_per_epoch()


def peak_memory(spec: RunSpec, place: RunOptions) -> float | None:
    """Megabytes at most in a few steps and an evaluation: of the device, or of a process forked for it.

    None where the step is compiled, which does not survive a fork, and where the method fails: `measure` says of what.
    """
    device = torch.device(place.device)

    def peak() -> float:
        reset_peak_memory(device)
        timed = TimedTrainer(spec, place)
        timed.steps(timed.batches()[:2])
        timed.evaluate()
        return peak_memory_mb(device)

    with suppress(Exception):
        if not spec.train.compile:
            return timing.forked(peak)[0] if device.type == "cpu" else peak()
    return None
