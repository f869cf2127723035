"""`fit`, `predict`, `labels`: from files to predictions, and every way to hand in the wrong thing."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from benchmark import store, tuning
from benchmark.accuracy import COVERING_RATE
from benchmark.analysis.selection import pick, score
from benchmark.cli import data
from benchmark.cli import main as cli
from benchmark.estimator import PartialLabelClassifier, load
from benchmark.trainer.model import read_model
from tests.benchmark.test_estimator import MATRIX, NAMES, X, Y

QUICK = ("--epochs", "3", "--device", "cpu", "--quiet")


def table(**columns) -> pd.DataFrame:
    features = pd.DataFrame(X, columns=[f"f{k}" for k in range(5)])
    return features.assign(candidates=["|".join(NAMES[row]) for row in MATRIX], **columns)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table without true labels, fitted, its model in `model`."""
    folder = tmp_path_factory.mktemp("fit")
    table(id=[f"row-{k}" for k in range(60)]).to_csv(folder / "mine.csv", index=False)
    words = ["fit", str(folder / "mine.csv"), "--method", "proden", "--results", str(folder / "results"), *QUICK]
    assert cli.main([*words, "--out", str(folder / "model")]) == 0
    table().drop(columns="candidates").to_csv(folder / "new.csv", index=False)
    return folder


def call(*words: object) -> int:
    return cli.main([str(word) for word in words])


def test_the_files_of_a_model_and_their_digests(place):
    document = json.loads((place / "model" / "run.json").read_text())
    for name, digest in document["files"].items():
        assert sha256((place / "model" / name).read_bytes()).hexdigest() == digest
    assert set(document["files"]) == {"predictions.npz", "model.json", "model.safetensors", "labels.npz"}
    assert document["network"] == "mlp" and document["scored"] is False
    said = json.loads((place / "model" / "model.json").read_text())
    assert said["classes"] == ["ant", "bee", "cow"] and said["input"]["columns"] == [f"f{k}" for k in range(5)]
    assert np.allclose(said["input"]["mean"], X.mean(0)) and said["network"]["name"] == "mlp"
    assert said["method"]["name"] == "proden" and said["config"]["train"]["epochs"] == 3


def test_predictions_have_class_names_and_probabilities(place, capsys):
    assert call("predict", place / "model", place / "new.csv", "--out", place / "p.csv") == 0
    found = pd.read_csv(place / "p.csv")
    assert list(found) == ["row", "prediction", "probability", "ant", "bee", "cow"] and len(found) == 60
    assert (found["prediction"].to_numpy() == NAMES[Y]).mean() > 0.6
    assert np.allclose(found[list(NAMES)].sum(axis=1), 1, atol=1e-4)
    assert np.allclose(found[list(NAMES)].max(axis=1), found["probability"])
    capsys.readouterr()
    assert call("predict", place / "model", place / "new.csv", "--out", "-") == 0
    assert capsys.readouterr().out == (place / "p.csv").read_text()


def test_labels_of_the_training_rows(place, capsys):
    assert call("labels", place / "model", "--out", place / "l.csv") == 0
    found = pd.read_csv(place / "l.csv")
    assert found["row"].tolist() == [f"row-{k}" for k in range(60)]
    sets = [set(text.split("|")) for text in found["candidates"]]
    assert [set(NAMES[row]) for row in MATRIX] == sets
    assert all(label in allowed for label, allowed in zip(found["label"], sets, strict=True))
    outside = [said not in allowed for said, allowed in zip(found["model"], sets, strict=True)]
    assert (found["disagrees"] == "yes").tolist() == outside
    assert (found["belief"] >= found["runner_up_belief"]).all() and (found["label"] != found["runner_up"]).all()
    assert f"disagrees with the candidates of {sum(outside)} of 60 rows" in capsys.readouterr().err


