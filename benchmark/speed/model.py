"""What `paper` would take on a card that is not here: its trainer on the pretend device, by a virtual clock.

A model, marked as one wherever it is shown. Networks, batch and classes are the paper's, pictures have its sizes and no
content. See `benchmark/device/clock.py` for what is assumed of host and card.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmark.device.clock import CARDS, VirtualClock
from benchmark.plan.profile import load_profile
from benchmark.plan.resolution import Override, resolve
from benchmark.train.candidates import plausible_candidates
from benchmark.train.loading import entry_of
from benchmark.train.trainer import Trainer, TrainingRows
from datasets.base import Dataset, Split, plural
from datasets.registry import get
from datasets.views.recipes import CIFAR, FINE_GRAINED
from methods.registry import discover, load

PROFILE = "paper"
STAND_IN = {"32 px": "cifar100", "224 px": "cub200"}  # whose settings and number of classes are taken
PRECISIONS = {"TF32": "conv", "bf16": "bfloat16"}  # as shown, and as the clock calls them
STEPS = 3  # of which the first fills the pipe
PROGRESS = 0.75  # of training: warm-ups are over
CUDA = torch.device("cuda")
ROWS = {"32 px": 8192, "224 px": 384}  # a block of views needs as many


def pictures(size: str, classes: int) -> Dataset:
    """As many as a block of views needs, as large as the paper's, all black."""
    rows = ROWS[size]
    labels = torch.arange(rows) % classes
    names = tuple(map(str, range(classes)))
    if size == "32 px":
        split = Split(torch.zeros(rows, 3, 32, 32, dtype=torch.uint8), labels)
        return Dataset("modelled", classes, names, split, split, CIFAR, backbone="resnet18-cifar")
    long = 256 + torch.arange(rows) % 170  # the shorter side is 256, the mean of the longer one 341
    sizes = torch.stack((torch.full_like(long, 256), long), 1)
    sizes[::3] = sizes[::3].flip(1)
    pixels = 3 * sizes.prod(1)
    flat = torch.zeros(int(pixels.sum()), dtype=torch.uint8)
    split = Split(flat, labels, sizes, pixels.cumsum(0) - pixels)
    return Dataset("modelled", classes, names, split, split, FINE_GRAINED, backbone="resnet34-imagenet")


def modelled_trainer(method: str, size: str, device: torch.device = CUDA) -> Trainer:
    """The trainer of a run of `paper`, late in training, on a card or on the pretend device that is entered.

    Without autocast, which does not reach tensors of the latter: the clock itself halves what it halves.
    """
    without_download = [Override("backbone", "pretrained", "false")]
    spec = resolve(load_profile(PROFILE), discover().get(method), STAND_IN[size], 0, without_download)
    dataset = pictures(size, get(STAND_IN[size]).num_classes or 100)
    candidates = plausible_candidates(dataset)
    trainer = Trainer(spec, load(entry_of(spec)), dataset, candidates, device)
    trainer.epoch = int(trainer.epochs * PROGRESS)
    return trainer


def measure(method: str, size: str, card: str, shown: str) -> dict[str, Any]:
    """One row: modelled milliseconds of a step alone and with its views, idle share, launches, waits, per-epoch parts."""
    with VirtualClock(CARDS[card], PRECISIONS[shown]) as clock:
        trainer = modelled_trainer(method, size)
        trainer.begin_epoch()
        together = trainer.inputs.batches_at_once(trainer.batch_size)
        batch = next(trainer.batches(trainer.order(0), 0))
        trainer.step(batch)
        clock.reset()
        for _ in range(STEPS):
            trainer.step(batch)
        alone, launches = clock.seconds / STEPS, sum(clock.launches.values()) / STEPS
        waits = sum(clock.waits.values()) / STEPS
        busy_step = clock.busy / STEPS
        if together == 1:
            seconds, busy, view_waits = _pipeline(clock, trainer)
        else:
            clock.reset()
            trainer.batch(torch.arange(together * trainer.batch_size) % len(trainer.rows))
            seconds, busy = alone + clock.seconds / together, busy_step + clock.busy / together
            view_waits = sum(clock.waits.values())
        clock.reset()
        trainer.begin_epoch()
        with torch.no_grad():
            trainer.method.on_epoch_end(trainer.clock(), TrainingRows(trainer))
        hooks = clock.seconds / len(trainer.rows)
        evaluation = _evaluation(clock, trainer)
    return {
        "method": method, "size": size, "card": card, "precision": shown, "step_ms": 1e3 * alone,
        "with_views_ms": 1e3 * seconds, "idle": max(0.0, 1 - busy / seconds), "launches": round(launches),
        "waits_per_step": waits, "waits_per_block": view_waits, "hooks_us_per_row": 1e6 * hooks,
        "evaluation_us_per_row": 1e6 * evaluation,
    }  # fmt: skip


