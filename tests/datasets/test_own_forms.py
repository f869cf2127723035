"""Own data as people have them: without true labels, in tables, in folders of small images."""

from __future__ import annotations

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
    np.savez(path, **{"x": X, "candidates": SETS} | arrays)
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


def test_broken_tables_and_missing_files_are_told(tmp_path):
    (tmp_path / "mine.csv").write_text('a,b\n"1,2\n')
    for name in ("mine.csv", "none.csv"):
        with pytest.raises(DataError, match=r"cannot be read as a table|no column|does not exist"):
            load(tmp_path / name)


@pytest.mark.parametrize("sizes", [[(32, 32)] * 4, [(20, 32), (32, 20), (9, 9), (64, 30)]])
def test_a_folder_of_small_images_gets_the_network_of_small_images(tmp_path, sizes):
    folder = tmp_path / "small"
    folder.mkdir()
    for k, size in enumerate(sizes):
        Image.new("RGB", size, (50 * k, 9, 9)).save(folder / f"{k}.png")
    lines = "".join(f"{k}.png,a|b\n" for k in range(4))
    (folder / "candidates.csv").write_text("file,candidates\n" + lines)
    data = load(folder)
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


def test_decimal_commas_are_refused_with_advice(tmp_path):
    frame(f1="5,1").to_csv(tmp_path / "mine.csv", index=False, sep=";")
    with pytest.raises(DataError, match=r"`f1` is not numeric \(row 1 has '5,1'\); .* decimal point"):
        load(tmp_path / "mine.csv")


def test_the_text_among_numbers_is_the_one_that_is_shown(tmp_path):
    frame(f1=[*map(str, X[:7, 1]), "n/k", *map(str, X[8:, 1])]).to_csv(tmp_path / "mine.csv", index=False)
    with pytest.raises(DataError, match=r"`f1` is not numeric \(row 8 has 'n/k'\)"):
        load(tmp_path / "mine.csv")


@pytest.mark.parametrize(("text", "problem"), [("", "is empty"), ("f0,f1,candidates\n", "has no row")])
def test_a_table_without_rows_is_one_sentence(tmp_path, text, problem):
    (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(DataError, match=problem):
        load(tmp_path / "mine.csv")


def test_many_ids_are_checked_at_once():
    rows = 200_000  # minutes if every id were looked for among all others
    table = pd.DataFrame({"candidates": "ant|bee", "id": range(rows)})
    table.loc[rows - 1, "id"] = 5
    with pytest.raises(DataError, match="'5' is there twice, in row 6 and in row 200000"):
        rows_of("mine", table, X)
