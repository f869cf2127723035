"""A stored document never leads to the execution of a file: models, run folders, profiles."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmark.cli import main as cli
from benchmark.config.profile import load_profile
from benchmark.config.resolution import Override, resolve
from benchmark.config.selection import select
from benchmark.config.spec import digest_of, identity_of
from benchmark.errors import UsageError
from benchmark.estimator import load
from benchmark.store import record_digest
from methods.networks.backbones import BackboneError, factory
from methods.registry import discover
from tests.benchmark.test_estimator import MATRIX, X

HOSTILE = "from pathlib import Path\nPath(r'{proof}').write_text('ran')\n"
NET = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self, inputs):
        super().__init__(nn.Linear(inputs, 12), nn.Tanh())
        self.feature_dim = 12
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


@pytest.mark.parametrize(("section", "key"), STORED)
@pytest.mark.parametrize("suffix", ["", f"#{'0' * 12}"])
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


def test_an_annotator_network_named_on_the_command_line_enters_by_content(place):
    (place / "net.py").write_text(NET)
    catalogue = discover()

    def spec() -> Any:
        overrides = [
            Override.parse(text, catalogue) for text in ("data.generator=instance", "annotator.network=net.py:Net")
        ]
        return resolve(load_profile("own"), catalogue.get("cc"), "mine.npz", 0, overrides)

    first = spec()
    assert first.annotator.network.startswith("net.py:Net#") and first.paths["annotator"] == f"{place / 'net.py'}:Net"
    (place / "net.py").write_text(NET + "# edited\n")
    assert spec().digest != first.digest
