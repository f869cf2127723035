"""Networks of the user's own, by file and class; a stored document never leads to the execution of a file."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmark.cli import main as cli
from benchmark.config.selection import select
from benchmark.config.spec import digest_of, identity_of
from benchmark.errors import UsageError
from benchmark.estimator import PartialLabelClassifier, load
from benchmark.runner.options import RunOptions
from benchmark.runner.worker import execute
from benchmark.store import record_digest
from methods.networks.backbones import BackboneError, factory
from tests.benchmark.test_estimator import MATRIX, QUICK, X

HOSTILE = "from pathlib import Path\nPath(r'{proof}').write_text('ran')\n"
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
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez("mine.npz", x=X, candidates=MATRIX)
    return tmp_path


def call(*words: object) -> int:
    return cli.main([str(word) for word in words])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one's own."""
    folder = tmp_path_factory.mktemp("model")
    np.savez(folder / "mine.npz", x=X, candidates=MATRIX)
    words = ("--method", "cc", "--results", folder / "r", "--epochs", 1, "--device", "cpu", "--quiet")
    assert call("fit", folder / "mine.npz", *words, "--out", folder / "gift") == 0
    return folder / "gift"


@pytest.fixture
def gift(place: Path, model: Path) -> Path:
    """A copy of the model with a file of code beside it, as somebody might have sent it."""
    shutil.copytree(model, place / "gift")
    (place / "gift" / "net.py").write_text(HOSTILE.format(proof=place / "PWNED") + NET)
    return place / "gift"


def change(path: Path, section: str, **values: Any) -> None:
    document = json.loads(path.read_text())
    document[section] |= values
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("name", ["gift/net.py:Net", "gift/net.py:Net#", f"gift/net.py:Net#{'0' * 12}"])
@pytest.mark.parametrize("with_run", [True, False])
def test_a_model_that_names_a_network_file_runs_nothing(place, gift, capsys, name, with_run):
    change(gift / "model.json", "network", name=name)
    if with_run:
        document = json.loads((gift / "run.json").read_text())
        document["files"].pop("model.json")
        (gift / "run.json").write_text(json.dumps(document))
    else:
        (gift / "run.json").unlink()
    capsys.readouterr()
    assert call("predict", "gift", "mine.npz", "--out", "-") == 1
    message = capsys.readouterr().err
    assert "gift/net.py" in message and "--plugin" in message
    with pytest.raises(ValueError, match=r"net\.py.*--plugin"):
        load("gift")
    assert not (place / "PWNED").exists()


def test_a_model_whose_method_is_a_plugin_runs_nothing(place, gift, capsys):
    change(gift / "model.json", "method", name="gift/net.py", source="0" * 64)
    (gift / "run.json").unlink()
    assert call("predict", "gift", "mine.npz", "--out", "-") == 1
    assert "--plugin" in capsys.readouterr().err
    assert not (place / "PWNED").exists()


STORED = (("backbone", "name"), ("annotator", "network"))


@pytest.mark.parametrize(("section", "key", "suffix"), [(*STORED[0], ""), (*STORED[1], f"#{'0' * 12}")])
def test_a_results_folder_that_names_a_network_file_runs_nothing(tiny_benchmark, tmp_path, section, key, suffix):
    """Digest, identity and folder name are made to fit, so that only the refusal to run stored names is left."""
    generator = "uniform" if section == "backbone" else "instance"
    words = ("--methods", "cc", "--seeds", "0", "--set", f"data.generator={generator}", "--set", "annotator.epochs=1")
    tiny_benchmark.run("run", *words[: 6 if section == "backbone" else 8], "--epochs", "1", check=True)
    (path,) = tiny_benchmark.results.glob("runs/*/cc/*/run.json")
    net = tmp_path / "net.py"
    net.write_text(HOSTILE.format(proof=tmp_path / "PWNED") + NET)
    document = json.loads(path.read_text())
    document["config"][section][key] = f"{net}:Net{suffix}"
    document["config_digest"] = digest_of(document["config"])
    document["identity"] = identity_of(document["config_digest"], document["candidates_sha256"])
    path.write_text(json.dumps(document | {"record_sha256": record_digest(document)}))
    shutil.move(path.parent, path.parent.with_name(f"seed0-{document['identity'][:8]}"))
    more = ["--annotators"] if section == "annotator" else []
    done = tiny_benchmark.run(
        "verify", str(tiny_benchmark.results), "--cells", "1", "--out", str(tmp_path / "c.json"), *more
    )
    assert done.returncode != 0 and "Traceback" not in done.stderr, done.stderr
    assert "net.py" in done.stdout
    assert not (tmp_path / "PWNED").exists()


def test_a_name_alone_never_leads_to_a_file(place):
    (place / "net.py").write_text(HOSTILE.format(proof=place / "PWNED") + NET)
    with pytest.raises(BackboneError, match="Unknown backbone"):
        factory("net.py:Net", 4)
    assert not (place / "PWNED").exists()
    assert factory("anything", 4, file="net.py:Net")().feature_dim == 12


@pytest.mark.parametrize(("section", "key"), STORED)
def test_a_profile_cannot_name_code(place, section, key):
    (place / "theirs.toml").write_text(
        f'include = ["own"]\nmethods = ["cc"]\ndatasets = ["digits"]\n[data.digits.{section}]\n{key} = "net.py:Net"\n'
    )
    with pytest.raises(UsageError, match=rf"--set {section}\.{key}=net\.py:Net"):
        select("theirs.toml")


@pytest.mark.parametrize(("section", "key"), STORED)
def test_a_network_named_on_the_command_line_enters_by_content(place, section, key):
    (place / "net.py").write_text(NET)

    def spec() -> Any:
        settings = ("data.generator=instance", f"{section}.{key}=net.py:Net")
        (spec,) = select("own", methods="cc", datasets="mine.npz", seeds="0", settings=settings).specs()
        return spec

    first = spec()
    assert getattr(getattr(first, section), key).startswith("net.py:Net#")
    assert first.paths["annotator" if section == "annotator" else "network"] == f"{place / 'net.py'}:Net"
    (place / "net.py").write_text(NET + "# edited\n")
    assert spec().digest != first.digest


# Use ------------------------------------------------------------------------------------------------------------------


def test_an_own_network_is_trained_kept_and_loaded(place, capsys):
    (place / "net.py").write_text(NET)
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
    (place / "net.py").write_text(NET)
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