def test_fitting_again_trains_nothing_and_a_run_without_its_model_is_done_again(place, tmp_path, capsys):
    words = ["fit", place / "mine.csv", "--method", "proden", "--results", place / "results", "--epochs", 3, "--device"]
    before = {p.name: p.stat().st_mtime_ns for p in (place / "results").rglob("run.json")}
    assert call(*words, "cpu") == 0
    told = capsys.readouterr().out
    assert "1 done, 0 to do" in told and "Model: " in told and "nothing is scored" in told
    assert f"the covering rate is {COVERING_RATE}" in told
    assert {p.name: p.stat().st_mtime_ns for p in (place / "results").rglob("run.json")} == before
    plain = ["run", "--profile", "own", "--datasets", place / "mine.csv", "--methods", "proden", *QUICK]
    assert call(*plain, "--results", tmp_path) == 0
    (document,) = (json.loads(p.read_text()) for p in tmp_path.rglob("run.json"))
    assert "model.safetensors" not in document["files"]
    assert call(*plain, "--results", tmp_path, "--keep-model") == 0
    (again,) = (json.loads(p.read_text()) for p in tmp_path.rglob("run.json"))
    assert again["weights_sha256"] == document["weights_sha256"] and "model.safetensors" in again["files"]
    assert again["files"]["predictions.npz"] == document["files"]["predictions.npz"]


def test_a_loaded_model_predicts_what_the_run_predicted(tmp_path):
    from benchmark import store

    np.savez(tmp_path / "mine.npz", x=X, candidates=MATRIX, x_test=X[:20] + 0.1, y_test=Y[:20])
    words = ["fit", tmp_path / "mine.npz", "--method", "cel", "--results", tmp_path / "r", *QUICK]
    assert call(*words, "--out", tmp_path / "model") == 0
    kept = store.predictions(tmp_path / "model")
    assert kept is not None
    logits = read_model(tmp_path / "model").logits(X[:20] + 0.1)
    assert np.array_equal(logits.argmax(1), kept.test_logits.argmax(1))
    assert np.abs(logits.astype(np.float16) - kept.test_logits).max() < 0.02


def test_images_from_a_folder_to_predictions(tmp_path, capsys):
    rng = np.random.default_rng(0)
    for part, count in (("train", 40), ("new", 6)):
        (tmp_path / part).mkdir()
        for k in range(count):
            pixels = rng.integers(0, 90, (14, 14, 3)) + 160 * np.eye(3, dtype=int)[k % 3]
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / part / f"{k}.png")
    lines = "".join(f"{k}.png,{k % 3}|{(k + 1) % 3}\n" for k in range(40))
    (tmp_path / "train" / "candidates.csv").write_text("file,candidates\n" + lines)
    words = ("fit", tmp_path / "train", "--method", "proden", "--results", tmp_path / "r", "--data", tmp_path / "d")
    small = ("--set", "backbone.name=small-cnn")
    assert call(*words, *QUICK, *small, "--out", tmp_path / "model") == 0
    assert "network small-cnn" in capsys.readouterr().out
    assert (
        call("predict", tmp_path / "model", tmp_path / "new", "--out", tmp_path / "p.csv", "--data", tmp_path / "d")
        == 0
    )
    assert pd.read_csv(tmp_path / "p.csv")["row"].tolist() == [f"{k}.png" for k in range(6)]


# Learning rate and weight decay chosen on held-out candidates -----------------------------------------------------------
@pytest.fixture
def tiny_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = ("train.lr=0.1,0.001", "train.weight_decay=5e-4,1e-4")
    monkeypatch.setattr(data, "FIT_GRID", grid)
    monkeypatch.setattr(tuning, "FIT_GRID", grid)
    monkeypatch.setattr(tuning, "EXTENSIONS", 0)


