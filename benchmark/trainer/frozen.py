"""Frozen encoders: feature maps of every view, computed once and stored; methods train an adapter on them.

A random view has `backbone.draws` stored draws. Row i takes draw f(seed, epoch, i) of them, so order, resume and other
methods change nothing. The maps of one part and view are one file of float16, `<part>-<view>-<hash>.maps`, with the hash
of encoder, weights, recipe and images. It is built block by block under a lock: a killed build resumes at its last
complete block, and the file is renamed when it is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import product
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from benchmark.config.sections import Backbone as BackboneSettings
from benchmark.config.spec import RunSpec
from datasets.base import DataError, Dataset, Split
from datasets.candidates.candidate_sets import fingerprint
from datasets.storage import cache
from datasets.storage.files import Lock
from datasets.views import counter
from datasets.views.recipes import Recipe
from datasets.views.upload import to_device
from datasets.views.views import Views
from methods.base import Backbone
from methods.networks.backbones import Adapter, BackboneError, factory, normalisation

FORMAT = 1  # raise when the layout of the files or the way they are made changes
BLOCK = 32  # images that pass the encoder at once; part of the recipe, since sums may depend on it
VIEW_SEED = 0  # of the stored draws: all runs share them
TEST_BATCH = 1024


@dataclass(frozen=True)
class Frozen:
    """Fixed encoder with the recipe of its inputs, and the place of a dataset's maps."""

    network: Backbone
    dataset: Dataset
    recipe: Recipe
    settings: BackboneSettings
    name: str
    device: torch.device

    @cached_property
    def key(self) -> str:
        """Hash of everything except the view that the maps depend on."""
        weights = hashlib.sha256()
        for name, value in self.network.state_dict().items():
            weights.update(f"{name}{tuple(value.shape)}".encode())
            weights.update(value.cpu().contiguous().numpy().tobytes())
        content = {
            "format": FORMAT,
            "encoder": self.name,
            "weights": weights.hexdigest(),
            "recipe": {
                one.name: getattr(self.recipe, one.name)
                for one in fields(self.recipe)
                if one.name not in ("weak", "strong") and getattr(self.recipe, one.name) != one.default
            },
            "cells": self.settings.cells,
            "block": BLOCK,
            "device": self.device.type,
            "pictures": fingerprint(self.dataset),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def folder(self) -> Path:
        return cache.folder(self.dataset.root, self.dataset.name) / "frozen"

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.network.feature_dim, self.settings.cells, self.settings.cells

    def maps(self, part: str, view: str) -> Maps:
        draws = 1 if view == "plain" else self.settings.draws
        return Maps(self, part, view, draws)

    def encode(self, images: Tensor) -> Tensor:
        """Encode normalised images (B, 3, H, W) as maps (B, D, g, g), float16 on the CPU."""
        with torch.no_grad():
            maps = self.network(images.contiguous(memory_format=torch.channels_last))
        if maps.dim() != 4:
            raise BackboneError(
                f"{self.settings.name} gives {tuple(maps.shape[1:])} per image, which is not a feature map; "
                f"backbone.frozen needs an encoder that gives one."
            )
        return F.adaptive_avg_pool2d(maps.float(), self.settings.cells).half().cpu()

    def adapter(self) -> Adapter:
        return Adapter(self.network.feature_dim, self.settings.adapter)


def frozen_of(spec: RunSpec, dataset: Dataset, device: torch.device) -> Frozen:
    """Return the frozen encoder of a run."""
    if dataset.recipe is None:
        raise BackboneError(f"{dataset.name} has no images: backbone.frozen is for image data; leave it out.")
    settings = spec.backbone
    name = settings.name or dataset.backbone
    build = factory(name, 3, settings.pretrained, spec.weight_file(), asks=f"The frozen encoder on {dataset.name}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # an encoder without published weights is a random one, the same for all
        network = build().eval().requires_grad_(False)
    recipe, published = dataset.recipe, normalisation(network)
    if published is not None:
        recipe = replace(recipe, mean=published[0], std=published[1])
    network.to(device)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # twice as fast on a CPU
    return Frozen(network, dataset, recipe, settings, name, device)


@dataclass(frozen=True)
class Maps:
    """Stored maps of one part ("train", "test") under one view, all draws one after the other."""

    encoder: Frozen
    part: str
    view: str
    draws: int

    @property
    def split(self) -> Split:
        return self.encoder.dataset.train if self.part == "train" else self.encoder.dataset.test

    @property
    def path(self) -> Path:
        kind = getattr(self.encoder.recipe, self.view, "")  # which weak or strong view it is
        draws = "" if self.view == "plain" else f"-{kind}-{self.draws}"
        return self.encoder.folder / f"{self.part}-{self.view}{draws}-{self.encoder.key}.maps"

    @property
    def numbers(self) -> int:
        """Numbers of one image."""
        channels, height, width = self.encoder.shape
        return channels * height * width

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return 2 * self.numbers * self.draws * len(self.split)

    def complete(self) -> bool:
        try:
            return self.path.stat().st_size == self.size
        except OSError:
            return False

    def open(self) -> Tensor:
        """Map the file as (draws · N, D, g, g) float16: draw d of row i is d · N + i."""
        count = self.draws * len(self.split) * self.numbers
        flat = torch.from_file(str(self.path), shared=False, size=count, dtype=torch.float16)
        return flat.view(-1, *self.encoder.shape)

    def block(self, draw: int, rows: Tensor) -> Tensor:
        """Return one draw of these rows, (B, D, g, g) float16."""
        views = Views(self.encoder.recipe, VIEW_SEED)
        images, sizes = self.split.batch(rows)
        images = images.to(self.encoder.device)
        if self.view == "plain":
            return self.encoder.encode(views.test(images, sizes))
        return self.encoder.encode(views(images, rows, (self.view,), draw, sizes)[0])

    def build(self, progress: tqdm) -> None:
        """Write what is missing; the caller has the lock."""
        partial, row_bytes = self.path.with_suffix(".partial"), 2 * self.numbers
        with open(partial, "ab") as stream:
            done, end = stream.tell(), 0
            for draw, rows in product(range(self.draws), torch.arange(len(self.split)).split(BLOCK)):
                start, end = end, end + len(rows) * row_bytes
                if end > done:
                    if stream.tell() != start:  # an incomplete block is computed again
                        stream.truncate(start)
                        stream.seek(start)
                    stream.write(self.block(draw, rows).numpy().tobytes())
                progress.update(len(rows))
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, self.path)


def ensure(maps: Iterable[Maps]) -> None:
    """Build the missing maps. Several processes share the work; none builds a file twice."""
    missing = [one for one in maps if not one.complete()]
    if not missing:
        return
    folder, name = missing[0].encoder.folder, missing[0].encoder.dataset.name
    threads = torch.get_num_threads()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial = [one.path.with_suffix(".partial") for one in missing]
        needed = sum(one.size for one in missing) - sum(path.stat().st_size for path in partial if path.exists())
        if shutil.disk_usage(folder).free < needed:
            raise DataError(
                f"{name}: the frozen features need {needed / 1e9:.1f} GB in {folder}, where "
                f"{shutil.disk_usage(folder).free / 1e9:.1f} GB are free; {cache.ENVIRONMENT} names another folder, and a "
                f"smaller backbone.draws or backbone.cells needs less."
            )
        images = sum(one.draws * len(one.split) for one in missing)
        title = f"{name}: frozen features, {needed / 1e9:.1f} GB"
        torch.set_num_threads(1)  # sums of several threads may differ in the last bits
        # Progress goes to the terminal, not to the log of the run.
        with tqdm(total=images, desc=title, unit=" images", file=sys.__stderr__, mininterval=30.0) as progress:
            for wait in (False, True):  # what other processes are building comes last
                for one in missing:
                    build(one, progress, wait)
    except OSError as error:
        raise DataError(
            f"{folder} cannot be written ({error.strerror or error}); {cache.ENVIRONMENT} names another folder for it."
        ) from None
    finally:
        torch.set_num_threads(threads)


def build(maps: Maps, progress: tqdm, wait: bool) -> None:
    """Build a file under its lock; with `wait` also one that another process has the lock of."""
    lock = Lock(maps.path.with_suffix(".lock"))
    if lock.acquire(wait):
        try:
            if not maps.complete():
                maps.build(progress)
        finally:
            lock.release()


class FrozenLoader:
    """Load stored maps of the training rows' views and of the test set, as `inputs.ViewLoader` makes views."""

    def __init__(self, encoder: Frozen, seed: int, device: torch.device, names: Sequence[str]) -> None:
        self.encoder, self.seed, self.device = encoder, seed, device
        self.rows, self.draws = len(encoder.dataset.train), encoder.settings.draws
        ensure(
            [encoder.maps("train", view) for view in dict.fromkeys(("plain", *names))] + [encoder.maps("test", "plain")]
        )
        self._open: dict[tuple[str, str], Tensor] = {}

    def _maps(self, part: str, view: str) -> Tensor:
        if (part, view) not in self._open:
            maps = self.encoder.maps(part, view)
            ensure([maps])
            self._open[part, view] = maps.open()
        return self._open[part, view]

    def train_views(self, rows: Tensor, names: Sequence[str], epoch: int) -> tuple[Tensor, ...]:
        """Return one float32 batch of maps per name for the training rows (B,); a repeated name gets another draw."""
        rows = rows.cpu()
        first = (counter.uniforms(self.seed, epoch, "draw", rows, 1).squeeze(1) * self.draws).long()
        views = []
        for k, name in enumerate(names):
            draw = 0 if name == "plain" else (first + names[:k].count(name)) % self.draws
            views.append(self._on_device(self._maps("train", name).index_select(0, draw * self.rows + rows)))
        return tuple(views)

    def batches_at_once(self, batch: int) -> int:
        return 1

    def test_batches(self) -> Iterator[Tensor]:
        """Yield the whole test set, in order."""
        for part in self._maps("test", "plain").split(TEST_BATCH):
            yield self._on_device(part)

    def _on_device(self, maps: Tensor) -> Tensor:
        (there,) = to_device((maps,), self.device)
        return there.float()


class BlankLoader(FrozenLoader):
    """Empty maps of the right shapes, to time a run whose maps do not exist yet."""

    def __init__(self, encoder: Frozen, seed: int, device: torch.device) -> None:
        self.encoder, self.seed, self.device = encoder, seed, device
        self.rows, self.draws = len(encoder.dataset.train), encoder.settings.draws

    def _maps(self, part: str, view: str) -> Tensor:
        maps = self.encoder.maps(part, view)
        return torch.zeros(1, *self.encoder.shape, dtype=torch.float16).expand(maps.draws * len(maps.split), -1, -1, -1)
