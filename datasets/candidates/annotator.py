"""The annotator: a network trained once on clean labels, whose outputs say which wrong labels an image invites.

Its logits over the training set are all that is kept in the end; on the way, a `Sitting` may keep its state. They are a function of the dataset and the recipe: training is
seeded, runs on one CPU thread (sums of several threads differ in the last bits) or with deterministic CUDA kernels, and
leaves the global random state and thread count as they were.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datasets.base import DataError, Dataset, Split
from datasets.candidates.candidate_sets import (
    DELETE,
    CandidateSet,
    as_bytes,
    digest_of,
    fingerprint,
    read_arrays,
    write_arrays,
)
from datasets.storage.files import file_name, locked

FORMAT = 1
Prepare = Callable[[Tensor, Tensor | None], Tensor]  # images, valid sizes -> network input, the test view
Augment = Callable[[Tensor, Tensor | None, Tensor, int], Tensor]  # images, sizes, rows, epoch -> network input


@dataclass(frozen=True)
class Recipe:
    """How an annotator is trained. The two names stand for functions, which cannot be hashed: keep them true."""

    network: str
    epochs: int
    batch: int = 64
    lr: float = 0.1
    weight_decay: float = 5e-4
    momentum: float = 0.9
    seed: int = 0
    view: str = "plain"  # the training view
    mode: Literal["eval", "train"] = "eval"  # "train" imitates the release: dropout and batch statistics stay on
    annotate_batch: int = 500  # consecutive rows, as in the release; matters in mode "train" only
    pretrained: bool = True  # where the network has published weights
    weights: str = ""  # SHA-256 of a file that stands in for them
    normalisation: str = ""  # of the images, where the weights want another than the dataset's

    def described(self) -> dict[str, Any]:
        """All that makes the annotator; as published, no entry: annotators older than these keep their key."""
        usual = {"pretrained": True, "weights": "", "normalisation": ""}
        return {key: value for key, value in asdict(self).items() if key not in usual or value != usual[key]}


@dataclass(frozen=True)
class Annotation:
    """Annotator logits (N, C) float32 over the training set, and how good the annotator is."""

    logits: Tensor
    train_accuracy: float
    test_accuracy: float
    sha256: str
    meta: Mapping[str, Any]


class Sitting:
    """What the surroundings of a training may do: keep its state, follow it, end it. This one does nothing."""

    def saved(self, misfit: Callable[[Mapping[str, Any]], str]) -> Mapping[str, Any] | None:
        """The state to go on from, or None; `misfit` says why a state is not one of this training, or nothing."""
        return None

    def after_step(self, state: Callable[[], dict[str, Any]]) -> None:
        """A step has ended. What this raises ends the training."""

    def after_epoch(self, epoch: int, result: Mapping[str, float]) -> None:
        """An epoch has ended, with loss and accuracy (in %) over its training views."""


Surroundings = Callable[[Path, Mapping[str, Any]], contextlib.AbstractContextManager[Sitting]]  # folder, description


def alone(folder: Path, described: Mapping[str, Any]) -> contextlib.AbstractContextManager[Sitting]:
    return contextlib.nullcontext(Sitting())


def scaled(images: Tensor, sizes: Tensor | None = None) -> Tensor:
    """Pixels as float32 around 0; features as they are."""
    return images.float() / 127.5 - 1 if images.dtype == torch.uint8 else images.float()


@dataclass(frozen=True)
class Annotator:
    """A network, its recipe and its views; `annotate` trains it at most once per dataset."""

    network: Callable[[], nn.Module]  # images -> (B, C) logits
    recipe: Recipe
    prepare: Prepare = scaled
    augment: Augment | None = None
    device: str = "cpu"
    surroundings: Surroundings = alone
    environment: Mapping[str, Any] = field(default_factory=dict)  # device and versions, noted in the file

    def __post_init__(self) -> None:
        if (self.augment is None) != (self.recipe.view == "plain"):
            raise ValueError(f"the recipe names the training view '{self.recipe.view}', which does not fit `augment`")

    @property
    def recipe_digest(self) -> str:
        return digest_of(self.recipe.described())

    def annotate(self, dataset: Dataset, folder: Path) -> Annotation:
        """Read the annotation from `folder`, or train, annotate and store it; safe when two processes ask at once."""
        key = {"fingerprint": fingerprint(dataset), "recipe": self.recipe_digest}
        name = f"annotator-{self.recipe.network}-{digest_of(key)[:8]}.npz"
        path = Path(folder) / file_name(dataset.name) / file_name(name)
        shape = (len(dataset.train), dataset.num_classes)
        if not path.exists():
            with locked(path.with_suffix(".lock")):
                if not path.exists():
                    described = dict(key, dataset=dataset.name, described=self.recipe.described())
                    with self.surroundings(path.with_suffix(""), described) as sitting:
                        _save(path, self._train_and_annotate(dataset, described, sitting))
        return _load(path, shape, key)

    def _train_and_annotate(self, dataset: Dataset, described: dict[str, Any], sitting: Sitting) -> Annotation:
        recipe = self.recipe
        with _reproducible(recipe.seed, torch.device(self.device)):
            network = self.network().to(self.device)
            Training(self, network, dataset, sitting).run()
            test = self._outputs(network, dataset.test, "eval")
            logits = self._outputs(network, dataset.train, recipe.mode)
        if not logits.isfinite().all():
            raise DataError(f"{dataset.name}: the annotator diverged (not all outputs are finite); lower its lr.")
        train_accuracy, test_accuracy = (
            _accuracy(outputs, part) for outputs, part in ((logits, dataset.train), (test, dataset.test))
        )
        meta = described | ({"environment": dict(self.environment)} if self.environment else {})
        return Annotation(logits, train_accuracy, test_accuracy, _checksum(logits), meta)

    def training_view(self, split: Split, rows: Tensor, epoch: int) -> Tensor:
        """What the network learns from."""
        if self.augment is None:
            return self.test_view(split, rows)
        images, sizes = split.batch(rows)
        return self.augment(images.to(self.device), sizes, rows, epoch)

    def test_view(self, split: Split, rows: Tensor) -> Tensor:
        """What it is read on."""
        images, sizes = split.batch(rows)
        return self.prepare(images.to(self.device), sizes)

    def _outputs(self, network: nn.Module, split: Split, mode: str) -> Tensor:
        """(N, C) float32 logits on the CPU, by batches of consecutive rows."""
        network.train(mode == "train")
        parts = []
        with torch.no_grad():
            for rows in torch.arange(len(split)).split(self.recipe.annotate_batch):
                parts.append(network(self.test_view(split, rows)).float().cpu())
        return torch.cat(parts)


class Training:
    """The epochs of an annotator, from the first or the last saved step on.

    Order and dropout come from torch's generator, so its state is part of what is saved.
    """

    def __init__(self, annotator: Annotator, network: nn.Module, dataset: Dataset, sitting: Sitting) -> None:
        self.annotator, self.network, self.split, self.sitting = annotator, network, dataset.train, sitting
        self.recipe, self.name, self.device = annotator.recipe, dataset.name, torch.device(annotator.device)
        self.optimizer = torch.optim.SGD(
            network.parameters(), self.recipe.lr, momentum=self.recipe.momentum, weight_decay=self.recipe.weight_decay
        )
        self.epoch, self.step = 0, 0  # step in epoch
        self.order: Tensor | None = None  # of the epoch, once it has begun
        self.sums = torch.zeros(3, dtype=torch.float64, device=self.device)  # loss, right, seen

    def run(self) -> None:
        self.network.train()
        saved = self.sitting.saved(self.misfit)
        if saved is not None:
            self.restore(saved)
        while self.epoch < self.recipe.epochs:
            self._one_epoch()
            loss, right, seen = self.sums.tolist()
            result = {"loss": loss / max(seen, 1), "train_accuracy": 100 * right / max(seen, 1)}
            if not math.isfinite(loss):
                raise DataError(
                    f"{self.name}: the annotator diverged in epoch {self.epoch + 1} (its loss is not finite); lower its lr."
                )
            self.epoch, self.step, self.order = self.epoch + 1, 0, None
            self.sums.zero_()
            self.sitting.after_epoch(self.epoch - 1, result)

    def _one_epoch(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.lr * (1 + math.cos(math.pi * self.epoch / self.recipe.epochs)) / 2
        if self.order is None:
            self.order = torch.randperm(len(self.split))
        for rows in self.order.split(self.recipe.batch)[self.step :]:
            self.step += 1
            if len(rows) == 1:  # batch norm has no statistics of one image
                continue
            labels = self.split.labels[rows].to(self.device)
            logits = self.network(self.annotator.training_view(self.split, rows, self.epoch))
            loss = F.cross_entropy(logits, labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            with torch.no_grad():  # read at the end of an epoch: a look at every step would make a GPU wait
                right = (logits.argmax(1) == labels).sum()
                self.sums += torch.stack([loss * len(rows), right, torch.full_like(right, len(rows))])
            self.sitting.after_step(self.state)

    def state(self) -> dict[str, Any]:
        assert self.order is not None
        generators = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            generators["cuda"] = torch.cuda.get_rng_state(self.device)
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generators": generators,
            "epoch": self.epoch,
            "step": self.step,
            "order": self.order,
            "sums": self.sums,
        }

    def misfit(self, state: Mapping[str, Any]) -> str:
        """Why a saved state cannot be gone on from here, or nothing."""
        if set(state) != {"network", "optimizer", "generators", "epoch", "step", "order", "sums"}:
            return "it lacks a part of the state"
        if not 0 <= state["epoch"] < self.recipe.epochs or len(state["order"]) != len(self.split):
            return "its place is not in this training"
        mine = self.network.state_dict()
        if {k: v.shape for k, v in state["network"].items()} != {k: v.shape for k, v in mine.items()}:
            return "its tensors are not those of this network"
        if ("cuda" in state["generators"]) != (self.device.type == "cuda"):
            return "it was saved on another kind of device"
        return ""

    def restore(self, state: Mapping[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch, self.step, self.order = state["epoch"], state["step"], state["order"]
        self.sums = state["sums"].to(self.device)
        torch.set_rng_state(state["generators"]["cpu"])
        if "cuda" in state["generators"]:
            torch.cuda.set_rng_state(state["generators"]["cuda"], self.device)


@contextlib.contextmanager
def _reproducible(seed: int, device: torch.device) -> Iterator[None]:
    """Seeded, deterministic, and without a trace afterwards."""
    threads = torch.get_num_threads()
    devices = [device.index or 0] if device.type == "cuda" else []
    exact = torch.backends.cudnn.flags(enabled=True, deterministic=True, benchmark=False)  # without `enabled` it is off
    with torch.random.fork_rng(devices=devices), exact:
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def with_accuracy(candidates: CandidateSet, folder: Path) -> CandidateSet:
    """The set with `train_accuracy` and `test_accuracy` of its annotator beside the rest, if its file is in `folder`."""
    meta = candidates.meta
    key = {"fingerprint": meta.get("fingerprint"), "recipe": meta.get("annotator_recipe")}
    for path in (Path(folder) / file_name(meta["dataset"])).glob(f"annotator-*-{digest_of(key)[:8]}.npz"):
        annotation = _load(path, tuple(candidates.matrix.shape), key)
        if annotation.sha256 == meta.get("annotator"):  # and not one that was trained again elsewhere
            found = {"train_accuracy": annotation.train_accuracy, "test_accuracy": annotation.test_accuracy}
            return replace(candidates, meta={**meta, **found})
    return candidates


def _accuracy(logits: Tensor, split: Split) -> float:
    return (logits.argmax(1) == split.labels).double().mean().item()


def _checksum(logits: Tensor) -> str:
    digest = hashlib.sha256(f"{tuple(logits.shape)}:".encode())
    digest.update(np.ascontiguousarray(logits.numpy(), dtype="<f4").tobytes())
    return digest.hexdigest()


def _save(path: Path, annotation: Annotation) -> None:
    meta = {
        "format": FORMAT,
        "sha256": annotation.sha256,
        "train_accuracy": annotation.train_accuracy,
        "test_accuracy": annotation.test_accuracy,
        "meta": dict(annotation.meta),
    }
    write_arrays(path, logits=annotation.logits.numpy(), meta=as_bytes(meta))


def _load(path: Path, shape: tuple[int, ...], key: Mapping[str, Any]) -> Annotation:
    logits, raw = read_arrays(path, "annotator", "logits", "meta")
    try:
        stored = json.loads(raw.tobytes())
        annotation = Annotation(
            torch.from_numpy(logits),
            float(stored["train_accuracy"]),
            float(stored["test_accuracy"]),
            str(stored["sha256"]),
            dict(stored["meta"]),
        )
    except (ValueError, KeyError, TypeError):
        raise DataError(f"The annotator file {path} is damaged or not one; {DELETE}.") from None
    if stored.get("format") != FORMAT or tuple(logits.shape) != shape or logits.dtype != np.float32:
        raise DataError(f"The annotator file {path} does not hold float32 logits of shape {shape}; {DELETE}.")
    if _checksum(annotation.logits) != annotation.sha256:
        raise DataError(f"The annotator file {path} is damaged: its SHA-256 does not match; {DELETE}.")
    if any(annotation.meta.get(name) != value for name, value in key.items()):
        raise DataError(f"The annotator file {path} was made for another dataset or recipe; {DELETE}.")
    return annotation
