"""Measure what runs cost on this device: a few real training steps and an evaluation per method and dataset."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from statistics import median

import torch
from tqdm import tqdm

from benchmark.config.sections import Annotator, Data
from benchmark.config.spec import RunSpec, digest_of, identity_of
from benchmark.runner.log import sentence, silenced
from benchmark.runner.options import RunOptions
from benchmark.store import ANNOTATOR, run_folder
from benchmark.trainer.candidates import annotator_run, plausible_candidates
from benchmark.trainer.device import release
from benchmark.trainer.frozen import BlankLoader, frozen_of
from benchmark.trainer.guard import peak_memory_mb, reset_peak_memory
from benchmark.trainer.loading import dataset_of, entry_of
from benchmark.trainer.trainer import Trainer, evaluations, steps_per_epoch
from datasets import registry
from datasets.base import DataError, Dataset, Split, cut
from datasets.candidates.generators import GENERATORS
from datasets.views.recipes import CIFAR, FINE_GRAINED
from methods.registry import load

PROBE = 4  # images of the first step, which tells how long a whole step takes
SLOW_STEP = 3.0  # seconds; on a CPU, a step that takes longer is measured with the images of the probe only
STEPS, EPOCH_SECONDS = 10, 2.0  # of a timed epoch, at most
EPOCHS, ENOUGH_SECONDS = 5, 0.5  # timed epochs at most, and the time after which there are enough of them
RANDOM_IMAGES = 64  # that replace the images of a dataset that is not on this machine


@dataclass(frozen=True)
class Cost:
    """Cost of runs that differ in their seeds or candidate labels, or of one annotator."""

    dataset: str
    label: str
    runs: int  # 0 for an annotator
    seconds: float  # of all runs, one after the other
    peak_memory_mb: float  # of one run, like the next
    reduced: bool  # measured with a smaller batch, so that the peak memory is a lower bound


def tasks_of(specs: Sequence[RunSpec], sets: Sequence[RunSpec]) -> list[tuple[RunSpec, int]]:
    """Return one run of every kind and how many there are; `sets` need only their labels.

    A run labelled "annotator", 0 times, stands for the annotator of its candidate labels.
    """
    tasks: dict[str, tuple[RunSpec, int]] = {}
    for spec in specs:
        # Seeds and candidate labels do not change the time of a step; a long tail leaves fewer rows.
        data = Data(imbalance=spec.data.imbalance)
        key = digest_of(replace(spec, seed=0, data=data, annotator=Annotator()).to_json())
        tasks[key] = spec, tasks[key][1] + 1 if key in tasks else 1
    for spec in (*specs, *sets):
        if GENERATORS[spec.data.generator].annotator:
            tasks[f"{spec.dataset} {spec.annotator} {spec.data.imbalance}"] = replace(spec, label=ANNOTATOR), 0
    return sorted(tasks.values(), key=lambda task: task[0].dataset)


def measure_all(
    tasks: Sequence[tuple[RunSpec, int]], place: RunOptions, missing: Collection[str], quiet: bool
) -> tuple[list[Cost], list[str]]:
    """Measure all tasks with a progress bar; return the costs, and a sentence for each that cannot be measured."""
    costs, problems = [], []
    for spec, runs in tqdm(tasks, "Measuring", leave=False, disable=quiet or None):
        try:
            with silenced():
                dataset = random_dataset(spec) if spec.dataset in missing else dataset_of(spec, place.data)
                if not runs:
                    spec = annotator_run(spec, dataset)
                    stored = run_folder(place.results, spec, identity_of(spec.digest, "")).read()
                    if stored is not None and stored["status"] == "done":
                        continue
                costs.append(measure(spec, runs, dataset, torch.device(place.device)))
        except Exception as error:  # a method that fails must not hide the cost of the others
            problems.append(f"Not measured: {spec.label} on {spec.dataset}: {sentence(error)}")
        release(place.device)
    return costs, problems


def random_dataset(spec: RunSpec) -> Dataset:
    """Return random images in the declared size, number and classes of a dataset that is not on this machine."""
    source, settings = registry.get(spec.dataset), spec.dataset_settings
    recipe = {"Common": CIFAR, "Fine-Grained": FINE_GRAINED}.get(source.group)
    if recipe is None or source.num_classes is None:
        raise DataError(f"{source.name} is not on this machine, and the size of its rows is not known without it.")
    classes, side = source.num_classes, recipe.test_resize or recipe.size
    images = torch.randint(256, (RANDOM_IMAGES * 3 * side * side,), dtype=torch.uint8)
    splits = []
    for part, declared in (("train", source.train_size), ("test", source.test_size)):
        index = torch.arange(settings.get(part) or declared or 2)
        offsets = index % RANDOM_IMAGES * 3 * side * side
        splits.append(Split(images, index % classes, torch.full((len(index), 2), side), offsets))
    names, backbone = tuple(map(str, range(classes))), source.backbone or Dataset.backbone
    return Dataset(source.name, classes, names, splits[0], splits[1], recipe, backbone=backbone)


def measure(spec: RunSpec, runs: int, dataset: Dataset, device: torch.device) -> Cost:
    """Time epochs of a few steps, with evaluation, on a part of the data of a run, and scale them to whole runs."""
    train = spec.train
    trainer = small_trainer(spec, dataset, device, PROBE, 1)
    times = [epoch_seconds(trainer) for _ in range(2)][1:]  # the first warms up
    step = times[0][0] * train.batch / PROBE
    reduced = device.type == "cpu" and step > SLOW_STEP
    if not reduced:
        trainer = small_trainer(spec, dataset, device, train.batch, min(STEPS, max(1, round(EPOCH_SECONDS / step))))
        reset_peak_memory(device)
        times = [epoch_seconds(trainer) for _ in range(2)][1:]
        while sum(map(sum, times)) < ENOUGH_SECONDS and len(times) < EPOCHS:
            times.append(epoch_seconds(trainer))
    training, evaluation = (median(seconds) for seconds in zip(*times, strict=True))
    rows, tests = len(dataset.train) - round(len(dataset.train) * train.holdout), len(dataset.test)
    batch = min(train.batch, rows)
    training *= steps_per_epoch(rows, batch, train) * batch / (trainer.steps_per_epoch * trainer.batch_size)
    evaluation *= tests / max(1, len(trainer.evaluator.test_labels))
    seconds = max(1, runs) * (train.epochs * training + evaluations(train) * evaluation)
    return Cost(spec.dataset, spec.label, runs, seconds, peak_memory_mb(device), reduced)


def small_trainer(spec: RunSpec, dataset: Dataset, device: torch.device, batch: int, steps: int) -> Trainer:
    """Build the trainer of a run for epochs of so many steps, from random weights; a frozen encoder gives empty maps."""
    rows, tests = math.ceil(batch * steps / (1 - spec.train.holdout)), 4 * batch
    part = cut(dataset, rows if rows < len(dataset.train) else None, tests if tests < len(dataset.test) else None)
    backbone = replace(spec.backbone, pretrained=False, weights="")
    train = replace(spec.train, batch=batch, eval_every=1)
    spec = replace(spec, backbone=backbone, train=train, paths={**spec.paths, "weights": ""})
    maps = BlankLoader(frozen_of(spec, part, device), spec.seed, device) if backbone.frozen else None
    return Trainer(spec, load(entry_of(spec)), part, plausible_candidates(part), device, inputs=maps)


def epoch_seconds(trainer: Trainer) -> tuple[float, float]:
    """Train an epoch at three quarters of the training, when warm-ups are over; return seconds of steps and evaluation."""
    trainer.epoch = trainer.epochs * 3 // 4
    seconds = trainer.train_epoch()["time"]
    return seconds["train_seconds"], seconds["seconds"] - seconds["train_seconds"]
