"""verify on real trainings, as they are and tampered with."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmark.cli.main import main
from benchmark.config.selection import select
from benchmark.config.spec import digest_of, identity_of
from benchmark.files import without_paths
from benchmark.runner.options import Outcome, RunOptions
from benchmark.runner.worker import execute
from benchmark.store import PACKED, epochs_digest, record_digest
from benchmark.tools.reference import pack
from benchmark.trainer.summary import summarise
from benchmark.verify import LEAST, allowed
from tests.conftest import TINY, make_tiny
from tests.support.broken_plugins import plugin

NET = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self, inputs):
        super().__init__(nn.Conv2d(inputs, 8, 3, stride=2), nn.ReLU())
        self.feature_dim = 8
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a method of the tree, one run of a plug-in."""
    folder = tmp_path_factory.mktemp("verify")
    (folder / "mine.py").write_text(plugin("mine"))
    train(folder, methods="proden")
    train(folder, methods="mine", seeds="0", plugins=(str(folder / "mine.py"),))
    return folder


def train(folder: Path, **words: Any) -> None:
    """Train the runs that the words select from the profile `tiny`, with some rows held out."""
    profile = make_tiny(folder, TINY.replace("epochs = 3", "epochs = 2\nholdout = 0.1")).profile
    for spec in select(str(profile), **words).specs():
        assert execute(spec, RunOptions(folder / "results", folder / "data")).status == "done"


@pytest.fixture
def results(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained / "results", tmp_path / "copy" / "results"))


class Verified:
    """A call of `verify`: its exit code, what it printed, its report."""

    def __init__(self, place: Path, capsys: pytest.CaptureFixture[str], *words: str) -> None:
        out = place.parent / "verification.json"
        before = contents(place)
        self.code = main(["verify", str(place), "--device", "cpu", "--out", str(out), *words])
        self.text = capsys.readouterr().out
        self.report = json.loads(out.read_text())
        assert contents(place) == before  # it reads only


Verify = Callable[..., Verified]


@pytest.fixture
def verified(results: Path, capsys: pytest.CaptureFixture[str]) -> Verify:
    """`verified(*words, place=results)`: a call of `verify`."""
    return lambda *words, place=results: Verified(place, capsys, *words)


@pytest.fixture
def one_run(results: Path) -> Path:
    """The only run of a results folder."""
    for name in ("mine/seed0", "proden/seed1"):
        shutil.rmtree(run_of(results, name))
    return run_of(results)


def contents(place: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}


