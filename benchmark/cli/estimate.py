"""`estimate`: what a plan costs on this machine before it starts: runs, forward passes, hours, disk.

A few steps and one batch of evaluation of each (method, data set) are timed with the real trainer, one after the other
on one slot. What the time limit leaves out is extrapolated by forward passes, and the output says which is which.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.errors import COMPLETE
from benchmark.plan.selection import passes_of, pictures_of, standing
from benchmark.run.devices import parse_jobs
from benchmark.run.progress import duration
from datasets import registry as data_registry

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from benchmark.plan.selection import Selection
    from benchmark.plan.spec import RunSpec
    from benchmark.train.trainer import Trainer
    from datasets.base import Dataset

EACH, TOTAL = 1.5, 60.0  # seconds of measuring: per method and data set, and in all
BYTES_PER_EPOCH = 700  # a line of metrics.jsonl
BYTES_PER_RUN = 12_000  # run.json, log.txt, folders
MEGABYTE, GIGABYTE = 1e6, 1e9


@dataclass(frozen=True)
class Cost:
    """What one run of a (method, data set) costs."""

    seconds: float
    checkpoint_bytes: float
    measured: bool


def forward_passes(spec: RunSpec, selection: Selection) -> float:
    """Training passes of whole networks over single pictures: epochs × pictures × passes per sample and step."""
    return spec.train.epochs * pictures_of(spec) * passes_of(selection.entry(spec.method))


def print_estimate(arguments: argparse.Namespace, selection: Selection, specs: Sequence[RunSpec]) -> int:
    """Print the plan, and unless --dry-run measure and project it."""
    now = standing(specs, arguments.results)
    slots = parse_jobs(arguments.jobs, selection.devices)
    missing = {name: reason for name in selection.datasets if (reason := _absent(name, arguments.data))}
    passes = sum(forward_passes(spec, selection) for spec in now.specs)
    print(f"Runs             {len(now.specs)}, of which {now.count('done')} are done and {len(now.todo)} are to do")
    print(f"Forward passes   {passes:.3g} in all, {sum(forward_passes(s, selection) for s in now.todo):.3g} to do")
    for name, reason in missing.items():
        print(f"Missing data     {name}: {reason}")
    if arguments.dry_run or not now.todo:
        return COMPLETE
    costs = measure(now.todo, selection, missing)
    measured = sorted({pair for pair, cost in costs.items() if cost.measured})
    if not measured:
        print("Time             cannot be measured: none of the data sets is on this machine")
        return COMPLETE
    total = sum(costs[s.method, s.dataset].seconds for s in now.todo)
    elapsed = max(total / len(slots), max(costs[s.method, s.dataset].seconds for s in now.todo))
    print(f"Time             {_hours(elapsed)} on {len(slots)} × {slots[0]} ({_hours(total)} of computing)")
    records = sum(s.train.epochs * BYTES_PER_EPOCH + BYTES_PER_RUN for s in now.todo)
    heaviest = sorted((costs[s.method, s.dataset].checkpoint_bytes for s in now.todo), reverse=True)[: len(slots)]
    print(
        f"Disk             {records / MEGABYTE:.0f} MB of records; up to {2 * sum(heaviest) / MEGABYTE:.0f} MB of "
        f"checkpoints with {len(slots)} at a time; {_free(arguments.results) / GIGABYTE:.0f} GB are free"
    )
    print(
        f"Measured         {len(measured)} of {len(costs)} pairs of method and data set, a few steps each, here and now"
    )
    guessed = sorted(f"{method} on {dataset}" for (method, dataset), cost in costs.items() if not cost.measured)
    if guessed:
        shown = ", ".join(guessed[:6]) + (f" and {len(guessed) - 6} more" if len(guessed) > 6 else "")
        print(f"Extrapolated     {shown}: by forward passes from what was measured")
    return COMPLETE


def measure(
    specs: Sequence[RunSpec], selection: Selection, missing: dict[str, str], limit: float = TOTAL
) -> dict[tuple[str, str], Cost]:
    """The cost of each (method, data set), timed as far as data and the time limit allow, else extrapolated."""
    first: dict[tuple[str, str], RunSpec] = {}
    for spec in specs:
        first.setdefault((spec.method, spec.dataset), spec)
    costs: dict[tuple[str, str], Cost] = {}
    deadline = time.monotonic() + limit
    for pair, spec in first.items():
        if (spec.paths.get("dataset") or spec.dataset) not in missing and time.monotonic() < deadline:
            cost = _time_one(spec, selection)
            if cost is not None:
                costs[pair] = cost
    for pair, spec in first.items():
        if pair not in costs:
            costs[pair] = _like_the_others(spec, selection, first, costs)
    return costs


def plausible_candidates(dataset: Dataset) -> Tensor:
    """(N, C) random sets: real ones cost an annotator, and these take the same time in a step."""
    import torch

    generator = torch.Generator().manual_seed(0)
    candidates = torch.rand(len(dataset.train), dataset.num_classes, generator=generator) < 0.1
    candidates[torch.arange(len(dataset.train)), dataset.train.labels] = True
    return candidates


def _time_one(spec: RunSpec, selection: Selection) -> Cost | None:
    """Time some steps and some of the evaluation of one run; nothing is stored. None if the method does not run."""
    import torch

    from benchmark.run.capture import silenced
    from benchmark.train.loading import dataset_of, entry_of
    from benchmark.train.trainer import Trainer
    from methods.registry import load

    device = torch.device(selection.devices[0])
    try:
        with silenced():
            dataset = dataset_of(spec, selection.place.data)
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


def _absent(dataset: str, root: Path) -> str:
    found = data_registry.get(dataset).find(root)
    return "" if found.status == "found" else f"{found.detail}; {found.how}"


def _hours(seconds: float) -> str:
    return f"about {seconds / 3600:.1f} h" if seconds >= 36_000 else f"about {duration(seconds)}"


def _free(folder: Path) -> int:
    existing = next(p for p in (folder.resolve(), *folder.resolve().parents) if p.exists())
    return shutil.disk_usage(existing).free
