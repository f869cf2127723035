"""The estimator: same numbers as the command line, any form of rows and candidates, scikit-learn's own checks."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from benchmark.estimator import PartialLabelClassifier, candidates_of, load
from tests.support.methods import every_method

CLASSES = 3
QUICK = {"epochs": 2, "batch": 16}


def rows(count: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, count)
    matrix = rng.random((count, CLASSES)) < 0.4
    matrix[np.arange(count), y] = True
    return rng.normal(size=(count, 5)) + 4 * np.eye(CLASSES, 5)[y], matrix, y


X, MATRIX, Y = rows()


def fitted(method: str = "proden", **parameters) -> PartialLabelClassifier:
    return PartialLabelClassifier(method, **QUICK | parameters).fit(X, MATRIX)


@pytest.mark.parametrize("method", [one for one in every_method() if one.values[0] != "supervised"])
def test_every_method_fits_predicts_and_disambiguates(method):
    model = fitted(method)
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (60, CLASSES) and np.allclose(probabilities.sum(1), 1)
    assert np.isfinite(probabilities).all() and set(model.predict(X)) <= {0, 1, 2}
    labels = model.disambiguate()
    assert labels.shape == (60,) and np.allclose(model.belief_.sum(1), 1, atol=5e-3)


def test_a_longer_training_learns_and_finds_the_labels():
    model = fitted(epochs=20)
    assert model.score(X, Y) > 0.9 and (model.disambiguate() == Y).mean() > 0.9
    assert set(model.measures_) == {"covering_rate", "approximated_accuracy"}


def test_equal_arguments_give_equal_numbers_and_leave_the_callers_generators_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    first, second = fitted("pico").predict_proba(X), fitted("pico").predict_proba(X)
    assert np.array_equal(first, second) and torch.get_num_threads() == threads
    assert torch.equal(torch.rand(1), expected)
    assert not np.array_equal(first, fitted("pico", random_state=1).predict_proba(X))


NAMES = np.array(["ant", "bee", "cow"])
FORMS = {
    "matrix": (MATRIX, (0, 1, 2)),
    "matrix of numbers": (MATRIX.astype(float), (0, 1, 2)),
    "tensor": (torch.from_numpy(MATRIX), (0, 1, 2)),
    "frame": (pd.DataFrame(MATRIX.astype(int), columns=NAMES), ("ant", "bee", "cow")),
    "lists": ([row.nonzero()[0].tolist() for row in MATRIX], (0, 1, 2)),
    "sets of names": ([set(NAMES[row]) for row in MATRIX], ("ant", "bee", "cow")),
    "texts": (["|".join(NAMES[row]) for row in MATRIX], ("ant", "bee", "cow")),
    "series": (pd.Series(["|".join(NAMES[row]) for row in MATRIX]), ("ant", "bee", "cow")),
}


@pytest.mark.parametrize("form", FORMS)
def test_candidates_in_any_form_are_the_same_candidates(form):
    given, names = FORMS[form]
    found, matrix = candidates_of(given)
    assert tuple(found.tolist()) == names and np.array_equal(matrix, MATRIX)


def test_ordinary_labels_are_sets_of_one_candidate():
    classes, matrix = candidates_of(NAMES[Y])
    assert classes.tolist() == NAMES.tolist() and np.array_equal(matrix, np.eye(CLASSES, dtype=bool)[Y])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((60, 3)), "row 1 has no candidate"),
        ([[0, 1]] * 59 + [[]], "row 60 has no candidate"),
        (["ant|bee"] * 59 + ["dog"], "name 'dog', which is not among the 3 classes"),
        (np.full((60, 3), 0.5), "0 and 1 only"),
        (MATRIX[:50], "50 candidate sets for 60 rows"),
        (None, "requires y"),
    ],
)
def test_bad_candidates_are_one_sentence(given, message):
    classes = NAMES if isinstance(given, list) and isinstance(given[0], str) else None
    with pytest.raises(ValueError, match=message):
        PartialLabelClassifier("proden", **QUICK, classes=classes).fit(X, given)


def test_rows_as_frame_tensor_and_array_are_the_same_rows():
    expected = fitted().predict_proba(X)
    frame = pd.DataFrame(X, columns=[f"f{k}" for k in range(5)])
    model = PartialLabelClassifier("proden", **QUICK).fit(frame, MATRIX)
    assert np.array_equal(model.predict_proba(frame), expected) and model.feature_names_in_.tolist() == list(frame)
    assert np.array_equal(model.predict_proba(frame[frame.columns[::-1]]), expected)  # by name
    with pytest.raises(ValueError, match="no column `f1`"):
        model.predict(frame.drop(columns="f1"))
    tensor = PartialLabelClassifier("proden", **QUICK).fit(torch.from_numpy(X), MATRIX)
    assert np.array_equal(tensor.predict_proba(torch.from_numpy(X)), expected)
    with pytest.raises(ValueError, match="features"):
        model.predict(X[:, :4])


def test_images_of_any_layout(tmp_path):
    rng = np.random.default_rng(1)
    images = (rng.integers(0, 90, (60, 12, 12, 3)) + 160 * np.eye(CLASSES, dtype=int)[Y][:, None, None]).astype(
        np.uint8
    )
    how = {"network": "small-cnn", **QUICK}
    model = PartialLabelClassifier("proden", **how).fit(images, MATRIX)
    expected = model.predict_proba(images)
    planes = PartialLabelClassifier("proden", **how).fit(images.transpose(0, 3, 1, 2), MATRIX)
    assert np.array_equal(planes.predict_proba(images.transpose(0, 3, 1, 2)), expected)
    model.save(tmp_path / "m")
    assert np.array_equal(load(tmp_path / "m").predict_proba(images), expected)
    with pytest.raises(ValueError, match="the model takes images"):
        model.predict(X)
    with pytest.raises(ValueError, match="the model takes 5 features"):
        fitted().predict(images)


def test_saved_and_pickled_models_predict_the_same(tmp_path):
    model = PartialLabelClassifier("cel", **QUICK, settings={"cel.embedding_length": 16}).fit(X, FORMS["texts"][0])
    model.save(tmp_path / "m")
    for other in (load(tmp_path / "m"), pickle.loads(pickle.dumps(model))):
        assert np.array_equal(other.predict_proba(X), model.predict_proba(X))
        assert other.predict(X).tolist() == model.predict(X).tolist()
        assert other.disambiguate().tolist() == model.disambiguate().tolist()
        assert other.get_params()["settings"] == {"cel.embedding_length": 16}
    numbers = fitted()
    numbers.save(tmp_path / "n")
    assert load(tmp_path / "n").predict(X).tolist() == numbers.predict(X).tolist()
    with pytest.raises(ValueError, match=r"holds no model\.json"):
        load(tmp_path)


def test_scikit_learn_can_clone_and_cross_validate():
    model = PartialLabelClassifier("average", **QUICK)
    copy = clone(model).set_params(lr=0.1)
    assert copy.get_params()["lr"] == 0.1 and model.lr is None
    by_sets = cross_val_score(model, X, MATRIX, cv=3)
    assert by_sets.shape == (3,) and (by_sets > 0).all()
    assert fitted(epochs=20).score(X, MATRIX) >= fitted(epochs=20).score(X, Y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "supervised"}, "supervised trains on true labels"),
        ({"method": "prodenn"}, "Did you mean 'proden'"),
        ({"lr": -1.0}, "train.lr: -1.0"),
        ({"settings": {"proden.alpha": 1}}, "proden has no 'alpha'"),
        ({"settings": {"train.epoch": 1}}, "train has no 'epoch'"),
        ({"network": "mlpp"}, "Unknown backbone 'mlpp'"),
        ({"random_state": -1}, "random_state is -1"),
        ({"random_state": 2**32}, "from 0 to 4294967295"),
        ({"lr": 1e30}, "The training diverged: .*; choose a smaller lr"),
    ],
)
def test_wrong_parameters_are_one_sentence(parameters, message):
    with pytest.raises(ValueError, match=message):
        fitted(**{"method": "proden"} | parameters)


def test_scikit_learns_checks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PartialLabelClassifier("proden", epochs=10, batch=16, network="linear")
        found = check_estimator(model, on_fail=None, on_skip=None)
    assert len(found) > 50
    assert {check["check_name"] for check in found if check["status"] == "skipped"} <= {"check_array_api_input"}
    assert [check["check_name"] for check in found if check["status"] not in ("passed", "skipped")] == []


def test_the_command_line_and_the_estimator_give_the_same_numbers(tmp_path: Path, capsys):
    from benchmark.cli import main as cli

    np.savez(tmp_path / "mine.npz", x=X, candidates=MATRIX)
    np.savez(tmp_path / "new.npz", x=X + 0.5)
    words = ["fit", str(tmp_path / "mine.npz"), "--method", "pop", "--epochs", "3", "--results", str(tmp_path / "r")]
    assert cli.main([*words, "--device", "cpu", "--out", str(tmp_path / "model")]) == 0
    model = PartialLabelClassifier("pop", epochs=3).fit(X, MATRIX)
    kept = load(tmp_path / "model")
    assert np.array_equal(kept.predict_proba(X + 0.5), model.predict_proba(X + 0.5))
    assert np.array_equal(kept.belief_, model.belief_)
    out = tmp_path / "predictions.csv"
    assert cli.main(["predict", str(tmp_path / "model"), str(tmp_path / "new.npz"), "--out", str(out)]) == 0
    table = pd.read_csv(out)
    assert np.allclose(table[["0", "1", "2"]].to_numpy(), model.predict_proba(X + 0.5), atol=1e-6)
    assert table["prediction"].tolist() == model.predict(X + 0.5).tolist()
    capsys.readouterr()
