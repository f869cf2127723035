"""Candidate sets as plain matrices: out, in, and what is refused on the way in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from datasets import digits
from datasets.base import DataError, Dataset
from datasets.labels import exchange
from datasets.labels.candidates import CandidateSet, Wanted, built


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return digits.load(Path("nowhere"), test=1600)


@pytest.fixture
def made(dataset: Dataset, tmp_path: Path) -> CandidateSet:
    return built(Wanted(dataset, "uniform", 0.2, 0), tmp_path / "here")


@pytest.mark.parametrize("ending", exchange.ENDINGS)
def test_sets_travel_by_file_and_keep_their_sha256(
    dataset: Dataset, made: CandidateSet, tmp_path: Path, ending: str
) -> None:
    file, wanted = tmp_path / f"sets{ending}", Wanted(dataset, "uniform", 0.2, 0)
    told = replace(made, meta={**made.meta, "test_accuracy": 0.5, "environment": {"device_name": "a card"}})
    exchange.export(told, dataset, file)
    brought = exchange.bring_in(file, wanted, tmp_path / "there")
    assert brought.sha256 == made.sha256 and brought.meta["imported"] == file.name
    found = built(wanted, tmp_path / "there")  # read, not made again
    assert found.sha256 == made.sha256 and found.meta["environment"] == {"device_name": "a card"}
    assert found.meta["test_accuracy"] == 0.5
    assert exchange.bring_in(file, wanted, tmp_path / "here").sha256 == made.sha256  # the same are there already


def test_the_files_are_plain(dataset: Dataset, made: CandidateSet, tmp_path: Path) -> None:
    exchange.export(made, dataset, tmp_path / "sets.npz")
    exchange.export(made, dataset, tmp_path / "sets.csv")
    with np.load(tmp_path / "sets.npz", allow_pickle=False) as arrays:
        matrix = arrays["candidates"]
        assert matrix.shape == (197, 10) and matrix.dtype == np.uint8 and set(np.unique(matrix)) == {0, 1}
        assert json.loads(str(arrays["meta"]))["sha256"] == made.sha256
    read = np.loadtxt(tmp_path / "sets.csv", delimiter=",", skiprows=2, dtype=int)
    assert (read == matrix).all()


def test_a_matrix_without_words_is_taken_as_it_is(dataset: Dataset, tmp_path: Path) -> None:
    matrix = np.zeros((197, 10), dtype=np.int64)
    matrix[np.arange(197), dataset.train.labels] = 1
    matrix[:, 0] = 1
    np.savez(tmp_path / "plain.npz", candidates=matrix)
    wanted = Wanted(dataset, "uniform", 0.2, 0)
    exchange.bring_in(tmp_path / "plain.npz", wanted, tmp_path / "there")
    assert (built(wanted, tmp_path / "there").matrix.numpy() == matrix).all()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda m, meta: (m, meta | {"rate": 0.3}), r"was made with rate 0\.3, this command asks for 0\.2"),
        (lambda m, meta: (m, meta | {"seed": 4}), "was made with seed 4, this command asks for 0"),
        (lambda m, meta: (m, meta | {"annotator_recipe": "x"}), "with another annotator"),
        (lambda m, meta: (m, meta | {"labels_sha256": "x"}), "for other training rows"),
        (lambda m, meta: (m, meta | {"sha256": "x"}), "was changed after it was exported"),
        (lambda m, meta: (m[:-1], meta), r"candidates have shape \(196, 10\); \(197, 10\) is needed"),
        (lambda m, meta: (0 * m, meta), "197 rows without any candidate"),
        (lambda m, meta: (1 - m, meta), "do not contain the true label|without any candidate"),
        (lambda m, meta: (2 * m, meta), "no matrix of 0 and 1"),
        (lambda m, meta: (m.astype(str), meta), "no matrix of 0 and 1"),
        (lambda m, meta: (np.array(5), meta), "no matrix of 0 and 1"),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    dataset: Dataset, made: CandidateSet, tmp_path: Path, change: object, sentence: str
) -> None:
    exchange.export(made, dataset, tmp_path / "sets.npz")
    with np.load(tmp_path / "sets.npz") as arrays:
        matrix, meta = change(arrays["candidates"], json.loads(str(arrays["meta"])))  # type: ignore[operator]
    np.savez(tmp_path / "bad.npz", candidates=matrix, meta=np.array(json.dumps(meta)))
    with pytest.raises(DataError, match=sentence) as caught:
        exchange.bring_in(tmp_path / "bad.npz", Wanted(dataset, "uniform", 0.2, 0), tmp_path / "there")
    assert "\n" not in str(caught.value) and not list((tmp_path / "there").rglob("*.npz"))


@pytest.mark.parametrize("content", [b"", b"nothing", b"# {\n0,1\n1,1\n", b"a,b\n1,x\n", b"a,b\n1\n1,0\n"])
def test_a_file_that_holds_no_matrix_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    for name in ("bad.csv", "bad.npz"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=r"bad\.\w+ holds no matrix of candidates|no matrix of 0 and 1"):
            exchange.read(tmp_path / name)
    with pytest.raises(DataError, match="does not exist"):
        exchange.read(tmp_path / "gone.csv")


def test_other_sets_are_never_overwritten(dataset: Dataset, made: CandidateSet, tmp_path: Path) -> None:
    other = built(Wanted(dataset, "uniform", 0.2, 1), tmp_path / "here")
    exchange.export(replace(other, meta={}), dataset, tmp_path / "other.csv")
    with pytest.raises(DataError, match=r"holds other sets .* import into another results folder"):
        exchange.bring_in(tmp_path / "other.csv", Wanted(dataset, "uniform", 0.2, 0), tmp_path / "here")
    assert built(Wanted(dataset, "uniform", 0.2, 0), tmp_path / "here").sha256 == made.sha256


def test_other_classes_are_refused(dataset: Dataset, made: CandidateSet, tmp_path: Path) -> None:
    exchange.export(made, replace(dataset, class_names=tuple("abcdefghij")), tmp_path / "sets.csv")
    with pytest.raises(DataError, match="names other classes than digits has"):
        exchange.bring_in(tmp_path / "sets.csv", Wanted(dataset, "uniform", 0.2, 0), tmp_path / "there")
