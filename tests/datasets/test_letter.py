"""Letter Recognition: the rows that ship, and what a damaged file is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from datasets import letter, registry
from datasets.base import DataError


def test_the_embedded_rows_are_standardised_and_cut():
    dataset = registry.get("letter").load(Path(), train=4000, test=1000)
    train = dataset.train.images
    assert train.shape == (4000, 16) and dataset.test.images.shape == (1000, 16)
    assert torch.allclose(train.mean(0), torch.zeros(16), atol=1e-5) and torch.allclose(
        train.std(0), torch.ones(16), atol=1e-3
    )
    assert dataset.class_names[dataset.train.labels[0]] == "T"  # the first line of UCI's file: T,2,8,3,5,…
    steps = (train[0] - train[1]) / torch.from_numpy(letter.load_arrays()[0][:4000].std(0)).float().reciprocal()
    assert steps[:4].tolist() == pytest.approx([2 - 5, 8 - 12, 3 - 3, 5 - 7], abs=1e-4)  # second line: I,5,12,3,7,…
    assert torch.bincount(dataset.train.labels, minlength=26).min() > 100
    assert registry.get("letter").find(Path()).status == "found"


@pytest.mark.parametrize("settings", [{"train": 25}, {"train": 16_001}, {"test": 4_001}])
def test_an_impossible_number_of_rows_is_refused(settings):
    with pytest.raises(DataError, match=next(iter(settings))):
        registry.get("letter").load(Path(), **settings)


@pytest.mark.parametrize("damage", ["missing", "cut", "changed"])
def test_a_damaged_file_is_refused(tmp_path, monkeypatch, damage):
    path = tmp_path / "letter.npz"
    if damage == "cut":
        path.write_bytes(letter.EMBEDDED.read_bytes()[:1000])
    if damage == "changed":
        x, y = letter.load_arrays()
        np.savez(path, x=x, y=y[::-1])
    monkeypatch.setattr(letter, "EMBEDDED", path)
    with pytest.raises(DataError, match="git checkout"):
        letter.load(tmp_path)
    assert letter.find(tmp_path).status == ("missing" if damage == "missing" else "found")
