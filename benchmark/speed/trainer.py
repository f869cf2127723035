"""What a method's training costs beside the bare loop of its networks, and where the difference goes.

The bare loop is found, not written: some steps of the method are watched, and every outermost call of a network is
noted with its inputs, whether it was made for gradients, and the gradient that came back. The loop repeats these calls
and backward passes on the tensors it has kept, with a step of the same optimiser wherever the method took one, and does
nothing else. So it is right for any method, plug-ins included. The two take turns step by step, because a machine's
speed changes within a second. What networks do in a method's epoch hooks is the networks' time, too.
"""

from __future__ import annotations

import itertools
import multiprocessing
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from benchmark.cli.estimate import plausible_candidates
from benchmark.plan.spec import RunSpec
from benchmark.run.capture import silenced
from benchmark.run.options import RunOptions
from benchmark.speed import timing as speed_timing
from benchmark.store import RunFolder
from benchmark.train.guard import peak_memory_mb, reset_peak_memory
from benchmark.train.loading import dataset_of, entry_of
from benchmark.train.trainer import CHECKPOINT_SECONDS, CHECKPOINT_SHARE, Trainer, TrainingRows
from methods.base import Batch
from methods.registry import load

YARDSTICK = "proden"  # the method whose step is 1 in the docs' cost column
PARTS = ("views", "losses", "state", "logging", "hooks", "evaluation", "checkpoints")
ROUND_SECONDS = 0.5  # of training in one round, at least one step
RECORDED = 8  # steps at most that the bare loop repeats in turn: fresh data for every step, as in training

STAGE = 0.75  # of training: warm-ups are over
Batches = list[Batch]


@contextmanager
def outermost_calls(enter: Callable[[], Any], leave: Callable[..., Any]) -> Iterator[None]:
    """Call `enter` before and `leave` after every call of a network that no other network makes."""
    depth = 0

    def before(module: nn.Module, arguments: Any) -> None:
        nonlocal depth
        depth += 1
        if depth == 1:
            enter()

    def after(module: nn.Module, arguments: Any, keywords: dict[str, Any], output: Any) -> None:
        nonlocal depth
        depth -= 1
        if depth == 0:
            leave(module, arguments, keywords, output)

    hooks = (
        register_module_forward_pre_hook(before),
        register_module_forward_hook(after, with_kwargs=True),  # type: ignore[arg-type]
    )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@dataclass
class Call:
    """One outermost call of a network in a step."""

    module: nn.Module
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    with_gradient: bool
    gradients: list[Tensor | None]  # one per tensor that it returned; None: nothing came back


