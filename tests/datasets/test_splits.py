"""Tables: forms of files, splits, scalings and class filters; ours, and the published splits row by row."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import torch

from benchmark.analysis import published
from datasets import registry, tabular
from datasets.base import DataError, z_score
from datasets.splits import SPLITS, Options, rows_of
from datasets.views.features import feature_views
from datasets.views.recipes import Noise
from tests.conftest import ROOT

VECTORS = json.loads(Path(__file__).with_name("f25_splits.json").read_text())["sets"]
DATA = Path(os.environ.get("CANDID_TABLES", ROOT / "data"))  # a data folder that holds the three .mat files


SMALL: dict[str, Any] = {"n": 40, "q": 4}


def write(root: Path, n: int = 200, d: int = 5, q: int = 6, file: str = "lost/lost.mat", **changes: Any) -> Path:
    """A table in which class q − 1 has no example, class q − 2 a single one, and column 2 is constant.

    A change is a function of the variable that it replaces; None leaves the variable out.
    """
    rng = np.random.default_rng(0)
    labels = rng.integers(0, q - 2, n)
    labels[7] = q - 2
    candidates = rng.random((n, q)) < 0.3
    candidates[np.arange(n), labels] = True
    data = rng.normal(3.0, 2.0, (n, d))
    data[:, 2] = 4.0
    content = {
        "data": data,
        "partial_target": scipy.sparse.csc_matrix(candidates.T * 1.0),
        "target": np.eye(q)[labels].T,
    }
    content |= {key: change(content.get(key)) for key, change in changes.items()}
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(path, {key: value for key, value in content.items() if value is not None})
    return path


def load(root: Path, seed: int = 0, **settings: object):
    return registry.get("lost").load(root, seed, check_sizes=False, **settings)


@pytest.mark.parametrize("name", sorted(VECTORS))
def test_the_splits_of_fuchs_and_kalinke_come_out_row_by_row(name: str) -> None:
    if registry.get(name).find(DATA).status != "found":
        pytest.skip(f"{name} is not in {DATA}; set CANDID_TABLES to a data folder that has it")
    protocol = {"split": "random-80", "classes": "frequent", "scaling": "min-max", "scaling_from": "all"}
    for seed, parts in VECTORS[name].items():
        data = registry.get(name).load(DATA, int(seed), **protocol)
        for part, (rows, digest) in parts.items():
            labels = getattr(data, part).labels.numpy().astype(np.uint8)
            assert (len(labels), hashlib.sha256(labels.tobytes()).hexdigest()) == (rows, digest), (seed, part)


# Rows of the five test folds: the released accuracies of Fuchs and Klein are fractions of these numbers.
FOLDS = {
    "lost": (225, 225, 224, 224, 224),
    "msrcv2": (352, 352, 352, 351, 351),
    "birdsong": (1000, 1000, 1000, 999, 999),
}


@pytest.mark.parametrize("name", sorted(FOLDS))
def test_the_folds_of_fuchs_and_klein_have_the_released_sizes(name: str) -> None:
    if registry.get(name).find(DATA).status != "found":
        pytest.skip(f"{name} is not in {DATA}; set CANDID_TABLES to a data folder that has it")
    protocol = {"split": "stratified", "classes": "present", "scaling": "min-max"}
    assert tuple(len(registry.get(name).load(DATA, seed, **protocol).test) for seed in range(5)) == FOLDS[name]
    fractions = [row for row in published.numbers("k25").to_dict("records") if row["values"]]
    for row in fractions:
        if row["dataset"] == registry.get(name).title:
            for value, rows in zip(map(float, row["values"].split()), FOLDS[name], strict=True):
                assert abs(round(value / 100 * rows) / rows * 100 - value) < 0.006, (row["method"], value)


@pytest.mark.parametrize("name", ["ten-fold", "k-fold", "stratified", "stored"])
def test_folds_hold_every_row_once(name: str) -> None:
    labels = np.random.default_rng(1).integers(0, 4, 103)
    stored = tuple(np.array_split(np.arange(103), 5))
    folds = [
        rows_of("x", name, labels, seed, Options(file_folds=stored)) for seed in range(10 if name == "ten-fold" else 5)
    ]
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(103))
    assert all(not set(train) & set(test) and len(train) + len(test) == 103 for train, test in folds)
    if name == "ten-fold":  # from seed 10 on another shuffle is divided
        assert sorted(rows_of("x", name, labels, 10, Options())[1]) != sorted(folds[0][1])


def test_stratified_folds_are_scikit_learns_with_generator_42() -> None:
    labels = np.repeat([0, 1, 2], [50, 30, 2])
    test = rows_of("x", "stratified", labels, 0, Options())[1]
    assert np.bincount(labels[test]).tolist()[:2] == [10, 6]
    # Recorded with scikit-learn 1.9: the folds of a release must not move.
    assert test.tolist()[:6] == FIRST_STRATIFIED
    assert rows_of("x", "stratified", labels, 5, Options())[1].tolist() != test.tolist()


FIRST_STRATIFIED = [11, 13, 14, 15, 20, 25]


def test_eighty_percent_are_a_multiple_of_16_and_the_seed_decides() -> None:
    labels = np.zeros(203, dtype=int)
    train, test = rows_of("x", "random-80", labels, 0, Options())
    assert len(train) == 160 and sorted([*train, *test]) == list(range(203))
    assert rows_of("x", "random-80", labels, 1, Options())[0].tolist() != train.tolist()


def test_the_fixed_split_is_the_same_for_every_seed_and_leaves_validation_rows_out() -> None:
    labels = np.zeros(1122, dtype=int)  # Lost: the paper counts 898 rows of training and validation, 224 of test
    parts = [rows_of("x", "fixed", labels, seed, Options(validation_share=0.2)) for seed in (0, 3)]
    assert [len(part) for part in parts[0]] == [674, 224]
    assert all(np.array_equal(a, b) for a, b in zip(*parts, strict=True))


def test_stored_folds_are_read_from_the_file(tmp_path: Path) -> None:
    te = np.empty((1, 5), dtype=object)
    for k, rows in enumerate(np.array_split(np.arange(1, 201), 5)):
        te[0, k] = rows[None]
    write(tmp_path, te=lambda _: te)
    data = load(tmp_path, 1, split="stored")
    assert (len(data.train), len(data.test)) == (160, 40)
    write(tmp_path)
    with pytest.raises(DataError, match=r"lost: the split stored cannot be made: the file has no folds .*k-fold\."):
        load(tmp_path, split="stored")


def test_class_filters_keep_what_they_say(tmp_path: Path) -> None:
    write(tmp_path)
    everything, present, frequent = (load(tmp_path, classes=rule) for rule in ("all", "present", "frequent"))
    assert (everything.num_classes, present.num_classes, frequent.num_classes) == (6, 5, 4)
    assert present.class_names == tuple(f"class {k}" for k in range(1, 6))
    assert present.candidates is not None and present.candidates.shape[1] == 5
    assert len(present.train) + len(present.test) == 200  # the only class left out has no row
    rows = len(frequent.train) + len(frequent.test)
    assert rows < 200 and any("left out" in note for note in frequent.notes)
    assert int(frequent.train.labels.max()) < 4


def test_a_filter_that_leaves_one_class_is_one_sentence(tmp_path: Path) -> None:
    n = 40
    target = np.zeros((3, n))
    target[0] = 1
    path = tmp_path / "lost" / "lost.mat"
    path.parent.mkdir()
    scipy.io.savemat(
        path, {"data": np.random.default_rng(0).normal(size=(n, 2)), "partial_target": target, "target": target}
    )
    with pytest.raises(DataError, match=r"lost\.mat: classes=present leaves 1 with examples; two classes are needed\."):
        load(tmp_path, classes="present")


def test_scalings_are_fitted_where_they_say(tmp_path: Path) -> None:
    write(tmp_path)
    fitted = load(tmp_path, scaling="min-max")
    low, high = fitted.train.images.amin(0), fitted.train.images.amax(0)
    assert torch.allclose(low, torch.zeros(4)) and torch.allclose(
        high, torch.ones(4)
    )  # the constant column is left out
    whole = load(tmp_path, scaling="min-max", scaling_from="all")
    both = torch.cat((whole.train.images, whole.test.images))
    assert torch.allclose(both.amin(0), torch.zeros(4)) and torch.allclose(both.amax(0), torch.ones(4))
    assert not torch.equal(whole.train.images, fitted.train.images)
    z = load(tmp_path, scaling_from="all")
    both = torch.cat((z.train.images, z.test.images))
    assert both.mean(0).abs().max() < 1e-6 and not z.train.images[:, 2].any()
    raw = load(tmp_path, scaling="none")
    assert float(raw.train.images[0, 2]) == 4.0


def test_the_strong_view_follows_the_settings(tmp_path: Path) -> None:
    write(tmp_path)
    assert load(tmp_path).noise == Noise(0.1, 0.2)
    x, rows = torch.zeros(50, 8), torch.arange(50)

    def strong(epoch: int, noise: Noise) -> torch.Tensor:
        return feature_views(x, "strong", seed=3, epoch=epoch, index=rows, strong=noise)

    assert torch.equal(strong(1, Noise(0.0, 0.0)), x)
    wide = strong(1, Noise(1.0, 0.0))
    assert 0.85 < float(wide.std()) < 1.15 and not torch.equal(wide, strong(2, Noise(1.0, 0.0)))
    assert torch.equal(strong(1, Noise(1.0, 0.0, True)), strong(2, Noise(1.0, 0.0, True)))
    default = feature_views(x + 1, "strong", seed=3, epoch=1, index=rows)
    assert torch.equal(default, feature_views(x + 1, "strong", seed=3, epoch=1, index=rows, strong=Noise(0.1, 0.2)))


def test_another_copy_of_a_known_set_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path)
    data, candidates, labels, _ = tabular.orient(path)
    known = (tabular.content_digest(candidates, labels), tabular.content_digest(data))
    table = tabular.Table("lost", "Lost", 200, 5, 6, ("lost",), True, True, *known)
    assert not tabular.load(table, tmp_path).notes
    content = {key: value for key, value in scipy.io.loadmat(path).items() if key[0] != "_"}
    scipy.io.savemat(path, content | {"data": -2 * content["data"]})
    (note,) = tabular.load(table, tmp_path, split="stratified").notes
    assert "another scale or sign of columns" in note
    order = np.random.default_rng(5).permutation(200)
    turned = {key: value[:, order] for key, value in content.items() if key != "data"}
    scipy.io.savemat(path, turned | {"data": content["data"][order]})
    with pytest.raises(
        DataError, match=r"another order of rows than the known copy, so this split would not be the pub"
    ):
        tabular.load(table, tmp_path, split="random-80")
    assert any("another order of rows" in note for note in tabular.load(table, tmp_path).notes)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"split": "thirds"}, "the split 'thirds' is unknown; it is 'ten-fold' or 'k-fold'"),
        ({"split": "k-fold", "folds": 1}, "at least 2 are needed"),
        ({"split": "k-fold", "folds": 201}, "201 folds of 200 rows would be empty"),
        ({"test_share": 0.5, "validation_share": 0.5}, "leave no training rows"),
        ({"split": "stratified", "folds": 150}, "the split stratified cannot be made: n_splits=150 cannot be greater"),
    ],
)
def test_a_split_that_cannot_be_made_is_one_sentence(tmp_path: Path, settings: dict[str, Any], sentence: str) -> None:
    write(tmp_path)
    with pytest.raises(DataError, match=sentence):
        load(tmp_path, **settings)


def test_too_few_rows_for_a_recipe_are_one_sentence() -> None:
    with pytest.raises(
        DataError, match="the split random-80 leaves 0 training and 15 test rows of 15; the set is too sm"
    ):
        rows_of("lost", "random-80", np.zeros(15, dtype=int), 0, Options())
    assert all(recipe.sentence for recipe in SPLITS.values())


# Forms of files -----------------------------------------------------------------------------------------------------


def test_features_are_scaled_on_training_rows_only_and_constant_columns_are_safe():
    rng = np.random.default_rng(0)
    train, test = rng.normal(5, 3, (50, 3)), rng.normal(9, 3, (10, 3))
    train[:, 1] = test[:, 1] = 0.1 + 0.2
    test[:, 2] += 100
    scaled, scaled_test = z_score(train, test)
    assert np.allclose(scaled.mean(0), 0, atol=1e-6) and np.allclose(scaled.std(0), [1, 0, 1], atol=1e-5)
    assert np.allclose(scaled_test[:, 2], (test[:, 2] - train[:, 2].mean()) / train[:, 2].std(), rtol=1e-5)
    assert not scaled_test[:, 1].any() and scaled.dtype == np.float32


def test_transposed_dense_and_label_vector_files_read_the_same(tmp_path):
    write(tmp_path / "a", **SMALL)
    write(
        tmp_path / "b",
        **SMALL,
        file="realworld/Lost.mat",
        data=lambda x: scipy.sparse.csc_matrix(x.T),
        partial_target=lambda p: p.T.toarray() * 2 - 1,
        target=lambda t: t.argmax(0)[:, None] + 1,
    )
    plain, turned = (load(tmp_path / k) for k in "ab")
    assert torch.equal(plain.train.images, turned.train.images) and torch.equal(plain.candidates, turned.candidates)
    assert torch.equal(plain.test.labels, turned.test.labels)
    assert plain.notes == () and "`data` was stored d×n" in turned.notes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"data": lambda x: np.where(np.arange(x.size).reshape(x.shape) == 7, np.nan, x)},
            r"lost\.mat: 1 feature value NaN or infinite, the first in row 2, column 3",
        ),
        ({"data": lambda x: x[:-1]}, r"lost\.mat: `data` \(39, 5\).* the same number of rows"),
        ({"data": lambda x: np.array([["a"], ["b"]], dtype=object)}, r"lost\.mat: `data` is not a numeric matrix"),
        ({"target": lambda t: t[:3]}, r"lost\.mat: .*rows? of `target` without exactly one|lost\.mat: .* 4 classes"),
        ({"target": lambda t: t * 0}, r"lost\.mat: 40 rows of `target` without exactly one true label"),
        ({"target": lambda t: None}, r"lost\.mat has no variable `target`"),
        ({"partial_target": lambda p: p * 0.5}, r"lost\.mat: `partial_target` contains values other than 0 and 1"),
        ({"partial_target": lambda p: p * 0}, r"lost\.mat: 40 rows without any candidate"),
        ({"partial_target": lambda p: 1 - p.toarray()}, r"lost\.mat: .*(true label|without any candidate)"),
    ],
)
def test_bad_tables_are_told_with_the_files_name(tmp_path, changes, message):
    write(tmp_path, **SMALL, **changes)
    with pytest.raises(DataError, match=message):
        load(tmp_path)


def test_rows_without_their_true_label_are_refused_or_left_out_on_request(tmp_path):
    def hide(p):
        matrix = p.toarray()
        matrix[:, 5] = 1 - scipy.io.loadmat(tmp_path / "lost" / "lost.mat")["target"][:, 5]
        return matrix

    write(tmp_path, **SMALL)
    write(tmp_path, **SMALL, partial_target=hide)
    with pytest.raises(DataError, match="1 row whose candidates do not contain the true label, the first is row 6"):
        load(tmp_path)
    data = load(tmp_path, missing_truth="drop")
    assert len(data.train) + len(data.test) == 39 and "1 row without the true label" in data.notes[0]


def test_a_table_of_other_size_is_refused_where_the_size_is_confirmed_and_noted_where_not(tmp_path):
    write(tmp_path, **SMALL)
    with pytest.raises(DataError, match=r"40 rows × 5 features, 4 classes; 1122 rows"):
        registry.get("lost").load(tmp_path)
    write(tmp_path, **SMALL, file="fgnet/FG-NET.mat")
    assert "1002 rows" in registry.get("fgnet").load(tmp_path).notes[0]
    (tmp_path / "soccer").mkdir()
    (tmp_path / "soccer" / "Soccer Player.mat").write_bytes(b"half")
    assert registry.get("soccer").find(tmp_path).status == "incomplete"
    with pytest.raises(DataError, match=r"Soccer Player\.mat is not a readable MATLAB file"):
        registry.get("soccer").load(tmp_path)