def test_tune_chooses_then_trains_on_all_rows(tiny_grid, tmp_path, capsys):
    np.savez(tmp_path / "mine.npz", x=X, candidates=MATRIX)
    words = ("fit", tmp_path / "mine.npz", "--tune", "--results", tmp_path / "r", "--out", tmp_path / "m", *QUICK)
    assert call(*words) == 0
    output = capsys.readouterr().out
    documents = [json.loads(path.read_text()) for path in (tmp_path / "r").rglob("run.json")]
    trials = [document for document in documents if document.get("purpose") == "tuning"]
    assert len(trials) == 12 and {document["seed"] for document in trials} == {100, 101, 102}
    (final,) = (document for document in documents if document not in trials)
    train = final["config"]["train"]
    assert (final["seed"], final["method"], train["holdout"]) == (0, "proden", 0)
    scores = {}
    for document in trials:
        key = (document["config"]["train"]["lr"], document["config"]["train"]["weight_decay"])
        scores.setdefault(key, []).append(document["summary"])
    points = sorted(scores)
    best = points[pick("one-se", [score(scores[point]) for point in points])]
    assert (train["lr"], train["weight_decay"]) == best
    (line,) = (line for line in output.splitlines() if line.startswith("→"))
    assert line.split()[1:3] == [f"{value:g}" for value in best]
    assert sum("±" in line for line in output.splitlines()) == 4 + 1  # the points and the head
    assert f"covering rate, {COVERING_RATE}" in output
    assert store.runs(tmp_path / "r")["seed"].tolist() == [0]
    model = PartialLabelClassifier(epochs=3, tune=True).fit(X, MATRIX)
    assert model.tuned_ == {"lr": best[0], "weight_decay": best[1]}
    assert np.array_equal(load(tmp_path / "m").predict_proba(X), model.predict_proba(X))
    assert model.measures_["covering_rate"] == score(scores[best]).covering_rate


def test_the_method_auto_takes_the_highest_covering_rate_of_tuned_methods(tiny_grid, tmp_path, capsys):
    np.savez(tmp_path / "mine.npz", x=X, candidates=MATRIX)
    words = (
        "fit",
        tmp_path / "mine.npz",
        "--method",
        "auto",
        "--results",
        tmp_path / "r",
        "--out",
        tmp_path / "m",
        *QUICK,
    )
    assert call(*words) == 0
    table = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("mine ")]
    assert [row[1] for row in table] == ["proden", "rc", "pop", "pico", "cc"]
    rates = {row[1]: float(row[row.index("±") - 1]) for row in table}
    best = max(rates, key=lambda name: rates[name])
    (run,) = store.runs(tmp_path / "r").to_dict("records")
    assert run["method"] == best and json.loads((tmp_path / "m" / "run.json").read_text())["method"] == best
    assert call("predict", tmp_path / "m", tmp_path / "mine.npz", "--out", tmp_path / "p.csv") == 0


def test_tune_reads_no_true_label(tiny_grid, tmp_path):
    rng, finals = np.random.default_rng(0), []
    for name, y in (("with", Y), ("without", np.full(60, -1))):
        np.savez(tmp_path / f"{name}.npz", x=X, y=y, candidates=MATRIX, x_test=X, y_test=rng.permutation(Y))
        assert call("fit", tmp_path / f"{name}.npz", "--tune", "--results", tmp_path / "r", *QUICK) == 0
        (final,) = (tmp_path / "r").glob(f"runs/{name}/*/seed0-*/run.json")
        finals.append(json.loads(final.read_text()))
    assert finals[0]["summary"]["accuracy"] != finals[1]["summary"]["accuracy"]
    assert finals[0]["weights_sha256"] == finals[1]["weights_sha256"]
    assert finals[0]["config"]["train"] == finals[1]["config"]["train"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--set", "train.lr=0.1"), "tune chooses train.lr itself"),
        (("--set", "train.holdout=0"), "train.holdout must be more than 0"),
        (("--set", "train.holdout=0.001"), "raise train.holdout"),
        (("--set", "train.holdout=0.99"), "lower train.holdout"),
    ],
)
def test_tune_with_wrong_settings_is_one_sentence_and_trains_nothing(place, tmp_path, capsys, words, problem):
    told = ("fit", place / "mine.csv", "--tune", "--quiet", "--results", tmp_path / "r", *words)
    assert problem in refusal(capsys, *told, code=2) and not (tmp_path / "r").exists()
    ((_, text),) = [words]
    name, value = text.removeprefix("train.").split("=")
    with pytest.raises(ValueError, match=problem):
        PartialLabelClassifier(tune=True, **{name: float(value)}).fit(X, MATRIX)


