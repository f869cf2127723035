"""Train one method on one dataset: device, precision, schedule, seeding, checkpoints, evaluation, the NaN guard.

Order = f(seed, epoch), augmentation = f(seed, epoch, index, view), initialisation = f(seed), randomness inside a step
= f(seed, step). So a checkpoint needs no generator state, and training can resume from any step.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from benchmark.config.sections import Train
from benchmark.config.spec import RunSpec
from benchmark.errors import MethodDefect
from benchmark.store import ANNOTATOR, StoredRun, epochs_digest
from benchmark.trainer import checkpoint
from benchmark.trainer.device import ready
from benchmark.trainer.evaluation import Evaluator, first_per_class
from benchmark.trainer.frozen import FrozenLoader, frozen_of
from benchmark.trainer.guard import (
    GUARD_EVERY,
    Diverged,
    Guard,
    RunningMeans,
    peak_memory_mb,
    reset_peak_memory,
    stray_tensors,
)
from benchmark.trainer.inputs import Inputs, ViewLoader, with_views
from benchmark.trainer.optimizers import Optimizer
from benchmark.trainer.seeding import derive
from datasets.base import UNKNOWN, DataError, Dataset
from datasets.views.upload import to_device
from methods.base import Backbone, Batch, Clock, Method, Task
from methods.networks.backbones import USE_A_FILE, Layers, factory
from methods.supervised import sees_truth


class Interrupted(Exception):
    """Raised when the run was asked to stop and has saved its state."""


@dataclass
class Hooks:
    """Callbacks of a run: ask it to stop, follow its epochs."""

    stop: Callable[[], bool] = lambda: False
    on_epoch: Callable[[dict[str, Any]], None] = lambda record: None
    checkpoint_seconds: float | None = None  # exactly this often; None: as rarely as their cost demands


class Compiled:
    """Compile a function with torch and measure compiling as the time of calls beyond an ordinary one."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = torch.compile(function)
        self.seconds: list[float] = []

    def __call__(self, *arguments: Any) -> Any:
        start = time.perf_counter()
        try:
            return self.function(*arguments)
        finally:
            self.seconds.append(time.perf_counter() - start)

    def compile_seconds(self) -> float:
        """Return the time spent compiling since the last call of this method; compiling makes a call many times as long."""
        ordinary = median(self.seconds) if self.seconds else 0.0
        total = sum(s - ordinary for s in self.seconds if s > 10 * ordinary)
        self.seconds.clear()
        return total


def compiled_parts(method: Method) -> list[Compiled]:
    """Compile the method's step and state update in place."""
    torch.compiler.reset()  # torch stops compiling after some graphs per process; those of earlier runs would count
    names = ["training_step"] + ["after_step"] * (type(method).after_step is not Method.after_step)
    parts = [Compiled(getattr(method, name)) for name in names]
    for name, part in zip(names, parts, strict=True):
        setattr(method, name, part)
    return parts


