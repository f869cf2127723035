"""Images and views on a GPU: the values of the CPU, made without making the host wait."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from benchmark.contract.pretend import PretendCuda
from benchmark.trainer.inputs import OnDevice, Streamed, ViewLoader, fetchers
from datasets.views import upload
from datasets.views.recipes import CIFAR, FINE_GRAINED
from datasets.views.views import Views
from tests.support.pretend import pictures_of_many_sizes


def blocks() -> Iterator[tuple[str, int, Views, torch.Tensor, torch.Tensor | None]]:
    for recipe in (CIFAR, FINE_GRAINED):
        count = 256 if recipe.size == 32 else 16
        images = torch.randint(0, 256, (count, 3, recipe.size, recipe.size + 4), dtype=torch.uint8)
        sizes = torch.tensor([recipe.size, recipe.size]).expand(count, 2) if recipe.size > 32 else None
        for name in ("weak", "strong", "distill", "plain"):
            yield name, recipe.size, Views(recipe, 0), images, sizes


def test_a_block_of_views_waits_for_nothing() -> None:
    for name, size, views, images, sizes in blocks():
        with PretendCuda() as device:
            there = images.to("cuda")
            views(there, torch.arange(len(images)), (name,), 0, sizes)  # constants are sent once
            device.waits.clear()
            views(there, torch.arange(len(images)), (name,), 1, sizes)
        assert not device.waits, (name, size, device.waits)


def test_packed_pictures_are_those_of_the_padded_batch() -> None:
    dataset, _ = pictures_of_many_sizes()
    for free, kind in ((2**36, OnDevice), (0, Streamed)):
        with PretendCuda() as device, pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.cuda, "mem_get_info", lambda *_, free=free: (free, free))
            train, test = fetchers((dataset.train, dataset.test), torch.device("cuda", 0))
            assert all(type(fetch.__self__) is kind for fetch in (train, test))  # type: ignore[attr-defined]
            for part, fetch in ((dataset.train, train), (dataset.test, test)):
                for rows in (torch.tensor([3, 0, 7]), torch.arange(len(part)), torch.tensor([len(part) - 1])):
                    images, sizes = fetch(rows)
                    expected, expected_sizes = part.batch(rows)
                    assert sizes is not None and expected_sizes is not None
                    assert torch.equal(images.cpu(), expected) and torch.equal(sizes, expected_sizes)
            device.waits.clear()
            train(torch.arange(8))
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
        device.waits.clear()
        again = list(loader.test_batches())
        assert not device.waits
        assert loader._test_cache is not None and {kept.dtype for kept in loader._test_cache} == {torch.uint8}
        assert torch.equal(first, on_cpu) and torch.equal(torch.cat(again).cpu(), on_cpu)


def test_sent_tensors_arrive_without_a_wait() -> None:
    parts = [torch.arange(3), torch.tensor([True, False]), torch.rand(2, 5, dtype=torch.float64), torch.empty(0, 2)]
    with PretendCuda() as device:
        there = upload.to_device(parts, torch.device("cuda", 0))
        assert not device.waits
        assert all(torch.equal(a.cpu(), b) and a.dtype == b.dtype for a, b in zip(there, parts, strict=True))
