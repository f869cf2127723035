"""Own data as people have them: arrays, tables, folders of images, without true labels or with, and what bad ones are told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from datasets import registry
from datasets.base import UNKNOWN, DataError, Dataset
from datasets.candidates.candidate_sets import build, statistics
from datasets.user import is_own, name_of
from datasets.user.table import rows_of
from datasets.views.recipes import CIFAR

ROWS, CLASSES = 20, 3
Y = np.arange(ROWS) % CLASSES
SETS = (np.eye(CLASSES)[Y] + np.eye(CLASSES)[(Y + 1) % CLASSES]) > 0
X = np.random.default_rng(0).normal(size=(ROWS, 4))


def load(path: Path, seed: int = 0, **settings) -> Dataset:
    return registry.get(str(path)).load(path.parent, seed, **settings)


def npz(path: Path, **arrays) -> Path:
    content = {"x": X, "candidates": SETS} | arrays
    np.savez(path, **{key: value for key, value in content.items() if value is not None})
    return path


def folder(path: Path, text: str, sizes: Sequence[tuple[int, int]] = ((120, 90),) * 4) -> Path:
    path.mkdir()
    for k, size in enumerate(sizes):
        Image.new("RGB", size, (50 * k, 9, 9)).save(path / f"{k}.png")
    (path / "candidates.csv").write_text(text)
    return path


def frame(**columns) -> pd.DataFrame:
    features = {f"f{k}": X[:, k] for k in range(4)}
    names = ["|".join(np.array(["ant", "bee", "cow"])[row]) for row in SETS]
    return pd.DataFrame(features | {"candidates": names} | columns)


def test_without_any_true_label_all_rows_are_trained_on_and_none_is_tested(tmp_path):
    data = load(npz(tmp_path / "mine.npz"))
    assert (len(data.train), len(data.test)) == (ROWS, 0)
    assert (data.train.labels == UNKNOWN).all() and data.train_names == tuple(map(str, range(ROWS)))


def test_a_labelled_test_part_may_stand_beside_training_rows_without_labels(tmp_path):
    data = load(npz(tmp_path / "mine.npz", x_test=X[:5], y_test=Y[:5]))
    assert (len(data.train), data.test.labels.tolist()) == (ROWS, Y[:5].tolist())
    unlabelled = load(npz(tmp_path / "two.npz", x_test=X[:5]))
    assert (unlabelled.test.labels == UNKNOWN).all() and len(unlabelled.test) == 5


def test_only_rows_with_a_label_are_held_out(tmp_path):
    some = np.where(np.arange(ROWS) < 10, Y, UNKNOWN)
    for seed in range(5):
        data = load(npz(tmp_path / "mine.npz", y=some), seed)
        assert len(data.test) == 2 and (data.test.labels != UNKNOWN).all() and len(data.train) == ROWS - 2


def test_with_all_labels_the_split_is_the_one_it_always_was(tmp_path):
    from datasets.base import hold_out, z_score

    data = load(npz(tmp_path / "mine.npz", y=Y), seed=3)
    train, test = hold_out(ROWS, 3, 0.2)
    expected = z_score(X[train], X[test])
    assert np.array_equal(data.train.images.numpy(), expected[0]) and np.array_equal(
        data.test.images.numpy(), expected[1]
    )
    assert data.train.labels.tolist() == Y[train].tolist() and data.train_names == tuple(map(str, train))


def test_scaling_of_new_rows_is_that_of_the_training_rows(tmp_path):
    data = load(npz(tmp_path / "mine.npz", y=Y, x_test=X[:4], y_test=Y[:4]))
    assert data.scaling is not None
    assert np.array_equal(data.scaling(X[:4]), data.test.images.numpy())


def test_candidates_may_be_left_to_a_generator_but_not_without_labels(tmp_path):
    np.savez(tmp_path / "plain.npz", x=X, y=Y)
    data = load(tmp_path / "plain.npz")
    assert data.candidates is None and data.num_classes == CLASSES
    made = build(data, "uniform", 0.5, 0, tmp_path / "sets")
    assert made.matrix[torch.arange(len(data.train)), data.train.labels].all()
    with pytest.raises(DataError, match=r"has no candidate sets; add them, or generate them with --set data.generator"):
        build(data, "own", 0.5, 0, tmp_path / "sets")
    with pytest.raises(DataError, match="makes candidates from true labels, which 20 training rows lack"):
        build(load(npz(tmp_path / "mine.npz")), "uniform", 0.5, 0, tmp_path / "sets")


def test_statistics_of_sets_count_confusions_where_the_truth_is_known():
    labels = torch.from_numpy(np.where(np.arange(ROWS) < 6, Y, UNKNOWN))
    found = statistics(torch.from_numpy(SETS), labels)
    assert found.average_size == 2 and found.without_truth == 0 and found.confusions[0].count == 2
    assert statistics(torch.from_numpy(SETS), torch.full((ROWS,), UNKNOWN)).confusions == ()


def test_a_csv_and_an_npz_of_the_same_rows_are_the_same_data(tmp_path):
    table = frame(label=np.array(["ant", "bee", "cow"])[Y], id=[f"r{k}" for k in range(ROWS)])
    table.to_csv(tmp_path / "mine.csv", index=False)
    data, other = load(tmp_path / "mine.csv", 1), load(npz(tmp_path / "mine.npz", y=Y), 1)
    assert data.class_names == ("ant", "bee", "cow") and data.columns == ("f0", "f1", "f2", "f3")
    assert torch.allclose(data.train.images, other.train.images, atol=1e-6)
    assert torch.equal(data.train.labels, other.train.labels) and torch.equal(data.candidates, other.candidates)
    assert data.train_names == tuple(f"r{k}" for k in other.train_names)
    assert is_own(tmp_path / "mine.csv") and name_of(tmp_path / "mine.csv") == "mine"


def test_a_parquet_file_is_read_as_its_csv_or_says_what_is_missing(tmp_path):
    path = tmp_path / "mine.parquet"
    try:
        frame().assign(candidates=[[0, 1]] * ROWS).to_parquet(path)
    except ImportError:
        path.write_bytes(b"PAR1")
        with pytest.raises(DataError, match="needs the package pyarrow"):
            load(path)
        return
    assert load(path).class_names == ("0", "1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="candidates"), "no column `candidates`"),
        (lambda f: f.assign(colour="red"), "column `colour` is not numeric .row 1 has 'red'"),
        (lambda f: f.assign(f1=[*map(str, X[:7, 1]), "n/k", *map(str, X[8:, 1])]), r"not numeric .row 8 has 'n/k'"),
        (lambda f: f.assign(f1="5,1"), r"`f1` is not numeric .row 1 has '5,1'.; .* decimal point"),
        (
            lambda f: f.assign(f1=[np.nan, *X[1:, 1]]),
            "1 feature value NaN or infinite, the first in row 1, column `f1`",
        ),
        (lambda f: f.assign(candidates=["", *f.candidates[1:]]), "1 row without any candidate, the first is row 1"),
        (lambda f: f.assign(label="dog"), "16 rows whose candidates do not contain the true label, the first is row"),
        (lambda f: f.assign(split="both"), "row 1: the split is 'both'"),
        (lambda f: f.assign(id="same"), "'same' is there twice, in row 1 and in row 2"),
        (lambda f: f[["candidates"]], "no feature column"),
        (lambda f: f.iloc[:1], "1 row; two or more"),
    ],
)
def test_a_bad_table_is_one_sentence(tmp_path, change, message):
    change(frame()).to_csv(tmp_path / "mine.csv", index=False)
    with pytest.raises(DataError, match=message) as error:
        load(tmp_path / "mine.csv", test_share=0.2)
    assert "mine.csv" in str(error.value)


def test_a_class_outside_the_given_ones_is_named_with_its_row(tmp_path):
    with pytest.raises(DataError, match=r"row 2 names the class 'cow', which is not among the 2 given"):
        rows_of("mine", frame(), X, "ant|bee")
    rows = rows_of("mine", frame(), X, "cow|ant|bee|dog")
    assert rows.classes == ("cow", "ant", "bee", "dog") and rows.candidates.shape == (ROWS, 4)


@pytest.mark.parametrize("sizes", [[(32, 32)] * 4, [(20, 32), (32, 20), (9, 9), (64, 30)]])
def test_a_folder_of_small_images_gets_the_network_of_small_images(tmp_path, sizes):
    data = load(folder(tmp_path / "small", "file,candidates\n" + "".join(f"{k}.png,a|b\n" for k in range(4)), sizes))
    assert data.backbone == "resnet18-cifar" and data.recipe is CIFAR and len(data.test) == 0
    assert data.train_names == tuple(f"{k}.png" for k in range(4))
    images, valid = data.train.batch(torch.tensor([3]))
    assert images[0, :, 0, 0].tolist() == [150, 9, 9]
    assert (valid is None) == (len(set(sizes)) == 1) and (valid is None or valid[0].tolist() == [30, 64])
    assert not list(tmp_path.glob("cache*"))  # nothing is stored


@pytest.mark.parametrize(("delimiter", "encoding"), [(";", "utf-8"), ("\t", "utf-8-sig")])
def test_a_csv_may_be_separated_by_semicolons_or_tabs(tmp_path, delimiter, encoding):
    table = frame(candidates=["kühl|warm"] * ROWS)
    table.to_csv(tmp_path / "mine.csv", index=False, sep=delimiter, encoding=encoding)
    table.to_csv(tmp_path / "other.csv", index=False)
    data, other = load(tmp_path / "mine.csv"), load(tmp_path / "other.csv")
    assert data.class_names == other.class_names == ("kühl", "warm") and data.columns == other.columns
    assert torch.equal(data.train.images, other.train.images)


def test_a_csv_that_is_not_utf_8_is_refused_with_advice(tmp_path):
    frame(candidates=["kühl|warm"] * ROWS).to_csv(tmp_path / "mine.csv", index=False, encoding="latin-1")
    with pytest.raises(DataError, match=r"mine\.csv is not UTF-8 text; save it as UTF-8"):
        load(tmp_path / "mine.csv")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("f0,f1,candidates\n", "has no row"),
        ('a,b\n"1,2\n', "cannot be read"),
        (None, "does not exist"),
    ],
)
def test_a_table_without_rows_is_one_sentence(tmp_path, text, problem):
    if text is not None:
        (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(DataError, match=problem):
        load(tmp_path / "mine.csv")


def test_own_images_in_an_npz(tmp_path):
    for shape in ((20, 3, 32, 32), (20, 32, 32, 3), (20, 32, 32)):
        data = load(npz(tmp_path / "mine.npz", x=np.full(shape, 9, np.uint8), y=Y))
        assert data.train.images.shape == (16, 3, 32, 32) and data.recipe is CIFAR and (data.train.images == 9).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None}, "has no array `x`"),
        ({"y": None, "candidates": None}, "neither `candidates` nor `y`"),
        ({"candidates": np.ones((19, 3))}, r"candidates have shape \(19, 3\); \(20, 3\) is needed"),
        ({"candidates": np.full((20, 3), 0.5)}, "`candidates` is not a matrix"),
        ({"candidates": np.eye(3)[(np.arange(20) + 1) % 3]}, "20 rows whose candidates do not contain the true label"),
        ({"y": np.arange(20)}, "outside 0 … 2"),
        ({"y": np.zeros(20)}, "whole numbers"),
        ({"x": np.full((20, 2), np.inf)}, "`x`: 40 feature values NaN or infinite"),
        ({"x": np.zeros((20, 3, 8, 8))}, "`x` has shape"),
        ({"y_test": np.array([0, 1])}, "only one of `x_test` and `y_test`"),
        ({"class_names": np.array(["a", "b", "a"])}, "has a name twice"),
        ({"class_names": np.array(["a", "b"])}, "2 names for 3 classes"),
        ({"x_test": np.ones((2, 5)), "y_test": np.array([0, 1])}, "one of `x_test`"),
        ({"x": np.array([{}], dtype=object)}, "not a readable .npz file of plain arrays"),
    ],
)
def test_bad_own_files_are_told_with_their_name(tmp_path, changes, message):
    with pytest.raises(DataError, match=message) as error:
        load(npz(tmp_path / "mine.npz", **({"y": Y} | changes)))
    assert "mine.npz" in str(error.value)


def test_own_folder_of_images(tmp_path):
    text = "file,label,candidates,split\n0.png,cat,cat|dog,train\n1.png,dog,dog,train\n2.png,cow,cat|cow,train\n3.png,cat,,test\n"
    data = load(folder(tmp_path / "mine", text))
    assert data.class_names == ("cat", "cow", "dog") and data.train.labels.tolist() == [0, 2, 1]
    assert data.candidates.int().tolist() == [[1, 0, 1], [0, 0, 1], [1, 1, 0]]
    images, _ = data.test.batch(torch.tensor([0]))
    assert images.shape == (1, 3, 256, 341) and abs(int(images[0, 0, 0, 0]) - 150) <= 1


def test_own_folder_without_a_split_column_is_held_out_by_seed(tmp_path):
    text = "file,label,candidates\n" + "".join(f"{i}.png,{10 - i},10|9|8|7\n" for i in range(4))
    path = folder(tmp_path / "mine", text)
    data = load(path, test_share=0.25)
    assert data.class_names == ("7", "8", "9", "10") and (len(data.train), len(data.test)) == (3, 1)
    held = {int(load(path, seed, test_share=0.25).test.labels[0]) for seed in range(20)}
    assert len(held) > 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file\n0.png\n1.png\n", "no column `candidates`"),
        ("label,candidates\na,a\n", "no column `file`"),
        ("file,label,candidates\n0.png,a,a\n9.png,b,b\n", "row 2 names .*9.png, which does not exist"),
        (
            "file,label,candidates,split\n0.png,a,b,train\n1.png,b,b,test\n",
            "1 row whose candidates do not contain the true label, the first is row 1 .0.png.",
        ),
        (
            "file,label,candidates,split\n0.png,a,a,train\n1.png,b,b,val\n",
            r"row 2 \(1.png\): the split is 'val'",
        ),
        ("file,label,candidates,split\n0.png,a,a,test\n1.png,b,b,test\n", "no row has the split 'train'"),
        ("file,label,candidates\n0.png,a,a\n0.png,b,b\n", "'0.png' is there twice, in row 1 and in row 2"),
        ("file,candidates\n0.png,a|b\n1.png,\n", r"1 row without any candidate, the first is row 2 \(1.png\)"),
        ("file,candidates\n0.png,a\n1.png,a\n", "names one class"),
        ("file,label,candidates\n0.png,a,a\n1.png\n", "row 2 does not have 3 fields"),
        ("file,label,candidates\n0.png,a,a\n", "fewer than two"),
    ],
)
def test_a_bad_table_of_candidates_is_told_with_the_line(tmp_path, text, message):
    with pytest.raises(DataError, match=message) as error:
        load(folder(tmp_path / "mine", text))
    assert "candidates.csv" in str(error.value)