class TrainingRows:
    """Training set as epoch hooks see it (`methods.base.TrainingData`), without true labels."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def infer(self, fn: Callable[[Tensor], Any], view: str = "plain") -> Any:
        return self._trainer.infer(fn, view)

    def reset_momentum(self) -> None:
        self._trainer.optimizer.reset_momentum()


class Trainer:
    """Train one run from its first or its last saved step to its end."""

    def __init__(
        self,
        spec: RunSpec,
        method_class: type[Method],
        dataset: Dataset,
        candidates: Tensor,
        device: torch.device,
        hooks: Hooks | None = None,
        inputs: Inputs | None = None,
    ) -> None:
        self.spec, self.hooks = spec, hooks or Hooks()
        self.settings = spec.train
        self.device = device = ready(device, self.settings.tf32)
        self.seed = spec.seed
        torch.set_num_threads(self.settings.threads)
        self.rows, held_out = rows_of(dataset, self.settings, spec.data_seed)
        if self.settings.few and not sees_truth(method_class):
            raise DataError(f"train.few picks rows by their true labels, which {method_class.name} must not see.")
        self.candidates = candidates[self.rows].to(device)
        channels_last = self.settings.channels_last and dataset.train.images.dtype == torch.uint8
        viewed = with_views(dataset, spec.views, spec.backbone.normalisation)
        self.frozen = frozen_of(spec, viewed, device) if spec.backbone.frozen else None
        view_seed = derive(self.seed, "views")
        if self.frozen is not None:
            inputs = inputs or FrozenLoader(self.frozen, view_seed, device, method_class.views)
        self.inputs = inputs or ViewLoader(viewed, view_seed, device, channels_last)
        self.batch_size = min(self.settings.batch, len(self.rows))
        self.steps_per_epoch = steps_per_epoch(len(self.rows), self.batch_size, self.settings)
        self.epochs = self.settings.epochs
        self.task = Task(
            dataset.num_classes, self.candidates, self.epochs, self.steps_per_epoch, self._backbones(dataset)
        )
        torch.manual_seed(derive(self.seed, "init"))
        self.method = build(method_class, spec.method_config, self.task)
        if sees_truth(method_class):
            if (dataset.train.labels[self.rows] == UNKNOWN).any():
                raise DataError(f"{method_class.name} trains on true labels, and rows of {dataset.name} have none.")
            self.method.reveal(dataset.train.labels[self.rows])  # type: ignore[operator]
        self.method.to(device)
        if channels_last:
            self.method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for _, text in stray_tensors(self.method):
            raise MethodDefect(method_class, f"{text}.")
        self.compiled = compiled_parts(self.method) if self.settings.compile else []
        self.optimizer = Optimizer(self.method, self.settings, device)
        self.evaluator = Evaluator(dataset, self.inputs, candidates, self.rows, held_out, self.settings)
        self.means, self.guard = RunningMeans(), Guard(1 if device.type == "cpu" else GUARD_EVERY)
        self.epoch, self.step_in_epoch = 0, 0
        self.save_timer = checkpoint.SaveTimer(self.hooks.checkpoint_seconds)

    def _backbones(self, dataset: Dataset) -> Callable[[], Backbone]:
        """Return the function that builds encoders: the k-th one of every method starts from the same weights."""
        network, images = self.spec.backbone, dataset.train.images
        width = None if images.dtype == torch.uint8 else images.shape[1]
        is_annotator = self.spec.purpose == ANNOTATOR
        build_one: Callable[[], Backbone]
        if self.frozen is not None:
            build_one, width = self.frozen.adapter, self.frozen.network.feature_dim
        else:
            build_one = factory(
                network.name or dataset.backbone,
                width or 3,
                network.pretrained,
                self.spec.weight_file(),
                Layers(network.width, network.depth, network.order, network.features, network.xavier),
                asks=f"The {'annotator of' if is_annotator else 'encoder on'} {dataset.name}",
                remedy=USE_A_FILE + (", or another network with --set annotator.network=NAME" if is_annotator else ""),
                file=self.spec.network_file(),
            )
        calls, seed = itertools.count(), self.seed  # not `self`: a reference cycle would hold the last run's memory

        def backbone() -> Backbone:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(derive(seed, "backbone", next(calls)))
                encoder = build_one()
            encoder.input_features = width
            return encoder

        return backbone

    def infer(self, fn: Callable[[Tensor], Any], view: str = "plain") -> Any:
        """Apply `fn` to one view of every training row, in order."""
        parts = []
        with torch.no_grad(), self.autocast():
            for start in range(0, len(self.rows), 256):
                rows = self.rows[start : start + 256]
                parts.append(fn(self.inputs.train_views(rows, (view,), self.epoch)[0]))
        if isinstance(parts[0], tuple):
            return tuple(torch.cat(column) for column in zip(*parts, strict=True))
        return torch.cat(parts)

    def autocast(self) -> AbstractContextManager[Any]:
        amp = self.settings.amp
        return nullcontext() if amp == "off" else torch.autocast(self.device.type, dtype=getattr(torch, amp))

    def clock(self) -> Clock:
        step = self.epoch * self.steps_per_epoch + self.step_in_epoch
        return Clock(self.epoch, step, self.epochs, self.steps_per_epoch)

    def order(self, epoch: int) -> Tensor:
        """Return positions in the training rows, in the order of this epoch."""
        generator = torch.Generator().manual_seed(derive(self.seed, "order", epoch))
        return torch.randperm(len(self.rows), generator=generator)

    def seed_generators(self, purpose: str, number: int) -> None:
        """Seed torch's generators of the CPU and of this device; `torch.manual_seed` takes 270 µs for those of all devices."""
        seed = derive(self.seed, purpose, number)
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def begin_epoch(self) -> None:
        """Call the method's hook before the first step of an epoch."""
        self.method.train()
        self.seed_generators("epoch start", self.epoch)
        with torch.no_grad():
            self.method.on_epoch_start(self.clock(), TrainingRows(self))
        self.method.train()
        self.means = RunningMeans()

    def end_epoch(self) -> None:
        """Call the method's hook after the last step of an epoch, and check losses and weights."""
        self.guard.check()
        self.seed_generators("epoch end", self.epoch)
        with torch.no_grad():
            self.method.on_epoch_end(self.clock(), TrainingRows(self))
        norms = torch.stack([torch.linalg.vector_norm(p.detach()) for p in self.method.parameters()])
        if not bool(torch.isfinite(norms).all()):
            raise Diverged(f"a weight became infinite or NaN in epoch {self.epoch}")

    def train_epoch(self, save: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """Train from the current step to the end of the epoch; return its record."""
        method, started = self.method, time.perf_counter()
        method.train()
        if self.step_in_epoch == 0:
            self.begin_epoch()
        order, first_step = self.order(self.epoch), self.step_in_epoch
        for batch in self.batches(order, first_step):
            self.step(batch)
            if self.hooks.stop():
                self.guard.check()
                save()
                raise Interrupted
            if self.step_in_epoch < self.steps_per_epoch and self.save_timer.is_due():
                self.guard.check()
                save()
        self.end_epoch()
        seconds = time.perf_counter() - started
        images = (self.step_in_epoch - first_step) * self.batch_size
        result: dict[str, Any] = {"lr": self.optimizer.lr, **self.means.read()}
        result |= {name: float(value) for name, value in method.diagnostics().items()}
        if evaluates(self.settings, self.epoch):
            result |= self.evaluator.evaluate(method, self.autocast())
        record: dict[str, Any] = {
            "epoch": self.epoch,
            "result": {key: plain(value) for key, value in result.items()},
            "time": {
                "seconds": round(time.perf_counter() - started, 4),
                "train_seconds": round(seconds, 4),
                "images_per_second": round(images / max(seconds, 1e-9), 1),
                "peak_memory_mb": round(peak_memory_mb(self.device), 1),
            },
        }
        if self.compiled:
            record["time"]["compile_seconds"] = round(sum(part.compile_seconds() for part in self.compiled), 4)
        self.epoch, self.step_in_epoch = self.epoch + 1, 0
        return record

    def batches(self, order: Tensor, first_step: int) -> Iterator[Batch]:
        """Yield the remaining batches of an epoch.

        Views depend on the image alone, not on its batch, so small batches share the fixed cost of making them.
        """
        together = self.batch_size * self.inputs.batches_at_once(self.batch_size)
        end = min(self.steps_per_epoch * self.batch_size, len(order))
        for start in range(first_step * self.batch_size, end, together):
            block = self.batch(order[start : min(start + together, end)])
            for at in range(0, len(block.index), self.batch_size):
                part = slice(at, at + self.batch_size)
                yield Batch(tuple(view[part] for view in block.views), block.candidates[part], block.index[part])

    def batch(self, positions: Tensor) -> Batch:
        """Return views and candidates of `positions` (B,) in the training rows."""
        views = self.inputs.train_views(self.rows[positions], self.method.views, self.epoch)
        (index,) = to_device((positions,), self.device)
        return Batch(views, self.candidates[index], index)

    def step(self, batch: Batch) -> None:
        """Update the method with one batch."""
        clock = self.clock()
        self.optimizer.schedule_to(clock.step, self.steps_per_epoch)
        self.seed_generators("step", clock.step)
        with self.autocast():
            step = self.method.update(batch, self.optimizer, clock)
        loss = self.means.add("loss", step.loss)
        for name, value in step.logs.items():
            self.means.add(f"loss_{name}", value)
        self.guard.watch(clock.step, loss, batch.index)
        self.step_in_epoch += 1

    # checkpoints ------------------------------------------------------------------------------------------------------
    def save(self, folder: StoredRun, identity: str) -> None:
        state = {
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "means": self.means.state(),
            "epoch": self.epoch,
            "step_in_epoch": self.step_in_epoch,
            "metrics_sha256": epochs_digest(folder.epochs()[: self.epoch]),
        }
        with self.save_timer.saving():
            checkpoint.save(folder.path, identity, state)

    def check_state(self, state: Mapping[str, Any], records: Sequence[dict[str, Any]]) -> None:
        """Raise DamagedCheckpoint unless training can resume from a saved state; `records` are those of metrics.jsonl."""
        epoch, step = state["epoch"], state["step_in_epoch"]
        if not (0 <= epoch < self.epochs and 0 <= step <= self.steps_per_epoch):
            raise checkpoint.DamagedCheckpoint(f"epoch {epoch}, step {step} is not in this training")
        if epoch > len(records) or state["metrics_sha256"] != epochs_digest(records[:epoch]):
            raise checkpoint.DamagedCheckpoint("metrics.jsonl does not have the epochs with which it was saved")
        if shapes(state["method"]) != shapes(self.method.state_dict()):
            raise checkpoint.DamagedCheckpoint("its tensors are not those of this method")
        self.optimizer.check_state(state["optimizer"])

    def restore(self, folder: StoredRun, identity: str) -> None:
        """Go to the newest saved step that fits, if there is one."""
        records = folder.epochs()
        state = checkpoint.load(folder.path, identity, lambda state: self.check_state(state, records))
        if state is not None:
            self.method.load_state_dict(state["method"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.means.restore(state["means"], self.device)
            self.epoch, self.step_in_epoch = state["epoch"], state["step_in_epoch"]
        folder.truncate_epochs(self.epoch)

    def run(self, folder: StoredRun, identity: str) -> list[dict[str, Any]]:
        """Train to the end; return the records of all epochs, including those of earlier sessions."""
        reset_peak_memory(self.device)
        self.restore(folder, identity)
        records = folder.epochs()
        while self.epoch < self.epochs:
            record = self.train_epoch(lambda: self.save(folder, identity))
            folder.append_epoch(record)
            records.append(record)
            self.hooks.on_epoch(record)
            if self.epoch < self.epochs:
                stop = self.hooks.stop()
                if stop or self.save_timer.is_due():
                    self.save(folder, identity)
                if stop:
                    raise Interrupted
        return records


def build(method_class: type[Method], config: Mapping[str, Any], task: Task) -> Method:
    """Build a method from its resolved settings; JSON has no tuples, so lists become tuples again."""
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in config.items()}
    return method_class(method_class.Config(**values), task)


def shapes(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return shape and type of every tensor of a state dict, and the kind of everything else."""
    return {k: (tuple(v.shape), v.dtype) if isinstance(v, Tensor) else type(v) for k, v in state.items()}


def rows_of(dataset: Dataset, settings: Train, seed: int) -> tuple[Tensor, Tensor]:
    """Return the rows to train on and the held-out rows, each ascending; with `train.few` both are held-out rows."""
    count, generator = len(dataset.train), torch.Generator().manual_seed(derive(seed, "holdout"))
    size, permutation = round(count * settings.holdout), torch.randperm(count, generator=generator)
    rows, held_out = permutation[size:].sort().values, permutation[:size].sort().values
    if not settings.few:
        return rows, held_out
    few = first_per_class(dataset.train.labels[held_out], dataset.num_classes, settings.few)
    if len(few) < 2:
        raise DataError(f"train.few={settings.few} finds fewer than two held-out rows; raise train.holdout.")
    rest = torch.ones(len(held_out), dtype=torch.bool)
    rest[few] = False
    return held_out[few], held_out[rest]


def steps_per_epoch(rows: int, batch: int, settings: Train) -> int:
    """Count whole batches, and the last one if it is kept and has at least two samples, as batch norm needs."""
    steps = rows // batch + (1 if settings.last_batch == "keep" and rows % batch > 1 else 0)
    return min(steps, settings.steps or steps)


def evaluates(settings: Train, epoch: int) -> bool:
    """Return whether this epoch ends with an evaluation: every n-th one, and all of the last 2 % (at least the last)."""
    tail = max(1, settings.epochs // 50)  # ten of 500, so that their mean is one of ten
    return (epoch + 1) % settings.eval_every == 0 or epoch >= settings.epochs - tail


def evaluations(settings: Train) -> int:
    """Return the number of evaluations in a run."""
    return sum(evaluates(settings, epoch) for epoch in range(settings.epochs))


def weights_digest(method: Method) -> str:
    """Return the SHA-256 over names, shapes and bytes of everything in the state dict."""
    digest = hashlib.sha256()
    for name, value in sorted(method.state_dict().items()):
        digest.update(name.encode())
        if isinstance(value, Tensor):
            digest.update(f"{tuple(value.shape)}{value.dtype}".encode())
            digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        else:
            digest.update(repr(value).encode())
    return digest.hexdigest()


def plain(value: Any) -> Any:
    """Return a number as JSON can store it; NaN and infinities become null."""
    if isinstance(value, Tensor):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
