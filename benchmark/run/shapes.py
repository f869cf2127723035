"""What one training step of a run takes, counted from shapes alone: floating-point operations and peak memory.

The real trainer takes a step on torch's fake tensors, which have shapes and no values: it needs no data, no weights
and no GPU, and a second per method. Where a method asks for a value (which rows are selected?), it gets the
answer that takes most: all of them. So the memory is that of the heaviest step, without what libraries keep for
themselves.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from benchmark.plan.spec import RunSpec
from benchmark.train.frozen import BlankLoader
from benchmark.train.inputs import Inputs
from benchmark.train.loading import entry_of
from benchmark.train.optimizers import Optimizer
from benchmark.train.trainer import Trainer
from datasets.base import Dataset, Source, Split
from datasets.views.recipes import CIFAR, FINE_GRAINED, Recipe
from methods.base import Batch, Method
from methods.registry import load


@dataclass(frozen=True)
class Needs:
    """What one step of a run takes."""

    flops: float
    peak_bytes: float
    predict_flops: float  # of one image
    state_bytes: float  # of a checkpoint
    calls: int = 0  # of torch in a step: what small networks spend their time on


class Counter(TorchDispatchMode):
    """Counts operations and the bytes of all fake tensors that are alive, and answers questions for their values."""

    def __init__(self) -> None:
        super().__init__()
        self.flops, self.calls, self.now, self.peak = 0.0, 0, 0, 0
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        packet = func.overloadpacket
        self.calls += 1
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


class Unread(Trainer):
    """A trainer that does not make the maps of a frozen encoder first: they take longer than many runs."""

    def _inputs(self, dataset: Dataset, method_class: type[Method], channels_last: bool) -> Inputs:
        if self.frozen is None:
            return super()._inputs(dataset, method_class, channels_last)
        return BlankLoader(self.frozen, self.seed, self.device)


def needs_of(spec: RunSpec, outline: Outline) -> Needs:
    """Of a run on data of these shapes; under mixed precision its activations are half as large."""
    amp = "off" if spec.train.amp == "off" else "bfloat16"  # float16 scales its gradients, which asks for values
    spec = without_weights(spec).with_train(compile=False, amp=amp)
    candidates = torch.zeros(outline.rows, outline.classes, dtype=torch.bool)
    candidates[:, 0] = True
    trainer = Unread(spec, load(entry_of(spec)), outline.dataset(), candidates, torch.device("cpu"))
    if trainer.frozen is not None:
        outline = dataclasses.replace(outline, map=trainer.frozen.shape)
    state = state_bytes(trainer.method)
    with FakeTensorMode(), Counter() as counter:
        forget_values(trainer)
        trainer.epoch = trainer.epochs * 3 // 4  # when warm-ups are over
        trainer.method.train()
        counter.calls = 0
        counter.now += momentum_bytes(trainer.method)  # which later steps have, and this one makes at its end
        trainer.step(batch_of(trainer, outline))
        flops, peak, calls = counter.flops, counter.peak, counter.calls
        counter.flops = 0.0
        trainer.method.eval()
        with torch.no_grad():
            trainer.method.predict(outline.images(2))
    return Needs(flops, peak, counter.flops / 2, state, calls)


def without_weights(spec: RunSpec) -> RunSpec:
    """The same run from random weights: as fast and as large, and nothing has to be fetched."""
    backbone = dataclasses.replace(spec.backbone, pretrained=False, weights="")
    config = dataclasses.replace(spec.config, backbone=backbone)
    return dataclasses.replace(spec, config=config, paths={**spec.paths, "weights": ""})


def state_bytes(method: Method) -> float:
    """Of a checkpoint: the method's state and the momentum of its weights."""
    state = sum(v.numel() * v.element_size() for v in method.state_dict().values() if isinstance(v, Tensor))
    return float(state + momentum_bytes(method))


def momentum_bytes(method: Method) -> int:
    return sum(p.numel() * p.element_size() for p in method.parameters() if p.requires_grad)


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
    map: tuple[int, int, int] | None = None  # of a frozen encoder: what networks see instead of pictures

    @classmethod
    def of_source(cls, source: Source, settings: Mapping[str, Any]) -> Outline | None:
        """Of a published set of images that is not here; None where its shapes are not known without it."""
        recipe = {"Common": CIFAR, "Fine-Grained": FINE_GRAINED}.get(source.group)
        if recipe is None or not source.train_size or not source.test_size or not source.num_classes:
            return None
        rows, tests = (int(settings.get(k, n)) for k, n in (("train", source.train_size), ("test", source.test_size)))
        return cls(source.name, rows, tests, source.num_classes, recipe, backbone=source.backbone or cls.backbone)

    @classmethod
    def of(cls, dataset: Dataset) -> Outline:
        features = 0 if dataset.recipe else dataset.train.images.shape[1]
        sizes = len(dataset.train), len(dataset.test), dataset.num_classes
        return cls(dataset.name, *sizes, dataset.recipe, features, dataset.backbone)

    @property
    def picture_bytes(self) -> float:
        """Of all its images as they are stored; those of many sizes by an average of 256×350 pixels."""
        if self.recipe is None:
            return 4.0 * self.features * (self.rows + self.test_rows)
        area = 256 * 350 if self.recipe.test_resize else self.recipe.size**2
        return 3.0 * area * (self.rows + self.test_rows)

    def alike(self, other: Outline) -> bool:
        """Whether networks see inputs of the same shape."""
        sides = [o.recipe and o.recipe.size for o in (self, other)]
        return sides[0] == sides[1] and self.features == other.features

    def images(self, count: int) -> Tensor:
        """Network inputs."""
        if self.map:
            return torch.empty(count, *self.map)
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
    size = trainer.batch_size
    views = tuple(outline.images(size) for _ in trainer.method.views)
    if trainer.settings.channels_last and outline.recipe:
        views = tuple(view.contiguous(memory_format=torch.channels_last) for view in views)
    index = torch.empty(size, dtype=torch.int64)
    return Batch(views, trainer.candidates[index], index)
