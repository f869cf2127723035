"""Measure training steps against a bare loop of the same networks, and views against torchvision on Pillow images.

    ./reproduce.sh python -m benchmark.tools.speed --methods cel,pico   # print the tables
    ./reproduce.sh python -m benchmark.tools.speed --docs               # all methods; renew docs/cost.json and docs/speed.md

Compared functions take turns in one process, on one thread; every number is a median over rounds. After `--docs` run
`python -m benchmark.tools.docs`, which puts the cost per method into docs/methods.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._pytree import tree_leaves, tree_map_only
from torchvision import transforms

from benchmark.config.selection import select
from benchmark.config.spec import RunSpec
from benchmark.errors import UsageError
from benchmark.files import ROOT, atomic_write
from benchmark.runner.provenance import cpu_name, now
from benchmark.tools.docs import COST, replaced, table
from benchmark.trainer.candidates import plausible_candidates
from benchmark.trainer.loading import dataset_of, entry_of
from benchmark.trainer.optimizers import Optimizer
from benchmark.trainer.trainer import Trainer
from datasets.views.recipes import CIFAR, FINE_GRAINED, Recipe
from datasets.views.views import Views
from methods.base import Batch
from methods.registry import load

PAGE = ROOT / "docs" / "speed.md"
REFERENCE = "proden"  # whose step is the unit of the cost in docs/methods.md
NETWORKS = {"small network": (), "ResNet-18": ("backbone.name=resnet18-cifar",)}  # settings on top of `quick`
ROUNDS = 7
TURN_SECONDS = 0.3  # at least one step
RECORDED_STEPS = 4  # that the bare loop repeats
PROGRESS = 0.75  # of training: warm-ups are over
VIEW_BATCHES = ((CIFAR, (1024, 3, 32, 32)), (FINE_GRAINED, (32, 3, 256, 341)))
Work = Callable[[], Any]
Costs = dict[str, dict[str, Any]]  # by method, as in docs/cost.json


def seconds(work: Work, times: int) -> float:
    """Return the mean processor time of a call, which other processes do not lengthen."""
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times


def in_turns(works: Mapping[str, Work]) -> list[dict[str, float]]:
    """Return the seconds per call of every work, round by round."""
    times = {}
    for name, work in works.items():
        work()  # the first call allocates memory
        times[name] = max(1, round(TURN_SECONDS / max(seconds(work, 1), 1e-6)))
    return [{name: seconds(work, times[name]) for name, work in works.items()} for _ in range(ROUNDS)]


# Training steps -------------------------------------------------------------------------------------------------------
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
    works = {"bare": BareLoop(trainer, batches).step, "step": step, "reference": late_trainer(reference)[2]}
    rounds = in_turns(works)
    share = median(one["bare"] / one["step"] for one in rounds)
    return round(share, 2), round(median(one["step"] / one["reference"] for one in rounds), 2)


def measure_steps(methods: str) -> Costs:
    """Measure methods on both networks; print each when it is done."""
    costs: Costs = {}
    for network, settings in NETWORKS.items():
        selection = select("quick", methods=methods, datasets="digits", seeds="0", settings=settings)
        for spec in selection.specs():
            share, ratio = measure_step(spec, selection.specs([REFERENCE])[0])
            print(f"{spec.method}, {network}: {share:.2f} of the bare loop, {ratio:.2f} × {REFERENCE}", flush=True)
            first = {"seconds_per_step_relative_to_proden": ratio, "measured": now()[:10], "bare_loop": {}}
            costs.setdefault(spec.method, first)["bare_loop"][network] = share
    return costs


# Views ----------------------------------------------------------------------------------------------------------------
def torchvision_views(recipe: Recipe) -> list[Callable[[Image.Image], Tensor]]:
    """Return the weak and the strong view of one Pillow image as training scripts usually make them."""
    crop = [transforms.RandomResizedCrop(recipe.size, recipe.scale, recipe.ratio), transforms.RandomHorizontalFlip()]
    jitter = transforms.RandomApply([transforms.ColorJitter(*recipe.jitter)], recipe.jitter_probability)
    finish = [transforms.ToTensor(), transforms.Normalize(recipe.mean, recipe.std)]
    weak = [*crop, jitter, transforms.RandomGrayscale(recipe.gray), *finish]
    strong = [*crop, transforms.RandAugment(3), *finish, transforms.RandomErasing(1.0)]
    return [transforms.Compose(weak), transforms.Compose(strong)]


def view_row(recipe: Recipe, images: Tensor) -> list[str]:
    """Measure both views of decoded images: one Pillow image at a time, and all of them at once as in training."""
    pillow = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images]
    usual, views = torchvision_views(recipe), Views(recipe, seed=0)
    works: dict[str, Work] = {
        "usual": lambda: [view(image) for image in pillow for view in usual],
        "ours": lambda: views(images, torch.arange(len(images)), ("weak", "strong"), epoch=0),
    }
    rounds = in_turns(works)
    times = [f"{1e6 * median(one[name] for one in rounds) / len(images):.0f}" for name in works]
    return [f"{recipe.size} px", *times, f"{median(one['usual'] / one['ours'] for one in rounds):.1f}"]


def view_table() -> str:
    rows = [view_row(recipe, torch.randint(0, 256, size, dtype=torch.uint8)) for recipe, size in VIEW_BATCHES]
    return table(("image", "torchvision, µs per image", "Candid, µs per image", "times faster"), rows)


def step_table(costs: Costs) -> str:
    shares = {method: cost["bare_loop"].values() for method, cost in costs.items() if "bare_loop" in cost}
    rows = [[method, *(f"{share:.2f}" for share in values)] for method, values in shares.items()]
    return table(("method", *NETWORKS), rows)


def write_docs(costs: Costs, views: str) -> None:
    """Merge new costs into docs/cost.json and rewrite the generated parts of docs/speed.md."""
    costs = json.loads(COST.read_text(encoding="utf-8")) | costs
    source = f"\n\nLast measured on {now()[:10]}: {cpu_name()}, one thread, torch {torch.__version__}."
    page = replaced(PAGE.read_text(encoding="utf-8"), "steps", step_table(costs) + source)
    page = replaced(page, "views", views + source)
    atomic_write(COST, json.dumps(costs, indent=1) + "\n")
    atomic_write(PAGE, page)


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmark.tools.speed", description="Measure training steps and views.")
    parser.add_argument("--methods", default="all", help="comma list (default: all methods of the profile `quick`)")
    parser.add_argument("--docs", action="store_true", help="renew docs/cost.json and docs/speed.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    try:
        costs = measure_steps(options.methods)
    except UsageError as error:
        parser.error(str(error))
    views = view_table()
    print(f"{step_table(costs)}\n\n{views}")
    if options.docs:
        write_docs(costs, views)


if __name__ == "__main__":
    main()