def run_of(results: Path, name: str = "proden/seed0") -> Path:
    return next(results.glob(f"runs/digits/{name}-*"))


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a run.json as somebody would who knows about the digest in it."""
    document = json.loads(path.read_text())
    change(document)
    with contextlib.suppress(ValueError):  # NaN and lone surrogates have no digest
        document["record_sha256"] = record_digest(document)
    path.write_text(json.dumps(document))


def test_honest_results_are_verified_and_trained_again_to_the_same_bits(trained: Path, verified: Verify) -> None:
    done = verified("--plugin", str(trained / "mine.py"), "--cells", "2")
    assert done.code == 0 and done.report["result"] == "passed", done.text
    assert all((c["passed"], c["failed"]) == (3, 0) for c in done.report["checks"].values())
    assert [r["agreement"] for r in done.report["reruns"]] == ["bit for bit equal"] * 2
    assert {r["run"].split()[2] for r in done.report["reruns"]} == {"proden", "mine"}
    draw = ("--draw", str(done.report["draw"]), "--cells", "2")
    again = verified("--plugin", str(trained / "mine.py"), *draw)
    assert [r["run"] for r in again.report["reruns"]] == [r["run"] for r in done.report["reruns"]]


def test_packed_runs_are_verified(results: Path, tmp_path: Path, verified: Verify) -> None:
    shutil.rmtree(run_of(results, "mine/seed0"))
    packed = tmp_path / "packed"
    pack(results, ["tiny"], packed)
    done = verified(place=packed)
    assert done.code == 3 and done.report["checks"]["summary from epochs"]["passed"] == 2
    assert [r["agreement"] for r in done.report["reruns"]] == ["bit for bit equal"]
    assert set(done.report["not_checked"]) == {"it has no stored predictions", "its candidate set is not in the folder"}
    file = packed / "runs" / "digits" / PACKED
    for content in (file.read_bytes()[:-100], gzip.compress(b"{}\n"), gzip.compress(b'{"schema": 2}\n[]\n')):
        file.write_bytes(content)
        done = verified("--cells", "0", place=packed)
        assert done.code == 1 and f"digits/{PACKED}" in done.text


def test_what_cannot_be_checked_is_not_a_pass(results: Path, verified: Verify) -> None:
    (run_of(results, "proden/seed1") / "predictions.npz").unlink()
    done = verified("--cells", "0")
    assert done.code == 3 and done.report["result"] == "incomplete"
    plugged, unscored = done.report["not_checked"].items()
    assert "--plugin mine.py" in plugged[0] and plugged[1] == ["tiny digits mine seed 0"]
    assert "predictions" in unscored[0] and unscored[1] == ["tiny digits proden seed 1"]


def test_another_version_of_the_plug_in_is_not_run(results: Path, verified: Verify) -> None:
    other = results.parent / "mine.py"
    other.write_text(plugin("mine") + "raise SystemExit\n")
    done = verified("--plugin", str(other), "--cells", "0")
    assert done.code == 3 and done.report["not_checked"].popitem()[1] == ["tiny digits mine seed 0"]


# Tampering and damage -------------------------------------------------------------------------------------------------


def edited(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    return lambda run: edit(run / "run.json", change)


def updated(**values: Any) -> Callable[[Path], None]:
    return edited(lambda document: document.update(values))


def changed_epoch(run: Path, epoch: int, **values: float) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    lines[epoch]["result"].update(values)
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return lines


def number_and_epochs(run: Path) -> None:
    lines = changed_epoch(run, -1, test_accuracy=99.0)
    updated(summary=summarise(lines), metrics_sha256=epochs_digest(lines))(run)


def device(run: Path) -> None:
    document = json.loads((run / "run.json").read_text())
    document["environment"]["device_name"] = "NVIDIA H100"
    (run / "run.json").write_text(json.dumps(document))


def prediction(path: Path) -> None:
    arrays = dict(np.load(path))
    arrays["test_logits"][:9] *= -1
    np.savez(path, **arrays)


def pickled(path: Path) -> None:
    np.savez(path, test_logits=np.array([print], dtype=object))


def candidate(path: Path) -> None:
    arrays = dict(np.load(path))
    arrays["bits"][3] ^= 64
    np.savez(path, **arrays)


def cut(path: Path) -> None:
    path.write_text(path.read_text().splitlines()[0] + "\n")


def replace_array(path: Path, header: str) -> None:
    """Give one array of an .npz file a header that says anything, and compress the file."""
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    name = "bits.npy" if "bits.npy" in members else "test_logits.npy"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for member, array in (members | ({name: content} if header else {})).items():
            new.writestr(member, array)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def garbled(path: Path) -> None:
    """Compressed data that cannot be unpacked."""
    replace_array(path, "")
    content = bytearray(path.read_bytes())
    content[60:120] = b"\xff" * 60
    path.write_bytes(content)


def huge(path: Path) -> None:
    replace_array(path, "{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000000,), }")


def impossible_shape(path: Path) -> None:
    arrays = dict(np.load(path))
    np.savez(path, **arrays | {"shape": np.array([len(arrays["bits"]), 10**12])})


def damaged(name: str, damage: Callable[[Path], Any]) -> Callable[[Path], None]:
    """Damage a file of a run, or its candidate set; the SHA-256 of the predictions fits again."""

    def tamper(run: Path) -> None:
        path = next(run.parents[3].glob("candidates/digits/*seed0*.npz")) if name == "candidates" else run / name
        damage(path)
        if name == "predictions.npz" and path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            edit(run / "run.json", lambda document: document["files"].update({name: digest}))

    return tamper


NAME, CHANGED = "tiny digits proden seed 0", "tiny digits proden[train.lr=0.5] seed 0"
PLACE = "runs/digits/proden/seed0-"
CANDIDATES = "candidates/digits/uniform-rate0.2-seed0-"
ARRAYS, TEXTS = (pipe, folder, garbled, huge), (pipe, folder, lambda path: path.write_bytes(b"\xff{"), Path.unlink)


@pytest.mark.parametrize(
    ("tamper", "named", "fact"),
    [
        (edited(lambda document: document["summary"].update(accuracy=99.0)), NAME, "accuracy is 99.0"),
        (edited(lambda document: document["config"]["train"].update(lr=0.5)), NAME, "config_digest"),
        (updated(label="proden[train.lr=0.5]"), CHANGED, "label is"),
        (updated(label="proden[train.lr=0.5]", overrides={"train.lr": 0.5}), CHANGED, "override train.lr"),
        (updated(test_rows=99), NAME, "test_rows is 99"),
        (updated(scored=False), NAME, "no test row has a true label"),
        (device, PLACE, "record_sha256"),
        (lambda run: run.rename(run.with_name(run.name.replace("seed0", "seed7"))), NAME, "runs/digits/proden/seed7-"),
        (lambda run: changed_epoch(run, 0, loss=0.5), NAME, "metrics.jsonl does not have the SHA-256"),
        (number_and_epochs, NAME, "by predictions.npz"),
        (lambda run: prediction(run / "predictions.npz"), NAME, "predictions.npz"),
        (damaged("predictions.npz", prediction), NAME, "by predictions.npz"),
        (damaged("predictions.npz", pickled), NAME, "predictions.npz"),
        (damaged("candidates", candidate), CANDIDATES, "SHA-256"),
        (damaged("candidates", impossible_shape), CANDIDATES, ""),
        (damaged("metrics.jsonl", cut), NAME, "metrics.jsonl has 1 complete epochs"),
        (damaged("run.json", lambda path: path.rename(f"{path}.damaged")), PLACE, "run.json.damaged"),
        *((damaged("predictions.npz", damage), NAME, "predictions.npz") for damage in ARRAYS),
        *((damaged("candidates", damage), CANDIDATES, "") for damage in ARRAYS),
        *((damaged("run.json", damage), PLACE, "run.json") for damage in TEXTS),
        *((damaged("metrics.jsonl", damage), NAME, "metrics.jsonl") for damage in TEXTS),
    ],
)
def test_every_edit_and_every_damage_is_named(
    results: Path, tamper: Callable[[Path], Any], named: str, fact: str, verified: Verify
) -> None:
    tamper(run_of(results))
    done = verified("--cells", "0")
    assert done.code == 1 and "verification failed for 'results'" in done.text
    assert any(finding.startswith(named) and fact in finding for finding in done.report["findings"]), done.text
    assert not [finding for finding in done.report["findings"] if "seed1" in finding or "seed 1" in finding]


def consistent(run: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the configuration, and everything that follows from it."""
    document = json.loads((run / "run.json").read_text())
    change(document["config"])
    document["config_digest"] = digest_of(document["config"])
    document["identity"] = identity_of(document["config_digest"], document["candidates_sha256"])
    (run / "run.json").write_text(json.dumps(document | {"record_sha256": record_digest(document)}))
    run.rename(run.with_name(f"seed0-{document['identity'][:8]}"))


