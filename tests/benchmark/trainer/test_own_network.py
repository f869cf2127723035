"""A network of the user's own, by file and class: trained, kept, loaded, and every way to get it wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from benchmark.cli import main as cli
from benchmark.config.selection import select
from benchmark.estimator import PartialLabelClassifier, load
from benchmark.runner.options import RunOptions
from benchmark.runner.worker import execute
from tests.benchmark.test_estimator import MATRIX, QUICK, X

NET = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self, inputs):
        super().__init__(nn.Linear(inputs, 12), nn.Tanh())
        self.feature_dim = 12


def flat(inputs):
    net = Net(inputs)
    net.feature_dim = 7
    return net


def broken(inputs):
    raise OSError("no luck")


def number(inputs):
    return 3
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(NET)
    np.savez(tmp_path / "mine.npz", x=X, candidates=MATRIX)
    return tmp_path


def call(*words: object) -> int:
    return cli.main([str(word) for word in words])


def test_an_own_network_is_trained_kept_and_loaded(place, capsys):
    name = f"backbone.name={place / 'net.py'}:Net"
    words = ("fit", place / "mine.npz", "--method", "valen", "--results", place / "r", "--epochs", 2, "--device", "cpu")
    assert call(*words, "--quiet", "--set", name, "--out", place / "model") == 0
    document = json.loads((place / "model" / "run.json").read_text())
    assert document["network"].startswith("net.py:Net#") and str(place) not in json.dumps(document["config"])
    assert document["label"] == "valen[backbone.name=net.py:Net,train.epochs=2]"
    predict = ("predict", place / "model", place / "mine.npz", "--out", place / "p.csv")
    assert call(*predict, "--plugin", place / "net.py") == 0
    model = PartialLabelClassifier("valen", epochs=2, network=f"{place / 'net.py'}:Net").fit(X, MATRIX)
    kept = load(place / "model", plugin=str(place / "net.py"))
    assert np.array_equal(kept.predict_proba(X), model.predict_proba(X))
    capsys.readouterr()
    assert call(*predict) == 1
    message = capsys.readouterr().err
    assert "net.py" in message and "--plugin" in message
    (place / "net.py").write_text(NET + "\n# edited\n")
    assert call(*predict, "--plugin", place / "net.py") == 1


def test_an_edited_network_is_another_run(place):
    def digest() -> str:
        network = (f"backbone.name={place / 'net.py'}:Net",)
        (spec,) = select("own", methods="cc", datasets=str(place / "mine.npz"), seeds="0", settings=network).specs()
        assert spec.network_file().endswith("net.py:Net")
        return spec.digest

    before = digest()
    (place / "net.py").write_text(NET + "\n# edited\n")
    assert digest() != before


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("net.py:flat", r"gave \(\d+, 12, 1, 1\); \(B, 7\)"),
        ("net.py:broken", "cannot be built: OSError: no luck"),
        ("net.py:number", "must give a torch.nn.Module"),
        ("net.py:Nothing", "cannot be built: AttributeError"),
    ],
)
def test_a_network_that_does_not_fit_is_one_sentence(place, name, problem):
    words = {"datasets": str(place / "mine.npz"), "settings": (f"backbone.name={place / name}",)}
    (spec,) = select("own", methods="cc", seeds="0", epochs=1, **words).specs()
    outcome = execute(spec, RunOptions(place / "r", place / "d"))
    assert outcome.status == "failed"
    assert re.search(problem, outcome.reason), outcome.reason


def test_a_file_that_is_not_there_is_told_before_anything_runs(place, capsys):
    words = ("fit", place / "mine.npz", "--results", place / "r", "--set", "backbone.name=none.py:Net")
    assert call(*words) == 2
    assert "none.py cannot be read (No such file or directory)" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"none\.py cannot be read"):
        PartialLabelClassifier("cc", **QUICK, network="none.py:Net").fit(X, MATRIX)
