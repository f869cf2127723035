"""What one training step of a run takes, counted from shapes alone: floating-point operations and peak memory.

The real trainer takes two steps on torch's fake tensors, which have shapes and no values: it needs no data, no weights
and no GPU, and a second per method. Where a method asks for a value (which rows are selected?), it gets the
answer that takes most: all of them. So the memory is that of the heaviest step, without what libraries keep for
themselves.
"""

from __future__ import annotations

import dataclasses
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from benchmark.plan.spec import RunSpec
from benchmark.train.loading import entry_of
from benchmark.train.optimizers import Optimizer
from benchmark.train.trainer import Trainer
from datasets.base import Dataset, Split
from datasets.views.recipes import Recipe
from methods.base import Batch
from methods.registry import load

STEPS = 2  # the first makes the optimiser's state, the second needs it beside the gradients
OWN_OF_CUDA = 1.5e9  # bytes of a GPU that are not tensors of a run: context, kernels, cuDNN's workspace


@dataclass(frozen=True)
class Needs:
    """What one step of a run takes."""

    flops: float
    peak_bytes: float
    predict_flops: float  # of one image


class Counter(TorchDispatchMode):
    """Counts operations and the bytes of all fake tensors that are alive, and answers questions for their values."""

    def __init__(self) -> None:
        super().__init__()
        self.flops, self.now, self.peak = 0.0, 0, 0
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        packet = func.overloadpacket
        made = ANSWERS[packet](args[0]) if packet in ANSWERS else func(*args, **(kwargs or {}))
        if packet in flop_registry:
            self.flops += flop_registry[packet](*args, **(kwargs or {}), out_val=made)
        for leaf in tree_leaves(made):
            if isinstance(leaf, Tensor):
                self._count(leaf.untyped_storage())
        return made

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage not in self._known:
            self._known.add(storage)
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._gone, storage.nbytes())

    def _gone(self, size: int) -> None:
        self.now -= size


def _value(x: Tensor) -> bool | float | int:
    return True if x.dtype == torch.bool else 1.0 if x.is_floating_point() else 1


aten = torch.ops.aten
ANSWERS: dict[Any, Any] = {  # to what fake tensors cannot do
    aten._local_scalar_dense: _value,
    aten.nonzero: lambda x: torch.empty(x.numel(), x.dim(), dtype=torch.int64),
    aten._sample_dirichlet: torch.empty_like,
    aten._dirichlet_grad: torch.empty_like,
}


def needs_of(spec: RunSpec, outline: Outline) -> Needs:
    """Of a run on data of these shapes."""
    unloaded = dataclasses.replace(spec.backbone, pretrained=False, weights="")
    settings = dataclasses.replace(spec.train, compile=False, amp="off")
    config = dataclasses.replace(spec.config, backbone=unloaded, train=settings)
    spec = dataclasses.replace(spec, config=config, paths={**spec.paths, "weights": ""})
    candidates = torch.zeros(outline.rows, outline.classes, dtype=torch.bool)
    candidates[:, 0] = True
    trainer = Trainer(spec, load(entry_of(spec)), outline.dataset(), candidates, torch.device("cpu"))
    with FakeTensorMode(), Counter() as counter:
        forget_values(trainer)
        trainer.epoch = trainer.epochs * 3 // 4  # when warm-ups are over
        trainer.method.train()
        for step in range(STEPS):
            counter.flops = 0.0
            trainer.step(batch_of(trainer, outline))
        flops, peak = counter.flops, counter.peak
        counter.flops = 0.0
        trainer.method.eval()
        with torch.no_grad():
            trainer.method.predict(outline.images(2))
    return Needs(flops, peak, counter.flops / 2)


@dataclass(frozen=True)
class Outline:
    """The shapes of a data set."""

    name: str
    rows: int
    test_rows: int
    classes: int
    recipe: Recipe | None
    features: int = 0  # of tables
    backbone: str = "resnet18-cifar"

    @classmethod
    def of(cls, dataset: Dataset) -> Outline:
        features = 0 if dataset.recipe else dataset.train.images.shape[1]
        sizes = len(dataset.train), len(dataset.test), dataset.num_classes
        return cls(dataset.name, *sizes, dataset.recipe, features, dataset.backbone)

    def images(self, count: int) -> Tensor:
        """Network inputs."""
        side = self.recipe.size if self.recipe else 0
        return torch.empty(count, 3, side, side) if self.recipe else torch.empty(count, self.features)

    def dataset(self) -> Dataset:
        """A data set of these shapes with one image in it; its rows are never read."""
        image = self.images(1).to(torch.uint8) if self.recipe else self.images(1)
        names = tuple(map(str, range(self.classes)))
        train, test = (Split(image, torch.zeros(n, dtype=torch.int64)) for n in (self.rows, self.test_rows))
        return Dataset(self.name, self.classes, names, train, test, self.recipe, backbone=self.backbone)


def forget_values(trainer: Trainer) -> None:
    """Fake tensors in place of all that the trainer holds on its device."""
    fakes: dict[Tensor, Tensor] = {}  # one for each, as networks may share weights

    def fake(real: Tensor) -> Tensor:
        if real not in fakes:
            made = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype)
            trained = isinstance(real, nn.Parameter)
            fakes[real] = nn.Parameter(made, requires_grad=real.requires_grad) if trained else made
        return fakes[real]

    for module in trainer.method.modules():
        for name, parameter in module.named_parameters(recurse=False):
            setattr(module, name, fake(parameter))
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, fake(buffer))
    trainer.candidates = fake(trainer.candidates)
    trainer.optimizer = Optimizer(trainer.method, trainer.settings, trainer.device)


def batch_of(trainer: Trainer, outline: Outline) -> Batch:
    size, layout = trainer.batch_size, trainer.inputs.format
    views = tuple(outline.images(size).contiguous(memory_format=layout) for _ in trainer.method.views)
    index = torch.empty(size, dtype=torch.int64)
    return Batch(views, trainer.candidates[index], index)
