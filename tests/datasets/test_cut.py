"""`dataset.train = n` and `dataset.test = n`: a stratified part of any dataset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmark.config.selection import select
from benchmark.runner.options import RunOptions
from benchmark.runner.worker import execute
from benchmark.trainer.loading import dataset_of
from datasets import registry
from datasets.base import DataError, Dataset, Split, cut, load
from tests.conftest import TinyBenchmark


def test_a_cut_keeps_rows_candidates_and_the_share_of_every_class(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.choice(4, 60, p=[0.1, 0.2, 0.3, 0.4])
    candidates = (rng.random((60, 4)) < 0.3) | (np.arange(4) == labels[:, None])
    np.savez(tmp_path / "mine.npz", x=rng.random((60, 5)), y=labels, candidates=candidates)
    source = registry.get(str(tmp_path / "mine.npz"))
    whole, part = (load(source, tmp_path, **settings) for settings in ({}, {"train": 20, "test": 2}))
    assert (len(part.train), len(part.test)) == (20, 2)
    assert part.candidates is not None and whole.candidates is not None
    share = part.train.labels.bincount(minlength=4) - whole.train.labels.bincount(minlength=4) * 20 / len(whole.train)
    assert share.abs().max() <= 1
    where = (part.train.images[:, None] == whole.train.images).all(2).int().argmax(1)
    assert torch.equal(part.train.images, whole.train.images[where])
    assert torch.equal(part.candidates, whole.candidates[where])
    smaller = load(source, tmp_path, train=10)
    kept = (smaller.train.images[:, None] == part.train.images).all(2).any(1)
    assert len(smaller.test) == len(whole.test) and kept.float().mean() > 0.7


def test_images_of_many_sizes_can_be_cut() -> None:
    sizes = torch.tensor([[2, 3], [4, 5], [3, 3], [2, 2]])
    areas = 3 * sizes.prod(1)
    pixels = torch.arange(4, dtype=torch.uint8).repeat_interleave(areas) + 1
    split = Split(pixels, torch.tensor([0, 0, 1, 1]), sizes, areas.cumsum(0) - areas)
    part = cut(Dataset("mine", 2, ("a", "b"), split, split, None), 2, 3)
    assert (len(part.train), len(part.test)) == (2, 3) and part.train.labels.tolist() == [0, 1]
    images, valid = part.train.batch(torch.arange(2))
    assert valid is not None and [
        row[:, :h, :w].unique().numel() for row, (h, w) in zip(images, valid, strict=True)
    ] == [1, 1]


@pytest.mark.parametrize("count", [0, 1, 1298])
def test_a_cut_that_is_not_possible_is_one_sentence(count: int) -> None:
    with pytest.raises(DataError, match=rf"digits: train={count} is not possible; take 2 to 1,297 rows"):
        load(registry.get("digits"), Path("/nowhere"), train=count)


def test_a_run_can_be_cut_to_rows_and_steps_and_is_another_run(tiny_benchmark: TinyBenchmark) -> None:
    whole, part = (
        select(str(tiny_benchmark.profile), methods="proden", seeds="0", epochs=1, settings=settings).specs()[0]
        for settings in ((), ("dataset.train=150", "dataset.test=100", "train.steps=2"))
    )
    assert whole.digest != part.digest and "steps" not in whole.to_json()["train"]
    data = tiny_benchmark.folder / "data"
    assert (len(dataset_of(part, data).train), len(dataset_of(part, data).test)) == (150, 100)
    assert execute(part, RunOptions(tiny_benchmark.results, data)).status == "done"
    (document,) = tiny_benchmark.documents()
    assert document["overrides"] == {"dataset.train": 150, "dataset.test": 100, "train.steps": 2, "train.epochs": 1}