def test_tune_without_a_score_is_one_sentence(tiny_grid, place, tmp_path, capsys):
    words = ("fit", place / "mine.csv", "--tune", "--method", "supervised", "--results", tmp_path / "r", *QUICK)
    assert "supervised trains on true labels" in refusal(capsys, *words)


# Wrong input ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def copy(place, tmp_path) -> Path:
    shutil.copytree(place / "model", tmp_path / "model")
    return tmp_path / "model"


def refusal(capsys, *words: object, code: int = 1) -> str:
    capsys.readouterr()
    assert call(*words) == code
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1 and "Traceback" not in error
    return error


def rewrite(folder: Path, alone: bool = True, **changes) -> None:
    """Change model.json; `alone` as an estimator's folder, which has no run.json beside it."""
    document = json.loads((folder / "model.json").read_text())
    for key, value in changes.items():
        document[key] = value(document) if callable(value) else value
    (folder / "model.json").write_text(json.dumps(document))
    if alone:
        (folder / "run.json").unlink(missing_ok=True)


def test_tampered_models_are_one_sentence(copy, place, capsys):
    words = ("predict", copy, place / "new.csv", "--out", copy.parent / "p.csv")
    tensors = load_file(copy / "model.safetensors")
    whole = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert "its SHA-256 is" in refusal(capsys, *words)
    (copy / "model.safetensors").write_bytes(whole)
    rewrite(copy, alone=False, classes=["a", "b", "c"])
    assert "its SHA-256 is not the one in run.json" in refusal(capsys, *words)
    (copy / "run.json").unlink()
    name, value = next(iter(tensors.items()))
    for changed, problem in (
        ({k: v for k, v in tensors.items() if k != name}, name),
        ({**tensors, name: value[None]}, name),
        ({k: np.full_like(v, np.nan) if v.dtype.kind == "f" else v for k, v in tensors.items()}, "not finite"),
    ):
        save_file(changed, copy / "model.safetensors")
        rewrite(copy, tensors_sha256=sha256((copy / "model.safetensors").read_bytes()).hexdigest())
        assert problem in refusal(capsys, *words)
    (copy / "model.safetensors").write_bytes(b"\x80\x04.")  # a pickle
    rewrite(copy, tensors_sha256=sha256(b"\x80\x04.").hexdigest())
    assert "not a safetensors file" in refusal(capsys, *words)
    assert not (copy.parent / "p.csv").exists()


def with_train(document, **changes):
    config = document["config"]
    return config | {"train": config["train"] | changes}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"method": lambda d: d["method"] | {"name": "cel", "config": {}}}, "does not fit the method cel"),
        ({"method": lambda d: d["method"] | {"name": "nothing"}}, "Unknown method 'nothing'"),
        ({"method": lambda d: d["method"] | {"config": {"strange": 1}}}, "cannot be built"),
        ({"method": lambda d: d["method"] | {"source": "0" * 64}}, "another version of"),
        ({"network": lambda d: d["network"] | {"name": "nothing"}}, "Unknown backbone 'nothing'"),
        ({"format": 9}, "has format 9"),
        ({"classes": 3}, "damaged or not the description of a model"),
        ({"task": {}}, "damaged or not the description of a model"),
        ({"input": lambda d: d["input"] | {"mean": ["a"] * 5}}, "damaged or not the description of a model"),
        ({"input": lambda d: d["input"] | {"columns": 5}}, "damaged or not the description of a model"),
        *(
            ({"config": lambda d, change=change: with_train(d, **change)}, "damaged or not the description of a model")
            for change in ({"threads": -1}, {"threads": True}, {"threads": 10**6}, {"amp": "load"})
        ),
    ],
)
def test_a_wrong_description_is_one_sentence(copy, place, capsys, changes, problem):
    rewrite(copy, **changes)
    assert problem in refusal(capsys, "predict", copy, place / "new.csv")


