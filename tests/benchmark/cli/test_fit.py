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

from benchmark.cli import main as cli
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
    assert "1 done, 0 to do" in told and "Model: " in told and "nothing is scored" in told and "covering rate" in told
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
    assert "its SHA-256 is another" in refusal(capsys, *words)
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
    assert "no safetensors file" in refusal(capsys, *words)
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
    assert "cannot be read" in refusal(capsys, "labels", copy)


def test_fit_with_wrong_words(place, tmp_path, capsys):
    data, results = place / "mine.csv", ("--results", tmp_path / "r")
    (tmp_path / "thesis.txt").write_text("mine")
    assert "holds other files (thesis.txt)" in refusal(capsys, "fit", data, "--out", tmp_path, *results, code=2)
    assert "is a file" in refusal(capsys, "fit", data, "--out", tmp_path / "thesis.txt", *results, code=2)
    assert "Unknown method 'cell'" in refusal(capsys, "fit", data, "--method", "cell", *results, code=2)
    assert "Unknown dataset" in refusal(capsys, "fit", tmp_path / "none", *results, code=2)
    assert "one method on one data set" in refusal(capsys, "fit", data, "--method", "cel,rc", *results, code=2)
    (tmp_path / "damaged").mkdir()
    assert "holds no model.json" in refusal(capsys, "labels", tmp_path / "damaged")


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
