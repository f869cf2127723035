"""Long-tailed training sets: the rows that stay, and what the runs on them share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmark.config.selection import select
from benchmark.trainer.candidates import candidate_set
from benchmark.trainer.loading import dataset_of
from datasets.base import long_tail
from tests.conftest import TinyBenchmark


@pytest.mark.parametrize(("ratio", "last"), [(10, 500), (50, 100), (100, 50)])
def test_the_classes_fall_exponentially_to_the_stated_ratio(ratio: float, last: int) -> None:
    labels = np.arange(50_000) % 10
    counts = np.bincount(labels[long_tail(labels, 10, ratio, 0)])
    assert counts[0] == 5000 and counts[-1] == last
    np.testing.assert_allclose(counts[1:] / counts[:-1], ratio ** (-1 / 9), rtol=0.02)


def test_the_rows_are_a_shuffle_by_seed_and_a_higher_ratio_takes_fewer_of_them() -> None:
    labels = np.random.default_rng(0).integers(0, 7, 3000)
    mild, steep, other = (long_tail(labels, 7, ratio, seed) for ratio, seed in ((10, 0), (100, 0), (10, 1)))
    assert set(steep) < set(mild) and (np.diff(mild) > 0).all()
    assert len(other) == len(mild) and set(other) != set(mild)
    assert not set(range(100)) < set(mild)  # not the first rows of every class


def test_no_class_is_lost_and_none_gets_more_rows_than_it_has() -> None:
    labels = np.repeat([0, 1, 2, 4], [30, 2, 40, 3])  # nothing of class 3
    counts = np.bincount(labels[long_tail(labels, 5, 1000, 0)], minlength=5)
    assert counts.tolist() == [30, 2, 1, 0, 1]
    assert long_tail(np.zeros(5, dtype=np.int64), 1, 10, 0).tolist() == [0, 1, 2, 3, 4]


def specs_of(bench: TinyBenchmark, *settings: str, **words: Any) -> list[Any]:
    return select(str(bench.profile), settings=settings, **words).specs()


def test_only_the_training_rows_are_cut_and_all_seeds_share_them(tiny_benchmark: TinyBenchmark) -> None:
    whole, *_ = specs_of(tiny_benchmark, methods="proden")
    assert "imbalance" not in whole.to_json()["dataset"]
    first, second = specs_of(tiny_benchmark, "data.imbalance=10", methods="proden")
    data = tiny_benchmark.folder / "data"
    full, tail, again = (dataset_of(spec, data) for spec in (whole, first, second))
    counts = tail.train.labels.bincount(minlength=10)
    before = full.train.labels.bincount()
    assert counts[0] == before[0] and counts[-1] == before.max() // 10 and (counts.diff() <= 0).all()
    assert torch.equal(tail.test.images, full.test.images) and torch.equal(tail.test.labels, full.test.labels)
    assert torch.equal(tail.train.images, again.train.images) and torch.equal(tail.train.labels, again.train.labels)
    sets = [candidate_set(spec, dataset_of(spec, data), tiny_benchmark.results) for spec in (whole, first)]
    assert sets[0].meta["fingerprint"] != sets[1].meta["fingerprint"] and len(sets[1].matrix) == len(tail.train)


def test_own_data_are_cut_with_their_own_sets_when_a_generator_makes_new_ones(
    tiny_benchmark: TinyBenchmark, tmp_path: Path
) -> None:
    y = np.arange(120) % 3
    x = np.random.default_rng(0).normal(size=(120, 4))
    np.savez(tmp_path / "mine.npz", x=x, y=y, candidates=np.eye(3)[y], x_test=x, y_test=y)
    settings = ("data.imbalance=4", "data.generator=uniform", "data.rate=0.3")
    spec, *_ = specs_of(tiny_benchmark, *settings, datasets=str(tmp_path / "mine.npz"), methods="proden")
    dataset = dataset_of(spec, tmp_path)
    assert dataset.train.labels.bincount().tolist() == [40, 20, 10] and len(dataset.test) == 120
    assert dataset.candidates is not None and torch.equal(dataset.candidates.int().argmax(1), dataset.train.labels)
    assert len(candidate_set(spec, dataset, tiny_benchmark.results).matrix) == 70
