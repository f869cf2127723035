"""What a training may ask of a GPU's host: no wait in a step, none while views are made, and no more launches than now."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch

from benchmark.device.pretend import PretendCuda
from benchmark.train import pixels
from benchmark.train.inputs import ViewLoader
from benchmark.train.pixels import Resident, Staged, pixels_of
from datasets.base import Split
from datasets.views import upload
from datasets.views.recipes import CIFAR, FINE_GRAINED
from datasets.views.views import Views
from methods.registry import discover
from tests.support.pretend import pictures_of_many_sizes, trainer_on

# Launches of one step with the small network and a batch of 31, late in training.
STEP = {
    "able": 127, "abs-mae": 57, "abs-gce": 55, "alim": 260, "average": 49, "cavl": 74, "cc": 54, "cel": 481,
    "proden-2v": 244, "cel-linear": 478, "cr-dpll": 185, "crosel": 272, "dirk": 228, "dirk-plain": 84, "fredis": 233,
    "idgp": 382, "lws": 92, "nepll": 406, "papi": 257, "pico": 171, "pop": 136, "pop-one-view": 53, "rc-pop": 86,
    "cc-pop": 72, "lws-pop": 110, "proden": 51, "rc": 68, "solar": 739, "supervised": 42, "valen": 243,
    "valen-three-views": 443, "valen-paper": 243,
}  # fmt: skip
WAITS = {"nepll": 1}  # it forwards the selected rows only, and must know how many there are
# Launches of one block of views; operations that no picture of a block asks for are not launched.
VIEWS = {
    ("weak", 32): 391, ("strong", 32): 499, ("distill", 32): 362, ("plain", 32): 55, ("weak", 224): 391,
    ("strong", 224): 402, ("distill", 224): 216, ("plain", 224): 55,
}  # fmt: skip


@pytest.mark.parametrize("method", discover().entries)
def test_a_step_waits_for_nothing(method: str) -> None:
    with PretendCuda() as device:
        trainer = trainer_on("cuda", method, epochs=20)
        trainer.epoch = 15
        trainer.begin_epoch()
        first, second = trainer.batches(trainer.order(15), 0)
        trainer.step(first)
        device.reset()
        trainer.step(second)
    assert sum(device.waits.values()) <= WAITS.get(method, 0), device.waits
    launches = sum(device.launches.values())
    assert launches <= STEP.get(method, 0), f"{launches} launches; if they are needed, say so in STEP"


def blocks() -> Iterator[tuple[str, int, Views, torch.Tensor, torch.Tensor | None]]:
    for recipe in (CIFAR, FINE_GRAINED):
        count = 256 if recipe.size == 32 else 16
        images = torch.randint(0, 256, (count, 3, recipe.size, recipe.size + 4), dtype=torch.uint8)
        sizes = torch.tensor([recipe.size, recipe.size]).expand(count, 2) if recipe.size > 32 else None
        for name in ("weak", "strong", "distill", "plain"):
            yield name, recipe.size, Views(recipe, 0), images, sizes


def test_a_block_of_views_waits_for_nothing() -> None:
    for name, size, views, images, sizes in blocks():
        with PretendCuda(values=False) as device:
            there = images.to("cuda")
            views(there, torch.arange(len(images)), (name,), 0, sizes)  # constants are sent once
            device.reset()
            views(there, torch.arange(len(images)), (name,), 1, sizes)
        assert not device.waits, (name, size, device.waits)
        launches = sum(device.launches.values())
        assert launches <= VIEWS[name, size], f"{name} at {size} px: {launches} launches"


def test_packed_pictures_are_those_of_the_padded_batch() -> None:
    dataset, _ = pictures_of_many_sizes()
    for free, kind in ((2**36, Resident), (0, Staged)):
        with PretendCuda() as device, pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.cuda, "mem_get_info", lambda *_, free=free: (free, free))
            train, test = pixels_of((dataset.train, dataset.test), torch.device("cuda", 0))
            assert type(train) is type(test) is kind
            for part, found in ((dataset.train, train), (dataset.test, test)):
                for rows in (torch.tensor([3, 0, 7]), torch.arange(len(part)), torch.tensor([len(part) - 1])):
                    images, sizes = found.fetch(rows)
                    expected, expected_sizes = part.batch(rows)
                    assert sizes is not None and expected_sizes is not None
                    assert torch.equal(images.cpu(), expected) and torch.equal(sizes, expected_sizes)
            device.reset()
            train.fetch(torch.arange(8))
            assert not device.waits


def test_views_of_packed_pictures_are_those_of_the_padded_batch() -> None:
    dataset, _ = pictures_of_many_sizes()
    rows, names = torch.arange(6), ("weak", "strong", "plain")
    with PretendCuda():
        loader = ViewLoader(dataset, 0, torch.device("cuda", 0))
        images, sizes = dataset.train.batch(rows)
        assert loader.views is not None
        expected = loader.views(images.to("cuda"), rows, names, 3, sizes)
        for ours, theirs in zip(loader.train_views(rows, names, 3), expected, strict=True):
            assert torch.equal(ours.cpu(), theirs.cpu())


def test_test_pictures_stay_on_the_card_as_bytes() -> None:
    dataset, _ = pictures_of_many_sizes()
    on_cpu = torch.cat(list(ViewLoader(dataset, 0, torch.device("cpu")).test_batches()))
    with PretendCuda() as device:
        loader = ViewLoader(dataset, 0, torch.device("cuda", 0))
        first = torch.cat([images.cpu() for images in loader.test_batches()])
        device.reset()
        again = list(loader.test_batches())
        assert not device.waits and device.copied == 0
        assert loader._test_cache is not None and {kept.dtype for kept in loader._test_cache} == {torch.uint8}
        assert torch.equal(first, on_cpu) and torch.equal(torch.cat(again).cpu(), on_cpu)


def test_what_is_sent_arrives_in_one_copy() -> None:
    parts = [torch.arange(3), torch.tensor([True, False]), torch.rand(2, 5, dtype=torch.float64), torch.empty(0, 2)]
    with PretendCuda() as device:
        there = upload.sent(parts, torch.device("cuda", 0))
        assert sum(device.launches.values()) == 1 and not device.waits
        assert all(torch.equal(a.cpu(), b) and a.dtype == b.dtype for a, b in zip(there, parts, strict=True))


def test_the_host_prepares_a_batch_five_times_as_fast() -> None:
    """128 pictures as large as those of CUB: packed into a kept buffer, against padded and pinned."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(256, 420, (160, 2), generator=generator)
    sizes[torch.arange(160), torch.randint(0, 2, (160,), generator=generator)] = 256
    lengths = 3 * sizes.prod(1)
    split = Split(
        torch.zeros(int(lengths.sum()), dtype=torch.uint8) + 7, torch.zeros(160), sizes, lengths.cumsum(0) - lengths
    )
    rows = torch.randperm(160, generator=generator)[:128]
    spent: dict[str, list[float]] = {"padded": [], "packed": []}
    with PretendCuda(values=False):
        staged = Staged(split, torch.device("cuda", 0))
    for _ in range(7):
        start = time.process_time()
        split.batch(rows)[0].clone()  # pinning copies once more
        spent["padded"].append(time.process_time() - start)
        with pytest.MonkeyPatch.context() as patch, PretendCuda(values=False):
            patch.setattr(pixels, "unpacked", lambda flat, *_: flat)  # its launches are counted elsewhere
            start = time.process_time()
            staged.fetch(rows)
            spent["packed"].append(time.process_time() - start)
    assert min(spent["padded"]) > 5 * min(spent["packed"]), {k: min(v) for k, v in spent.items()}