@dataclass
class Recording:
    """The calls of one step, with None wherever the optimiser took a step."""

    events: list[Call | None] = field(default_factory=list)

    def watching(self) -> AbstractContextManager[None]:
        """Note the calls of all networks in here."""
        return outermost_calls(lambda: None, self._note)

    def _note(self, module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        outputs = tensors_of(output)
        gradients: list[Tensor | None] = [None] * len(outputs)
        for k, tensor in enumerate(outputs):
            if tensor.requires_grad:
                tensor.register_hook(lambda gradient, k=k: gradients.__setitem__(k, gradient.detach().clone()))
        kept = tuple(_kept(a) for a in arguments)
        named = {name: _kept(a) for name, a in keywords.items()}
        self.events.append(Call(module, kept, named, torch.is_grad_enabled(), gradients))


def tensors_of(output: Any) -> list[Tensor]:
    """The tensors that a network returned."""
    if isinstance(output, Tensor):
        return [output]
    return [t for part in output for t in tensors_of(part)] if isinstance(output, tuple | list) else []


def _kept(argument: Any) -> Any:
    """A ready tensor with the same values that asks for a gradient if the original did."""
    if not isinstance(argument, Tensor):
        return argument
    return argument.detach().clone().requires_grad_(argument.requires_grad)


class BareLoop:
    """Forward and backward passes and optimiser steps of recorded steps, one after the other, and nothing else.

    `plain` clears gradients and steps as torch's own SGD does, which is slower than the trainer; `compiled` compiles the
    networks.
    """

    def __init__(
        self, recordings: list[Recording], trainer: Trainer, plain: bool = False, compiled: bool = False
    ) -> None:
        self.recordings = itertools.cycle(recordings)
        self.autocast = trainer.autocast
        called = {event.module for recording in recordings for event in recording.events if event is not None}
        self.networks: dict[nn.Module, Callable[..., Any]] = {m: torch.compile(m) if compiled else m for m in called}
        settings = {name: getattr(trainer.settings, name) for name in ("momentum", "weight_decay")}
        groups = trainer.method.param_groups()
        self.clear: Callable[[], Any]
        self.advance: Callable[[], Any]
        # lr 0 costs the same and leaves the weights alone, so that the trainer can go on with them
        if plain:
            ordinary = torch.optim.SGD(groups, lr=0.0, fused=True, **settings)
            for parameter in trainer.method.parameters():  # it stops where one is missing when others are there
                ordinary.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
            self.clear, self.advance = ordinary.zero_grad, ordinary.step
        else:
            own = torch.optim.SGD(groups, lr=0.0, foreach=True, **settings)
            self.clear, self.advance = own.zero_grad, own.step

    def steps(self, batches: Batches) -> None:
        """As many as there are batches; the tensors are its own."""
        for _ in batches:
            self.step()

    def step(self) -> None:
        outputs: list[Tensor] = []
        gradients: list[Tensor] = []
        events = next(self.recordings).events
        for event in events:
            if event is None:
                self.clear()
                if outputs:
                    torch.autograd.backward(outputs, gradients)
                self.advance()
                outputs, gradients = [], []
                continue
            with torch.set_grad_enabled(event.with_gradient), self.autocast():
                returned = tensors_of(self.networks[event.module](*event.arguments, **event.keywords))
            for tensor, gradient in zip(returned, event.gradients, strict=True):
                if gradient is not None:
                    outputs.append(tensor)
                    gradients.append(gradient)
        for event in events:
            for tensor in (*event.arguments, *event.keywords.values()) if event is not None else ():
                if isinstance(tensor, Tensor):
                    tensor.grad = None


class Subject:
    """One method's trainer, set to late in training, with its parts timed."""

    def __init__(self, spec: RunSpec, place: RunOptions) -> None:
        self.device = torch.device(place.device)
        dataset = dataset_of(spec, place.data)
        candidates = plausible_candidates(dataset)
        self.trainer = trainer = Trainer(spec, load(entry_of(spec)), dataset, candidates, self.device)
        trainer.epoch = int(trainer.epochs * STAGE)
        trainer.method.train()
        trainer.optimizer.schedule_to(trainer.clock().step, trainer.steps_per_epoch)
        once, always = self._epoch_hooks(), self._epoch_hooks()
        # per epoch, of networks and of all else; what is done once is spread out
        self.hooks = tuple(a + max(o - a, 0.0) / trainer.epochs for o, a in zip(once, always, strict=True))
        self.state_seconds = 0.0
        self.update_seconds = 0.0
        self._follow()

    def _seconds(self, work: Callable[[], Any]) -> float:
        return speed_timing.seconds(work, self.device)

    def _epoch_hooks(self) -> tuple[float, float]:
        """Seconds of networks and of all else in the method's hooks of one epoch."""
        method, clock, rows = self.trainer.method, self.trainer.clock(), TrainingRows(self.trainer)
        networks = 0.0

        def enter() -> None:
            nonlocal networks
            networks -= speed_timing.now(self.device)

        def leave(*_: Any) -> None:
            nonlocal networks
            networks += speed_timing.now(self.device)

        start = speed_timing.now(self.device)
        with torch.no_grad(), outermost_calls(enter, leave):
            method.on_epoch_start(clock, rows)
            method.train()
            method.on_epoch_end(clock, rows)
        method.train()
        return networks, speed_timing.now(self.device) - start - networks

    def _follow(self) -> None:
        """Time `update` and `after_step` from now on."""
        method = self.trainer.method
        update, after_step = method.update, method.after_step

        def timed_update(*arguments: Any) -> Any:
            start = speed_timing.now(self.device)
            try:
                return update(*arguments)
            finally:
                self.update_seconds += speed_timing.now(self.device) - start

        def timed_after_step(*arguments: Any) -> None:
            start = speed_timing.now(self.device)
            after_step(*arguments)
            self.state_seconds += speed_timing.now(self.device) - start

        method.update = timed_update  # type: ignore[assignment,method-assign]
        method.after_step = timed_after_step  # type: ignore[assignment,method-assign]

    def block(self) -> tuple[Batches, float]:
        """The batches whose views are made together, and the seconds that making them took."""
        trainer = self.trainer
        source = trainer.batches(trainer.order(trainer.epoch), 0)
        together = min(trainer.inputs.batches_at_once(trainer.batch_size), trainer.steps_per_epoch)
        batches: Batches = []
        spent = self._seconds(lambda: batches.extend(next(source) for _ in range(together)))
        return batches, spent

    def steps(self, batches: Batches) -> None:
        for batch in batches:
            self.trainer.step(batch)
        self.trainer.guard.check()

    def bare_loops(self, steps: int) -> dict[str, BareLoop]:
        """The networks' part of some steps with the trainer's optimiser and with torch's; these train as any other.

        If the step is compiled there is one with compiled networks, too.
        """
        trainer = self.trainer
        recordings: list[Recording] = []
        minimise = trainer.optimizer.minimise

        def noted(loss: Tensor) -> None:
            minimise(loss)
            recordings[-1].events.append(None)

        trainer.optimizer.minimise = noted  # type: ignore[method-assign]
        try:
            for batch in self.block()[0][:steps]:
                recordings.append(Recording())
                # A compiled step calls no network that one can watch.
                with recordings[-1].watching(), torch.compiler.set_stance("force_eager"):
                    self.steps([batch])
        finally:
            trainer.optimizer.minimise = minimise  # type: ignore[method-assign]
        loops = {"bare": BareLoop(recordings, trainer), "plain": BareLoop(recordings, trainer, plain=True)}
        if trainer.compiled:
            loops["compiled"] = BareLoop(recordings, trainer, compiled=True)
            warnings.filterwarnings("ignore", "Using .torch.compile.module")  # of hooks, which have been removed by now
            loops["compiled"].steps([batch] * len(recordings))
        return loops

    def evaluation_seconds(self) -> float:
        """One evaluation, test pictures being prepared already as from the second epoch on."""

        def evaluate() -> None:
            self.trainer.evaluator.evaluate(self.trainer.method, self.trainer.autocast())

        evaluate()
        return self._seconds(evaluate)

    def checkpoint_share(self) -> float:
        """Share of the time that saving takes: it waits until it is small enough."""
        with tempfile.TemporaryDirectory() as folder:
            cost = self._seconds(lambda: self.trainer.save(RunFolder(Path(folder)), "0" * 64))
        return cost / max(CHECKPOINT_SECONDS, cost / CHECKPOINT_SHARE)

    def state_bytes_per_sample(self) -> float:
        """What the method keeps of every training picture."""
        rows = self.trainer.task.num_samples
        tables = [b for b in self.trainer.method.buffers() if b.ndim and b.shape[0] == rows]
        return sum(b.numel() * b.element_size() for b in tables) / rows


def measure(
    spec: RunSpec, yardstick: RunSpec, place: RunOptions, rounds: int, memory: float | None = None
) -> dict[str, Any]:
    """One row: images per second with everything and bare, shares of the parts, memory, steps of the yardstick."""
    with silenced():
        subject = Subject(spec, place)
        reference = subject if spec.method == yardstick.method else Subject(yardstick, place)
    trainer, device = subject.trainer, subject.device
    count = _steps_in_a_round(subject)
    loops = subject.bare_loops(min(RECORDED, count + 1))
    own_batches = itertools.cycle(reference.block()[0])
    turns: dict[str, Callable[[Batches], Any]] = {
        "step": subject.steps,
        **{name: loop.steps for name, loop in loops.items()},
        "yardstick": lambda part: reference.steps([next(own_batches) for _ in part]),
    }
    if reference is subject:
        del turns["yardstick"]
    samples = []
    order = list(turns.items())
    for _ in range(rounds):
        batches, views = subject.block()
        sample = dict.fromkeys(turns, 0.0)
        subject.update_seconds = subject.state_seconds = 0.0
        at_once = 1 if device.type == "cpu" else count  # an accelerator is waited for after every turn
        for start in range(0, count, at_once):
            part = [batches[k % len(batches)] for k in range(start, start + at_once)]
            for name, work in order:
                sample[name] += subject._seconds(partial(work, part)) / count
            order.append(order.pop(0))  # whoever comes after its own networks finds them in the cache
        sample["bare"] = min(sample["bare"], sample.pop("compiled", sample["bare"]))
        update = subject.update_seconds / count
        sample["state"] = subject.state_seconds / count
        sample["losses"] = update - sample["state"] - sample["bare"]
        sample["logging"] = sample["step"] - update
        sample["relative"] = sample["step"] / sample.pop("yardstick", sample["step"])
        samples.append(sample | {"views": views / len(batches)})
    networks, hooks = (cost / trainer.steps_per_epoch for cost in subject.hooks)
    evaluation = subject.evaluation_seconds() * trainer.evaluations_per_epoch() / trainer.steps_per_epoch
    extra = {"hooks": hooks, "evaluation": evaluation}
    share = subject.checkpoint_share()
    for sample in samples:
        sample["whole"] = (sample["views"] + sample["step"] + networks + sum(extra.values())) / (1 - share)
    middle = {key: median(sample[key] for sample in samples) for key in samples[0]}
    whole = middle["whole"]
    parts = {name: middle[name] for name in ("views", "losses", "state", "logging")} | extra
    parts["checkpoints"] = share * whole
    bare_now = [sample["bare"] for sample in samples]
    return {
        "method": spec.method,
        "label": spec.label,
        "images_per_second": trainer.batch_size / whole,
        "bare_images_per_second": trainer.batch_size / (middle["bare"] + networks),
        "ratio": median((sample["bare"] + networks) / sample["whole"] for sample in samples),
        "step_ratio": median(sample["bare"] / sample["step"] for sample in samples),
        "plain_ratio": median(sample["plain"] / sample["step"] for sample in samples),
        "shares": {name: parts[name] / whole for name in PARTS},
        "seconds_per_step": middle["step"],
        "relative_to_proden": middle["relative"],
        "seconds_per_run": whole * trainer.steps_per_epoch * trainer.epochs,
        "peak_memory_mb": memory,
        "state_bytes_per_sample": subject.state_bytes_per_sample(),
        "compile_seconds": sum(part.compile_seconds() for part in trainer.compiled) if trainer.compiled else None,
        "steps_timed": count * rounds,
        "spread": (max(bare_now) - min(bare_now)) / middle["bare"],
    }


def _steps_in_a_round(subject: Subject) -> int:
    batches = subject.block()[0][:1]
    subject.steps(batches)
    one = subject._seconds(lambda: subject.steps(batches))
    return max(1, min(round(ROUND_SECONDS / max(one, 1e-6)), 50))


def peak_memory(spec: RunSpec, place: RunOptions) -> float | None:
    """Megabytes at most while a few steps and an evaluation run: of the device, or of a process that does only that.

    The process is forked and holds whatever this one does, so ask before anything is trained here.
    """
    if spec.train.compile:  # does not survive a fork
        return None
    device = torch.device(place.device)
    if device.type != "cpu":
        with suppress(Exception):  # the measurement that follows will say of what
            return _peak_here(spec, place)
        return None
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(_peak_here(spec, place)))
    child.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:  # it died
        return None
    finally:
        child.join()


def _peak_here(spec: RunSpec, place: RunOptions) -> float:
    device = torch.device(place.device)
    reset_peak_memory(device)
    subject = Subject(spec, place)
    for _ in range(2):
        subject.steps(subject.block()[0][:1])
    subject.evaluation_seconds()
    return peak_memory_mb(device)