@pytest.mark.parametrize("value", [None, 5, "digits", [], {"name": ["digits"]}, {"name": "digits"}])
def test_a_configuration_of_a_wrong_type_is_named(results: Path, value: Any, verified: Verify) -> None:
    consistent(run_of(results), lambda config: config.update(dataset=value))
    done = verified("--cells", "0")
    assert done.code != 0 and NAME in json.dumps([done.report["findings"], done.report["not_checked"]])
    assert done.code == 1 or value == {"name": "digits"}  # the name fits, but other settings are missing


@pytest.mark.parametrize("key", ["config", "files", "environment", "provenance", "summary", "data_file"])
@pytest.mark.parametrize("value", [float("nan"), 10**400, "\x1b[2J\ud800", {"\x1b": "\ud800"}, {"a/../b": "0"}])
def test_no_value_of_a_document_ends_in_a_traceback(one_run: Path, key: str, value: Any, verified: Verify) -> None:
    edit(one_run / "run.json", lambda document: document.update({key: value}))
    done = verified("--cells", "0")
    assert done.code in (0, 1, 3) and "\x1b" not in done.text


def test_settings_that_this_program_does_not_have_are_not_trained(one_run: Path, verified: Verify) -> None:
    consistent(one_run, lambda config: config["train"].update(batch="many"))
    done = verified()
    assert done.code == 3 and done.report["reruns"] == [] and list(done.report["not_checked"].values()) == [[NAME]]


