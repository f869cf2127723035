"""Trainings on the pretend CUDA device, and the same on the CPU, on a task that takes a second."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmark.config.profile import load_profile
from benchmark.config.resolution import Override, resolve
from benchmark.contract.subject import TRAIN, small_task
from benchmark.trainer.trainer import Hooks, Trainer
from datasets.base import Dataset, Split
from datasets.views.recipes import FINE_GRAINED
from methods import nepll
from methods.registry import discover, load

SHORT = dataclasses.replace(TRAIN, epochs=2, batch=31, eval_every=2)


def trainer_on(
    device: str,
    method: str,
    task: tuple[Dataset, Tensor] | None = None,
    hooks: Hooks | None = None,
    overrides: Sequence[Override] = (),
    **changes: Any,
) -> Trainer:
    """Build the trainer of a method on a small task; `changes` are settings of the section `train`."""
    entry = discover().get(method)
    dataset, candidates = task or small_task()
    spec = resolve(load_profile("quick"), entry, "digits", 0, overrides)  # heads scaled to a small network
    spec = spec.with_train(**dataclasses.asdict(SHORT) | changes)
    return Trainer(spec, load(entry), dataset, candidates, torch.device(device), hooks)


@contextmanager
def rounding_of_cuda() -> Iterator[None]:
    """Use the forms of attention and of NEPLL's sums that runs on CUDA use; those of the CPU round differently."""
    with sdpa_kernel(SDPBackend.MATH), pytest.MonkeyPatch.context() as patch:
        patch.setattr(nepll, "class_sums", nepll.integer_class_sums)
        yield


def results(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record["result"] for record in records]


def pictures_of_many_sizes(train: int = 24, test: int = 10, folder: Path | None = None) -> tuple[Dataset, Tensor]:
    """As fine-grained sets are stored: flat pixels with offsets, in a folder as mapped files; dark and bright ones."""

    def split(count: int, seed: int) -> Split:
        generator = torch.Generator().manual_seed(seed)
        labels = torch.arange(count) % 2
        sizes = torch.randint(230, 300, (count, 2), generator=generator)
        pixels = 3 * sizes.prod(1)
        offsets = pixels.cumsum(0) - pixels
        parts = [
            torch.randint(0, 128, (n,), generator=generator, dtype=torch.uint8) + 100 * int(label)
            for n, label in zip(pixels.tolist(), labels, strict=True)
        ]
        flat = torch.cat(parts)
        if folder is not None:
            (folder / f"{seed}.bin").write_bytes(flat.numpy().tobytes())
            flat = torch.from_file(str(folder / f"{seed}.bin"), shared=False, size=len(flat), dtype=torch.uint8)
        return Split(flat, labels, sizes, offsets)

    candidates = torch.ones(train, 2, dtype=torch.bool)
    candidates[: train // 2] = torch.nn.functional.one_hot(torch.arange(train // 2) % 2, 2).bool()
    parts = split(train, 1), split(test, 2)
    return Dataset("pictures", 2, ("dark", "bright"), *parts, FINE_GRAINED, backbone="small-cnn"), candidates
