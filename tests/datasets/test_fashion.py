"""Fashion-MNIST: the images that ship, the publisher's files, and what damaged ones are told."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmark.tools import embed
from datasets import fashion, registry
from datasets.base import DataError
from datasets.storage.fetch import ARCHIVES


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes() + array.tobytes()


def written(folder: Path, monkeypatch: pytest.MonkeyPatch, packed: bool = True) -> Path:
    """A folder in the publisher's layout with the embedded images, and the hashes that belong to them."""
    content, hashes = fashion.load_arrays(), {}
    folder.mkdir(parents=True)
    for file in fashion.FILES:
        part, what = file.split("-")[:2]
        raw = idx_bytes(content[f"{'train' if part == 'train' else 'test'}_{what}"][:50])
        hashes[file] = hashlib.sha256(raw).hexdigest()
        (folder / (f"{file}.gz" if packed else file)).write_bytes(gzip.compress(raw) if packed else raw)
    monkeypatch.setattr(fashion, "FILES", hashes)
    return folder


def test_the_embedded_images_are_balanced_in_any_number():
    dataset = registry.get("fashion").load(Path(), train=2000, test=500)
    assert dataset.train.images.shape == (2000, 3, 28, 28) and dataset.test.images.shape == (500, 3, 28, 28)
    assert torch.bincount(dataset.train.labels).tolist() == [200] * 10
    assert torch.bincount(dataset.test.labels).tolist() == [50] * 10
    whole = registry.get("fashion").load(Path())
    assert (len(whole.train), len(whole.test)) == (6000, 1000)
    assert torch.equal(whole.train.images[:2000], dataset.train.images)


def test_half_the_side_holds_means_of_four_pixels():
    whole, half = (registry.get("fashion").load(Path(), train=10, test=10, side=side) for side in (28, 14))
    assert half.train.images.shape == (10, 3, 14, 14) and half.recipe is not None and half.recipe.size == 14
    square = whole.train.images[3, 0, 10:12, 6:8].double().mean()
    assert abs(half.train.images[3, 0, 5, 3] - square) <= 0.5


def test_features_are_scaled_rows_of_pixels():
    dataset = registry.get("fashion").load(Path(), train=10, test=10, form="features", mean=0.5, std=0.25)
    pixels = registry.get("fashion").load(Path(), train=10, test=10).train.images[:, 0].reshape(10, -1)
    assert dataset.recipe is None and dataset.backbone == "mlp"
    assert torch.allclose(dataset.train.images, (pixels / 255 - 0.5) / 0.25)


def test_a_changed_embedded_file_is_refused(tmp_path, monkeypatch):
    content = fashion.load_arrays()
    content["test_images"] = content["test_images"].copy()
    content["test_images"][7, 3, 3] ^= 1
    np.savez_compressed(tmp_path / "fashion.npz", **content)
    monkeypatch.setattr(fashion, "EMBEDDED", tmp_path / "fashion.npz")
    with pytest.raises(DataError, match="SHA-256 differs"):
        fashion.load_arrays()
    (tmp_path / "fashion.npz").write_bytes(b"PK" + bytes(100))
    with pytest.raises(DataError, match="missing or damaged"):
        fashion.load_arrays()


@pytest.mark.parametrize("packed", [True, False])
def test_the_publishers_files_are_read_packed_and_unpacked(tmp_path, monkeypatch, packed):
    folder = written(tmp_path / "fashion-mnist", monkeypatch, packed)
    dataset = fashion.load_full(tmp_path)
    assert torch.equal(dataset.train.images, registry.get("fashion").load(tmp_path, train=50).train.images)
    assert fashion.find_full(tmp_path).status == "found"
    next(folder.glob("t10k-labels*")).unlink()
    assert fashion.find_full(tmp_path).status == "incomplete"
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte\.gz is missing"):
        fashion.load_full(tmp_path)


def test_damaged_and_foreign_files_are_refused(tmp_path, monkeypatch):
    folder = written(tmp_path / "fashion-mnist", monkeypatch)
    path = folder / "t10k-images-idx3-ubyte.gz"
    good = path.read_bytes()
    path.write_bytes(good[:-100])
    with pytest.raises(DataError, match="cannot be read"):
        fashion.load_full(tmp_path)
    path.write_bytes(gzip.compress(gzip.decompress(good)[:-1] + b"x"))
    with pytest.raises(DataError, match="SHA-256 differs"):
        fashion.load_full(tmp_path)


def test_nothing_there_says_the_three_ways(tmp_path, monkeypatch):
    monkeypatch.setattr(fashion, "DEBIAN", tmp_path / "none")
    with pytest.raises(DataError, match=r"fetch fashion-mnist.*by hand.*dataset-fashion-mnist"):
        fashion.load_full(tmp_path)


@pytest.mark.parametrize("settings", [{"train": 5}, {"test": 1001}, {"side": 20}, {"std": 0.0}, {"mean": 0.3}])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(DataError, match="fashion: "):
        fashion.load_embedded(Path(), **settings)


def test_every_file_of_the_full_set_can_be_fetched_with_its_hash():
    assert {archive.file for archive in ARCHIVES["fashion-mnist"]} == {f"{file}.gz" for file in fashion.FILES}
    assert all(archive.md5 and archive.urls for archive in ARCHIVES["fashion-mnist"])


def test_the_embedded_file_is_what_its_tool_makes_of_the_full_set():
    if fashion.find_full(Path("data")).status != "found":
        pytest.skip("the full Fashion-MNIST is not on this machine")
    assert fashion.digest_of(embed.content(Path("data"))) == fashion.EMBEDDED_SHA256