# Training again -------------------------------------------------------------------------------------------------------


def test_other_weights_are_found_by_training_the_cell_again(one_run: Path, verified: Verify) -> None:
    document = one_run / "run.json"
    edit(document, lambda stored: stored.update(weights_sha256="0" * 64))
    done = verified()
    assert done.code == 1 and f"{NAME}, trained again: other weights on the same kind of machine" in done.text
    edit(document, lambda stored: stored["environment"].update(torch="1.0"))
    done = verified()
    (rerun,) = done.report["reruns"]
    assert done.code == 0 and not rerun["failed"] and "another kind of machine" in rerun["agreement"]
    assert rerun["here"] == rerun["recorded"]


def test_the_tolerance_follows_from_the_size_of_the_test_part() -> None:
    assert allowed(80.0, 500) == pytest.approx(3 * (2 * 80 * 20 / 500) ** 0.5)
    assert allowed(100.0, 500) == allowed(None, 0) == LEAST


@pytest.mark.parametrize(
    "settings",
    [("backbone.name=net.py:Net",), ("data.generator=instance", "annotator.network=net.py:Net", "annotator.epochs=1")],
    ids=["network", "annotator"],
)
def test_a_network_of_the_authors_own_needs_its_file(
    tmp_path: Path, settings: tuple[str, ...], verified: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET)
    Path("mine.py").write_text(plugin("mine"))
    train(tmp_path, methods="mine", seeds="0", plugins=("mine.py",), settings=settings)
    words = ["--plugin", "mine.py", "--annotators"]
    done = verified(*words, place=tmp_path / "results")
    assert done.code == 3 and not done.report["reruns"] and "net.py" in done.text and "--plugin" in done.text
    Path("other").mkdir()
    Path("net.py").rename("other/net.py")
    done = verified(*words, "--plugin", "other/net.py", place=tmp_path / "results")
    assert done.code == 0 and [r["agreement"] for r in done.report["reruns"]] == ["bit for bit equal"], done.text
    Path("other/net.py").write_text(f"raise SystemExit\n{NET}")
    done = verified(*words, "--plugin", "other/net.py", place=tmp_path / "results")
    assert done.code == 3 and not done.report["reruns"]


def test_data_of_the_authors_own_need_their_file(
    tmp_path: Path, verified: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    labels = random.integers(3, size=60)
    candidates = np.eye(3, dtype=bool)[labels] | (random.random((60, 3)) < 0.3)
    np.savez("own.npz", x=random.normal(size=(60, 4)), y=labels, candidates=candidates)
    (spec,) = select("own", methods="cc", datasets="own.npz", seeds="0", epochs=2).specs()
    assert execute(spec, RunOptions(tmp_path / "results", tmp_path / "data")).status == "done"
    done = verified(place=tmp_path / "results")
    assert done.code == 3 and "--datasets own.npz" in done.text
    done = verified("--datasets", "own.npz", place=tmp_path / "results")
    assert done.code == 0 and len(done.report["reruns"]) == 1, done.text


def test_a_report_names_no_paths_of_this_machine() -> None:
    text = "no /a/b/c.npz, '/home/x y/z', /opt and ~/d/e: https://host/p, alpha=0.5/0.2 or ../up / --out=/tmp/z/"
    shown = "no c.npz, 'z', opt and e: https://host/p, alpha=0.5/0.2 or ../up / --out=z"
    assert without_paths(text) == shown


def test_nothing_to_verify_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "packed.tar.gz").touch()
    words = ("--out", str(tmp_path / "c.json"), "--device", "cpu")
    for place, code, fact in (("nowhere", 1, "nowhere"), ("empty", 1, "no finished run"), ("packed.tar.gz", 2, "tar")):
        assert main(["verify", str(tmp_path / place), *words]) == code
        assert fact in capsys.readouterr().err
    assert main(["verify", str(tmp_path), "--cells", "-1"]) == 2
    assert not (tmp_path / "c.json").exists()


def test_a_run_that_cannot_be_trained_here_has_not_failed(verified: Verify, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Outcome("failed", "no space left on the disk")
    monkeypatch.setattr("benchmark.verify.execute", lambda spec, options: failed)
    done = verified()
    assert done.code == 3 and "no space left on the disk" in done.text