def test_new_rows_that_do_not_fit_are_one_sentence(copy, place, tmp_path, capsys):
    new = pd.read_csv(place / "new.csv")
    frames = {
        "no column `f1`": new.drop(columns="f1"),
        "column `f9` that the model was not trained on": new.assign(f9=0),
        "NaN or infinite, the first in row 3": new.assign(f0=[np.nan if k == 2 else 0 for k in range(60)]),
        "`f2` is not numeric": new.assign(f2="x"),
    }
    for problem, frame in frames.items():
        frame.to_csv(tmp_path / "bad.csv", index=False)
        assert problem in refusal(capsys, "predict", copy, tmp_path / "bad.csv")
    np.savez(tmp_path / "bad.npz", x=X[:, :4])
    assert "4 features in a row, and the model takes 5" in refusal(capsys, "predict", copy, tmp_path / "bad.npz")
    np.savez(tmp_path / "bad.npz", x=np.zeros((3, 8, 8, 3), np.uint8))
    assert "holds images, and the model takes 5 features" in refusal(capsys, "predict", copy, tmp_path / "bad.npz")
    assert "the model takes 5 features" in refusal(capsys, "predict", copy, tmp_path)
    assert "none.csv does not exist" in refusal(capsys, "predict", copy, tmp_path / "none.csv")
    assert "holds no model.json" in refusal(capsys, "predict", tmp_path, place / "new.csv")
    assert "cannot be written" in refusal(capsys, "predict", copy, place / "new.csv", "--out", copy / "run.json" / "x")


def test_labels_that_the_run_did_not_write_are_one_sentence(copy, capsys):
    with np.load(copy / "labels.npz") as stored:
        arrays = dict(stored)
    np.savez(copy / "labels.npz", **arrays | {"belief": arrays["belief"][::-1]})
    assert "labels.npz is not the file that the run wrote" in refusal(capsys, "labels", copy)
    (copy / "run.json").unlink()  # as an estimator leaves it
    np.savez(copy / "labels.npz", **arrays | {"belief": arrays["belief"][:5]})
    assert "belief has shape (5, 3)" in refusal(capsys, "labels", copy)
    np.savez(copy / "labels.npz", **{k: v for k, v in arrays.items() if k != "names"})
    assert "not those of a model's labels" in refusal(capsys, "labels", copy)
    (copy / "labels.npz").unlink()
    assert "holds no labels.npz" in refusal(capsys, "labels", copy)


def test_fit_with_wrong_words(place, tmp_path, capsys):
    data, results = place / "mine.csv", ("--results", tmp_path / "r")
    (tmp_path / "thesis.txt").write_text("mine")
    assert "holds other files (thesis.txt)" in refusal(capsys, "fit", data, "--out", tmp_path, *results, code=2)
    assert "is a file" in refusal(capsys, "fit", data, "--out", tmp_path / "thesis.txt", *results, code=2)
    assert "Unknown method 'cell'" in refusal(capsys, "fit", data, "--method", "cell", *results, code=2)
    assert "Unknown dataset" in refusal(capsys, "fit", tmp_path / "none", *results, code=2)
    assert "one method on one dataset" in refusal(capsys, "fit", data, "--method", "cel,rc", *results, code=2)
    assert "train first" not in refusal(capsys, "fit", data, "--jobs", 2, code=2)
    (tmp_path / "damaged").mkdir()
    assert "holds no model.json" in refusal(capsys, "labels", tmp_path / "damaged")


def test_a_folder_that_the_model_cannot_be_copied_to_is_one_sentence(place, tmp_path, capsys):
    (tmp_path / "model" / "run.json").mkdir(parents=True)
    words = ("fit", place / "mine.csv", "--results", place / "results", *QUICK, "--out", tmp_path / "model")
    assert f"{tmp_path / 'model'} cannot be written" in refusal(capsys, *words)


def test_lost_model_files_are_restored_by_training_again(tmp_path):
    np.savez(tmp_path / "mine.npz", x=X, candidates=MATRIX)
    words = ("fit", tmp_path / "mine.npz", "--method", "cc", "--results", tmp_path / "r", "--epochs", "1", "--quiet")
    assert call(*words) == 0
    for name in ("model.safetensors", "model.json", "labels.npz"):
        (path,) = (tmp_path / "r").glob(f"runs/**/{name}")
        before = path.read_bytes()
        path.unlink()
        assert call(*words, "--out", tmp_path / "copy") == 0
        assert path.read_bytes() == before == (tmp_path / "copy" / name).read_bytes()
