"""What each known way to train faster gains on this machine, in the profile's own training: why defaults are as they are.

A gain is the time without it over the time with it, of two things that take turns in one run. The method is PRODEN,
whose step is nearly all network.
"""

from __future__ import annotations

import copy
import itertools
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, func, nn

from benchmark.files import ROOT
from benchmark.plan.spec import RunSpec
from benchmark.run.capture import silenced
from benchmark.run.devices import cores
from benchmark.run.failures import sentence
from benchmark.run.options import RunOptions
from benchmark.speed.timing import seconds
from benchmark.speed.trainer import RECORDED, Subject
from datasets.views import ops

STEPS = 200  # of a small network in a turn; fewer of a large one
TURN_SECONDS = 0.5
SEEDS = 3
Work = Callable[[], Any]
Pair = tuple[Work, Work]  # without the lever, and with it
_fork = multiprocessing.get_context("fork")


def measure(spec: RunSpec, place: RunOptions, rounds: int) -> list[dict[str, Any]]:
    """A row per lever: how many times faster, and what Candid does with it; or why it cannot be tried here."""
    device = torch.device(place.device)
    with silenced():
        subject = Subject(spec, place)
    steps = _steps(subject)
    rows: list[dict[str, Any]] = []

    def own_time(work: Work) -> float:
        return seconds(work, device)

    def compare(
        lever: str, against: str, used: str, make: Callable[[], Pair], clock: Callable[[Work], float] = own_time
    ) -> None:
        row: dict[str, Any] = {"lever": lever, "against": against, "gain": None, "used": used}
        try:
            without, with_it = make()
            without(), with_it()
            row["gain"] = median(clock(without) / clock(with_it) for _ in range(rounds))
        except Exception as error:  # no compiler, or a network that one of them does not suit
            row["used"] = f"not here: {sentence(error)}"
        rows.append(row)

    def against_variant(**changes: Any) -> Pair:
        with silenced():
            variant = Subject(_with(spec, **changes), place)
        return _training(subject, steps), _training(variant, steps)

    if device.type == "cpu":  # forked before anything is compiled here
        if cores() > 1:
            with _Workers(spec, place) as workers:
                compare("two processes of one thread", "one process of two", "default", workers.pair, wall_time)
        compare("forked workers", "new interpreters that load torch", "default", lambda: (_new, _forked), wall_time)
    compare("channels last", "channels first", "default", lambda: against_variant(channels_last=False)[::-1])
    compare("SGD with little around it", "torch's fused SGD", "default", lambda: _optimisers(subject, steps))
    compare("views of many batches at once", "batch by batch", "default", lambda: _views(subject))
    compare("bfloat16 autocast", "float32", "option `train.amp`", lambda: against_variant(amp="bfloat16"))
    compare("compiled step", "as written", "option `train.compile`", lambda: against_variant(compile=True))
    compare("three seeds in one program", "one after the other", "no", lambda: seeds_together(subject))
    if device.type == "cpu":
        compare("compiled colour operations, 32 px", "as written", "no", colours)
    return rows


