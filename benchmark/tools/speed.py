"""Measure training steps against a bare loop of the same networks.

    ./reproduce.sh python -m benchmark.tools.speed --methods cel,pico   # print
    ./reproduce.sh python -m benchmark.tools.speed --docs               # all methods; renew docs/cost.json and the pages

Compared functions take turns in one process, on one thread; every number is a median over rounds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._pytree import tree_leaves, tree_map_only

from benchmark.config.selection import select
from benchmark.config.spec import RunSpec
from benchmark.errors import UsageError
from benchmark.files import ROOT, atomic_write
from benchmark.runner.provenance import cpu_name, now
from benchmark.tools import docs
from benchmark.trainer.candidates import plausible_candidates
from benchmark.trainer.loading import dataset_of, entry_of
from benchmark.trainer.optimizers import Optimizer
from benchmark.trainer.trainer import Trainer
from methods.base import Batch
from methods.registry import load

REFERENCE = "proden"  # whose step is the unit of the cost in docs/methods.md
NETWORKS = {"small network": (), "ResNet-18": ("backbone.name=resnet18-cifar",)}  # settings on top of `quick`
ROUNDS = 7
TURN_SECONDS = 0.3  # at least one step
RECORDED_STEPS = 4  # that the bare loop repeats
PROGRESS = 0.75  # of training: warm-ups are over
Work = Callable[[], Any]
Costs = dict[str, dict[str, Any]]  # by method, as in docs/cost.json


def seconds(work: Work, times: int) -> float:
    """Return the mean processor time of a call, which other processes do not lengthen."""
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times


def in_turns(*works: Work) -> list[list[float]]:
    """Return the seconds per call of every work, round by round."""
    for work in works:
        work()  # the first call allocates memory
    times = [max(1, round(TURN_SECONDS / max(seconds(work, 1), 1e-6))) for work in works]
    return [list(map(seconds, works, times)) for _ in range(ROUNDS)]


class Call:
    """Recorded call of a network: copies of its inputs, and the gradients of its outputs."""

    def __init__(self, module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        self.module, self.with_gradient = module, torch.is_grad_enabled()
        self.arguments, self.keywords = tree_map_only(
            Tensor, lambda x: x.detach().clone().requires_grad_(x.requires_grad), (arguments, keywords)
        )
        self.gradients: dict[int, Tensor] = {}
        for k, tensor in enumerate(tree_leaves(output)):
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                tensor.register_hook(lambda gradient, k=k: self.gradients.__setitem__(k, gradient.clone()))

    def repeat(self) -> list[tuple[Tensor, Tensor]]:
        """Call the network again; return the outputs that get a gradient, each with it."""
        for tensor in tree_leaves((self.arguments, self.keywords)):
            if isinstance(tensor, Tensor):
                tensor.grad = None
        with torch.set_grad_enabled(self.with_gradient):
            outputs = tree_leaves(self.module(*self.arguments, **self.keywords))
        return [(outputs[k], gradient) for k, gradient in self.gradients.items()]


class BareLoop:
    """Forward and backward passes of a method's networks and optimizer steps only.

    Recorded from steps of the trainer, so it fits any method: it repeats every outermost call of a network on the same
    inputs, with the same gradients.
    """

    def __init__(self, trainer: Trainer, batches: Sequence[Batch]) -> None:
        steps: list[list[Call | None]] = []  # None: the optimizer takes a step
        depth = 0

        def enter(*_: Any) -> None:
            nonlocal depth
            depth += 1

        def leave(module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
            nonlocal depth
            depth -= 1
            if depth == 0:
                steps[-1].append(Call(module, arguments, keywords, output))

        hooks = [
            register_module_forward_pre_hook(enter),
            register_module_forward_hook(leave, with_kwargs=True),  # type: ignore[arg-type]
            trainer.optimizer.torch.register_step_post_hook(lambda *_: steps[-1].append(None)),
        ]
        for batch in batches:
            steps.append([])
            trainer.step(batch)
        for hook in hooks:
            hook.remove()
        self.steps = itertools.cycle(steps)
        # A learning rate of 0 costs the same and leaves the weights alone.
        self.optimizer = Optimizer(trainer.method, replace(trainer.settings, lr=0.0), trainer.device).torch

    def step(self) -> None:
        pairs: list[tuple[Tensor, Tensor]] = []
        for call in next(self.steps):
            if call is not None:
                pairs += call.repeat()
                continue
            self.optimizer.zero_grad()
            if pairs:
                outputs, gradients = zip(*pairs, strict=True)
                torch.autograd.backward(outputs, gradients)
            self.optimizer.step()
            pairs = []


def late_trainer(spec: RunSpec) -> tuple[Trainer, list[Batch], Work]:
    """Return the trainer of a run after 75 % of its epochs, batches with ready views, and a function for one step."""
    dataset = dataset_of(spec, ROOT / "data")
    trainer = Trainer(spec, load(entry_of(spec)), dataset, plausible_candidates(dataset), torch.device("cpu"))
    trainer.epoch = int(trainer.epochs * PROGRESS)
    trainer.begin_epoch()
    batches = list(itertools.islice(trainer.batches(trainer.order(trainer.epoch), 0), RECORDED_STEPS))
    cycle = itertools.cycle(batches)

    def step() -> None:
        trainer.step(next(cycle))
        trainer.step_in_epoch %= trainer.steps_per_epoch  # the schedule has no step after the last

    return trainer, batches, step


def measure_step(spec: RunSpec, reference: RunSpec) -> tuple[float, float]:
    """Return the speed of a step as a share of the bare loop's, and its time relative to a step of the reference."""
    trainer, batches, step = late_trainer(spec)
    rounds = in_turns(BareLoop(trainer, batches).step, step, late_trainer(reference)[2])
    share, ratio = median(bare / own for bare, own, _ in rounds), median(own / unit for _, own, unit in rounds)
    return round(share, 2), round(ratio, 2)


def measure_steps(methods: str) -> Costs:
    """Measure methods on both networks; print each when it is done."""
    costs: Costs = {}
    machine = f"{cpu_name()}, one thread, torch {torch.__version__}"
    for network, settings in NETWORKS.items():
        selection = select("quick", methods=methods, datasets="digits", seeds="0", settings=settings)
        for spec in selection.specs():
            share, ratio = measure_step(spec, selection.specs([REFERENCE])[0])
            print(f"{spec.method}, {network}: {share:.2f} of the bare loop, {ratio:.2f} × {REFERENCE}", flush=True)
            first = {
                "seconds_per_step_relative_to_proden": ratio,
                "measured": now()[:10],
                "machine": machine,
                "bare_loop": {},
            }
            costs.setdefault(spec.method, first)["bare_loop"][network] = share
    return costs


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmark.tools.speed", description="Measure training steps.")
    parser.add_argument("--methods", default="all", help="comma list (default: all methods of the profile `quick`)")
    parser.add_argument("--docs", action="store_true", help="renew docs/cost.json and the pages that show it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    try:
        costs = measure_steps(options.methods)
    except UsageError as error:
        parser.error(str(error))
    if options.docs:
        atomic_write(docs.COST, json.dumps(docs.costs() | costs, indent=1) + "\n")
        docs.main([])


if __name__ == "__main__":
    main()
