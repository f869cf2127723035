"""How fast one run goes here: a few steps, epoch hooks and some of the evaluation, timed with the real trainer.

Nothing takes longer than a few batches: large sets are cut, passes over the training set stop after a moment, and what
is left out is counted as if it had been done at the same speed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from benchmark.plan.spec import RunSpec
from benchmark.run.shapes import Needs, Unread, state_bytes, without_weights
from benchmark.train.candidates import plausible_candidates
from benchmark.train.inputs import CACHE_LIMIT, CARD_CACHE_LIMIT
from benchmark.train.loading import entry_of
from benchmark.train.trainer import Trainer, steps_per_epoch
from datasets.base import Dataset, cut
from methods.base import Batch
from methods.registry import load

MOMENT = 0.5  # seconds for each of: steps, views, hooks, evaluation
MOST_ROWS = 12_000  # of the training set that hooks see; what grows faster than the rows is bounded by it
HOOK_EPOCHS = 20  # hooks of so many epochs in a row, since some act in every n-th only
FEW = 16  # rows of a pass over the training set at once
clock = time.perf_counter  # a test on a busy machine takes the seconds of the process
SLOW = {"cpu": 2e10, "cuda": 5e12}  # operations per second of a slow device: sizes of samples, not of results


@dataclass(frozen=True)
class Pace:
    """Seconds of the parts of one run."""

    step: float
    hooks: float  # of an epoch
    once: float  # building, and what hooks do once in a run
    evaluation: float
    checkpoint_bytes: float
    peak_bytes: float = 0.0  # of the timed step, which may be a small one; 0 where only a GPU can tell

    def times(self, factor: float) -> Pace:
        """The same on data or with a method of so many times the cost."""
        parts = (self.step * factor, self.hooks * factor, self.once * factor, self.evaluation * factor)
        return replace(self, step=parts[0], hooks=parts[1], once=parts[2], evaluation=parts[3], peak_bytes=0.0)


class Sample(Unread):
    """A trainer whose passes over the training set are cut short; `pretended` is the time that they have not taken."""

    pretended = 0.0
    passed = 0.0  # seconds of all passes, the pretended ones included

    def infer(self, fn: Callable[[Tensor], Any], view: str = "plain") -> Any:
        kept = self.__dict__.setdefault("_passes", {})
        name, count = (getattr(fn, "__qualname__", repr(fn)), view), len(self.rows)
        if name not in kept:
            parts: list[Any] = []
            started, done = clock(), 0
            with torch.no_grad(), self.autocast():
                while done < count and (not parts or clock() - started < MOMENT):
                    rows = self.rows[done : done + FEW]
                    parts.append(fn(self.inputs.train_views(rows, (view,), self.epoch)[0]))
                    done += len(rows)
            wait_for(self.device)
            spent = clock() - started
            columns = list(zip(*parts, strict=True)) if isinstance(parts[0], tuple) else [parts]
            kept[name] = [torch.cat(column) for column in columns], isinstance(parts[0], tuple), spent / done
            self.pretended -= spent  # counted with all the others below
        columns, several, seconds = kept[name]
        self.pretended += seconds * count
        self.passed += seconds * count
        index = torch.arange(count, device=self.device) % len(columns[0])
        repeated = tuple(column[index] for column in columns)
        return repeated if several else repeated[0]


def pace_of(spec: RunSpec, dataset: Dataset, device: torch.device, needs: Needs | None) -> Pace:
    """Time a run's parts at three quarters of the training, when warm-ups are over; nothing is stored."""
    speed = SLOW[device.type]
    rows, tests = len(dataset.train), len(dataset.test)
    shown = max(FEW, int(MOMENT * speed / needs.predict_flops)) if needs and needs.predict_flops else tests
    part = cut(dataset, min(rows, MOST_ROWS), min(tests, shown)) if rows > MOST_ROWS or tests > shown else dataset
    started = clock()
    trainer = Sample(without_weights(spec), load(entry_of(spec)), part, plausible_candidates(part), device)
    build = clock() - started
    trainer.epoch = trainer.epochs * 3 // 4
    few = trainer.batch_size
    if needs and needs.flops:
        few = min(few, max(4, int(few * MOMENT * speed / needs.flops)))
    share = rows / len(part.train)
    hooks, once = _hooks(trainer, share)
    step, peak = _step_and_peak(trainer, few)
    evaluation, first = (seconds * tests / len(part.test) for seconds in _evaluation(trainer))
    kept, of_a_level = (CACHE_LIMIT, 4) if device.type == "cpu" else (CARD_CACHE_LIMIT, 1)
    if dataset.recipe and tests * 3 * dataset.recipe.size**2 * of_a_level > kept:  # prepared anew every time
        evaluation, first = evaluation + first, 0.0
    return Pace(step, hooks, build + once + first, evaluation, state_bytes(trainer.method), peak)


