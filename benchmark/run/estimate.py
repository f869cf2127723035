"""What runs cost on this machine before they start: seconds and checkpoint bytes, from a short measurement.

A few steps and one batch of evaluation of each (method, data set) are timed with the real trainer, one after the other
on one slot. What the time limit leaves out is extrapolated by forward passes, and the output says which is which.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmark.run.standing import images_of, passes_of

if TYPE_CHECKING:
    import torch

    from benchmark.plan.selection import Selection
    from benchmark.plan.spec import RunSpec
    from benchmark.run.options import RunOptions
    from benchmark.train.trainer import Trainer

EACH, TOTAL = 1.5, 60.0  # seconds of measuring: per method and data set, and in all


@dataclass(frozen=True)
class Cost:
    """What one run of a (method, data set) costs."""

    seconds: float
    checkpoint_bytes: float
    measured: bool


def forward_passes(spec: RunSpec, selection: Selection) -> float:
    """Training passes of whole networks over single images: epochs × images × passes per sample and step."""
    return spec.train.epochs * images_of(spec) * passes_of(selection.entry(spec.method))


def measure(
    specs: Sequence[RunSpec], selection: Selection, place: RunOptions, missing: dict[str, str], limit: float = TOTAL
) -> dict[tuple[str, str], Cost]:
    """The cost of each (method, data set), timed as far as data and the time limit allow, else extrapolated."""
    first: dict[tuple[str, str], RunSpec] = {}
    for spec in specs:
        first.setdefault((spec.method, spec.dataset), spec)
    costs: dict[tuple[str, str], Cost] = {}
    deadline = time.monotonic() + limit
    for pair, spec in first.items():
        if (spec.paths.get("dataset") or spec.dataset) not in missing and time.monotonic() < deadline:
            cost = _time_one(spec, place)
            if cost is not None:
                costs[pair] = cost
    for pair, spec in first.items():
        if pair not in costs:
            costs[pair] = _like_the_others(spec, selection, first, costs)
    return costs


def _time_one(spec: RunSpec, place: RunOptions) -> Cost | None:
    """Time some steps and some of the evaluation of one run; nothing is stored. None if the method does not run."""
    import torch

    from benchmark.run.capture import silenced
    from benchmark.train.candidates import plausible_candidates
    from benchmark.train.loading import dataset_of, entry_of
    from benchmark.train.trainer import Trainer
    from methods.registry import load

    device = torch.device(place.device)
    try:
        with silenced():
            dataset = dataset_of(spec, place.data)
            trainer = Trainer(spec, load(entry_of(spec)), dataset, plausible_candidates(dataset), device)
            return _time_trainer(trainer)
    except Exception as error:  # a broken method must not hide the cost of the others
        print(f"Not measured     {spec.method} on {spec.dataset}: {type(error).__name__}: {str(error).splitlines()[0]}")
        return None


def _time_trainer(trainer: Trainer) -> Cost:
    """Steps, epoch hooks and one test batch at three quarters of the training, when warm-ups are over."""
    import torch

    method = trainer.method
    trainer.epoch = trainer.epochs * 3 // 4
    started = time.perf_counter()
    trainer.begin_epoch()
    trainer.end_epoch()
    hooks = time.perf_counter() - started
    times = []
    last = time.perf_counter()
    method.train()
    for batch in trainer.batches(trainer.order(trainer.epoch), 0):
        trainer.step(batch)
        _wait_for(trainer.device)
        times.append(time.perf_counter() - last)
        last = time.perf_counter()
        if last - started > EACH and len(times) >= 3:
            break
    step = sum(times[1:]) / (len(times) - 1) if len(times) > 1 else times[0]  # the first one warms up
    method.eval()
    with torch.inference_mode(), trainer.autocast():
        images = next(iter(trainer.inputs.test_batches()))
        method.predict(images)
        _wait_for(trainer.device)
        started = time.perf_counter()
        method.predict(images)
        _wait_for(trainer.device)
    test = len(trainer.evaluator.test_labels) / len(images) * (time.perf_counter() - started)
    epoch = hooks + step * trainer.steps_per_epoch + test * trainer.evaluations_per_epoch()
    weights = sum(v.numel() * v.element_size() for v in method.state_dict().values() if isinstance(v, torch.Tensor))
    momentum = sum(p.numel() * p.element_size() for p in method.parameters() if p.requires_grad)
    return Cost(trainer.epochs * epoch, weights + momentum, measured=True)


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def _like_the_others(
    spec: RunSpec,
    selection: Selection,
    first: dict[tuple[str, str], RunSpec],
    costs: dict[tuple[str, str], Cost],
) -> Cost:
    """Seconds per forward pass of the same data set, else of all; without any measurement the cost is 0."""
    known = {pair: cost for pair, cost in costs.items() if cost.measured}
    same = {pair: cost for pair, cost in known.items() if pair[1] == spec.dataset} or known
    if not same:
        return Cost(0.0, 0.0, measured=False)
    rate = sum(cost.seconds for cost in same.values()) / sum(forward_passes(first[p], selection) for p in same)
    size = max(cost.checkpoint_bytes for cost in same.values())
    return Cost(rate * forward_passes(spec, selection), size, measured=False)