def wall_time(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _with(spec: RunSpec, **changes: Any) -> RunSpec:
    return spec.with_train(**changes)


def _steps(subject: Subject) -> int:
    """How many to take in a turn."""
    work = _training(subject, 1)
    work()
    return max(1, min(STEPS, round(TURN_SECONDS / max(seconds(work, subject.device), 1e-6))))


def _training(subject: Subject, steps: int) -> Work:
    batches = itertools.cycle(subject.block()[0])
    return lambda: subject.steps([next(batches) for _ in range(steps)])


# processes ----------------------------------------------------------------------------------------------------------
def _serve(spec: RunSpec, place: RunOptions, pipe: Any) -> None:
    """A worker that takes as many steps as it is told, until it is told none."""
    with silenced():
        subject = Subject(spec, place)
    batches = itertools.cycle(subject.block()[0])
    pipe.send(_steps(subject))
    while count := pipe.recv():
        subject.steps([next(batches) for _ in range(count)])
        pipe.send(True)


class _Workers:
    """One process with two threads and two with one thread each, ready to train."""

    def __init__(self, spec: RunSpec, place: RunOptions) -> None:
        self.processes, self.pipes = [], []
        for threads in (2, 1, 1):
            here, there = _fork.Pipe()
            process = _fork.Process(target=_serve, args=(_with(spec, threads=threads), place, there), daemon=True)
            process.start()
            there.close()
            self.processes.append(process)
            self.pipes.append(here)

    def pair(self) -> Pair:
        """The same number of steps by the one, and by the two."""
        count = min(pipe.recv() for pipe in self.pipes)
        return lambda: self._turn((2 * count, 0, 0)), lambda: self._turn((0, count, count))

    def _turn(self, steps: tuple[int, ...]) -> None:
        busy = [(pipe, count) for pipe, count in zip(self.pipes, steps, strict=True) if count]
        for pipe, count in busy:
            pipe.send(count)
        for pipe, _ in busy:
            pipe.recv()

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.join()


def _forked() -> None:
    """A worker that this process forks says that it is ready."""
    here, there = _fork.Pipe()
    process = _fork.Process(target=there.send, args=(True,))
    process.start()
    here.recv()
    process.join()


def _new() -> None:
    """A worker starts from nothing and loads what training needs."""
    subprocess.run([sys.executable, "-c", "import torch._dynamo, benchmark.train.trainer"], cwd=ROOT, check=True)


# one process --------------------------------------------------------------------------------------------------------
def _optimisers(subject: Subject, steps: int) -> Pair:
    loops = subject.bare_loops(min(RECORDED, steps))
    batches = subject.block()[0][:1] * steps
    return lambda: loops["plain"].steps(batches), lambda: loops["bare"].steps(batches)


def _views(subject: Subject) -> Pair:
    """An epoch's views, batch by batch and as the trainer makes them."""
    trainer = subject.trainer
    order = trainer.order(trainer.epoch)[: trainer.steps_per_epoch * trainer.batch_size]
    names, rows = trainer.method.views, trainer.rows[order]
    parts = rows.split(trainer.batch_size)
    together = rows.split(trainer.batch_size * trainer.inputs.batches_at_once(trainer.batch_size))

    def made(blocks: tuple[Tensor, ...]) -> Work:
        return lambda: [trainer.inputs.train_views(block, names, trainer.epoch) for block in blocks]

    return made(parts), made(together)


def seeds_together(subject: Subject) -> Pair:
    """Forward and backward passes of several networks: each on its own, and all as one with `torch.func`.

    Both give the gradients of all weights, (seeds, …) each.
    """
    trainer = subject.trainer
    batch = subject.block()[0][0]
    targets = F.normalize(batch.candidates.float(), p=1, dim=1)
    pictures = batch.views[0].expand(SEEDS, *batch.views[0].shape)
    networks = []
    for _ in range(SEEDS):
        encoder = trainer.task.backbone()
        head = nn.Linear(encoder.feature_dim, trainer.task.num_classes)
        network = nn.Sequential(encoder, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head).to(trainer.device)
        networks.append(func.replace_all_batch_norm_modules_(network))  # running means cannot be mapped over
    skeleton = copy.deepcopy(networks[0])
    weights, buffers = func.stack_module_state(networks)

    def loss(own: dict[str, Tensor], state: dict[str, Tensor], images: Tensor) -> Tensor:
        return F.cross_entropy(func.functional_call(skeleton, (own, state), (images,)), targets)

    def one_by_one() -> dict[str, Tensor]:
        found = []
        for network, images in zip(networks, pictures, strict=True):
            own = dict(network.named_parameters())
            gradients = torch.autograd.grad(F.cross_entropy(network(images), targets), list(own.values()))
            found.append(dict(zip(own, gradients, strict=True)))
        return {name: torch.stack([one[name] for one in found]) for name in found[0]}

    mapped = func.vmap(func.grad(loss), in_dims=(0, 0, 0))
    return one_by_one, lambda: mapped(weights, buffers, pictures)


def colours() -> Pair:
    """SimCLR's colour jitter on as many 32 px pictures as the views work on at once."""
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randint(256, (64, 3, 32, 32), generator=generator).float()
    factor = 0.6 + 0.8 * torch.rand(len(pictures), generator=generator)

    def jitter(x: Tensor) -> Tensor:
        return ops.hue(ops.saturation(ops.contrast(ops.brightness(x, factor), factor), factor), (factor - 1) / 4)

    compiled = torch.compile(jitter, dynamic=True)

    def repeated(work: Callable[[Tensor], Tensor]) -> Work:
        def run() -> Tensor:
            with torch.inference_mode():
                return [work(pictures.clone()) for _ in range(20)][-1]

        return run

    return repeated(jitter), repeated(compiled)