def _pipeline(clock: VirtualClock, trainer: Trainer) -> tuple[float, float, float]:
    """Seconds, busy seconds and waits per step where every step has views of its own, made while the last one runs."""
    count = trainer.batch_size
    marks = []
    clock.reset()
    for k in range(STEPS + 1):
        block = trainer.batch(torch.arange(k * count, (k + 1) * count) % len(trainer.rows))
        trainer.step(block)
        marks.append((clock.device_free, clock.busy))
    (first, busy_first), (last, busy_last) = marks[0], marks[-1]
    waits = sum(clock.waits.values())
    return (last - first) / STEPS, (busy_last - busy_first) / STEPS, waits / (STEPS + 1)


def _evaluation(clock: VirtualClock, trainer: Trainer) -> float:
    """Seconds per test picture, its bytes being on the card."""
    list(trainer.inputs.test_batches())
    clock.reset()
    trainer.method.eval()
    with torch.no_grad():
        for images in trainer.inputs.test_batches():
            trainer.method.predict(images)
    return clock.seconds / len(trainer.evaluator.test_labels)


def report(methods: Sequence[str], card: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """All rows of some methods on a card, and the hours of Table 2 if these are its methods."""
    rows = []
    for method in methods:
        for size in STAND_IN:
            rows += [measure(method, size, card, shown) for shown in PRECISIONS]
        tell(method)
    return {
        "kind": "model",
        "card": card,
        "rows": rows,
        "hours": {shown: hours(rows, card, shown) for shown in PRECISIONS},
    }


def table(document: dict[str, Any]) -> str:
    """As text, with what it is."""
    lines = [
        f"Modelled on an {document['card']}: a virtual clock on shapes, not a measurement (batch 128, networks of `paper`)",
        "",
        f"{'method':<12} {'size':<7} {'':<5} {'step ms':>8} {'+ views':>8} {'idle':>6} {'launches':>9} {'waits':>6}",
    ]
    for row in document["rows"]:
        waits = row["waits_per_step"] + row["waits_per_block"]
        lines.append(
            f"{row['method']:<12} {row['size']:<7} {row['precision']:<5} {row['step_ms']:>8.1f} "
            f"{row['with_views_ms']:>8.1f} {100 * row['idle']:>5.1f}% {row['launches']:>9} {waits:>6.1f}"
        )
    total = ", ".join(f"{value:.0f} in {shown}" for shown, value in document["hours"].items())
    count = plural(len({row["method"] for row in document["rows"]}), "method")
    return "\n".join([*lines, "", f"GPU hours of {count} on the data sets and seeds of Table 2, modelled: {total}"])


def hours(rows: Sequence[dict[str, Any]], card: str, shown: str) -> float:
    """GPU hours of the runs of Table 2 that these rows stand for: every method on every data set and seed."""
    profile = load_profile(PROFILE)
    by_key = {(row["method"], row["size"]): row for row in rows if (row["card"], row["precision"]) == (card, shown)}
    total = 0.0
    for name in profile.datasets:
        source = get(name)
        size = "32 px" if source.group == "Common" else "224 px"
        for method in {method for method, _ in by_key}:
            row = by_key[method, size]
            total += seconds_of_a_run(row, source.train_size or 0, source.test_size or 0)
    return total * len(profile.seeds) / 3600


def seconds_of_a_run(row: dict[str, Any], train: int, test: int) -> float:
    settings = resolve(load_profile(PROFILE), discover().get(row["method"]), STAND_IN[row["size"]], 0).train
    steps = train // settings.batch
    per_epoch = steps * row["with_views_ms"] / 1e3 + train * row["hooks_us_per_row"] / 1e6
    return settings.epochs * (per_epoch + test * row["evaluation_us_per_row"] / 1e6 / settings.eval_every)