def steps_of(spec: RunSpec, rows: int) -> int:
    """Steps of an epoch on so many training rows."""
    kept = rows - round(rows * spec.train.holdout)
    return steps_per_epoch(kept, min(spec.train.batch, kept), spec.train)


def _step_and_peak(trainer: Sample, few: int) -> tuple[float, float]:
    """Seconds of a step, and the most memory that a GPU had for it: beside the pictures, which are counted apart."""
    if trainer.device.type != "cuda":
        return _step(trainer, few), 0.0
    there = torch.cuda.memory_allocated(trainer.device)
    torch.cuda.reset_peak_memory_stats(trainer.device)
    step = _step(trainer, few)
    own = sum(t.numel() * t.element_size() for t in (*trainer.method.state_dict().values(), trainer.candidates))
    return step, float(torch.cuda.max_memory_allocated(trainer.device) - there + own)


def _step(trainer: Sample, few: int) -> float:
    """Seconds of one step and its views; with few images of the batch where a whole one takes too long."""
    trainer.method.train()
    order, size = trainer.order(trainer.epoch), trainer.batch_size
    warm = _seconds(trainer, lambda: trainer.step(trainer.batch(order[:few])))
    if few < size or warm * size / few > 4 * MOMENT:
        return _seconds(trainer, lambda: trainer.step(trainer.batch(order[:few]))) * size / few
    blocks: list[Batch] = []
    together = min(size * trainer.inputs.batches_at_once(size), len(order) // size * size)
    views = _seconds(trainer, lambda: blocks.append(trainer.batch(order[:together]))) * size / together
    block = blocks[0]
    times: list[float] = []
    slices = [slice(at, at + size) for at in range(0, together, size)]
    while sum(times) < MOMENT or len(times) < 3:
        part = slices[len(times) % len(slices)]
        batch = Batch(tuple(view[part] for view in block.views), block.candidates[part], block.index[part])
        times.append(_seconds(trainer, lambda batch=batch: trainer.step(batch)))  # type: ignore[misc]
    return views + sum(times[1:]) / len(times[1:])  # the first of this size warms up


def _hooks(trainer: Sample, share: float) -> tuple[float, float]:
    """Seconds of the hooks per epoch, and of what they do once; `share`: of how many times the rows.

    What hooks do in every epoch is taken to grow with the rows, what they do once (a graph of neighbours) with their
    square, apart from its passes over the training set.
    """
    found: list[float] = []
    passes: list[float] = []
    at, began = trainer.epoch, 0.0
    while len(found) < HOOK_EPOCHS and (len(found) < 2 or clock() - began < MOMENT):
        trainer.passed = trainer.pretended = 0.0
        seconds = _seconds(trainer, trainer.begin_epoch) + _seconds(trainer, trainer.end_epoch)
        began = began or clock()  # without the first, which may do what is done once
        found.append(seconds + trainer.pretended)
        passes.append(trainer.passed)
        trainer.epoch = min(trainer.epoch + 1, trainer.epochs - 1)
    trainer.epoch = at
    usual, usual_passes = max(found[1:]), max(passes[1:])
    excess = max(0.0, found[0] - usual)
    of_passes = min(excess, max(0.0, passes[0] - usual_passes))
    mean = (sum(found) - excess) / len(found)
    return mean * share, of_passes * share + (excess - of_passes) * share**2


def _evaluation(trainer: Sample) -> tuple[float, float]:
    """Seconds of an evaluation, and what the first takes beyond it: preparing test images that are kept."""
    trainer.method.eval()
    with torch.no_grad(), trainer.autocast():  # warms up
        trainer.method.predict(trainer.inputs.train_views(trainer.rows[:FEW], ("plain",), 0)[0])
    wait_for(trainer.device)
    first, again = (
        _seconds(trainer, lambda: trainer.evaluator.evaluate(trainer.method, trainer.autocast())) for _ in range(2)
    )
    return again, max(0.0, first - again)


def _seconds(trainer: Trainer, work: Callable[[], Any]) -> float:
    started = clock()
    work()
    wait_for(trainer.device)
    return clock() - started


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
