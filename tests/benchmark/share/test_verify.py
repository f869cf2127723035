"""verify on real trainings, as they are and tampered with."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmark.cli.main import main
from benchmark.plan.selection import Choice, select
from benchmark.run.options import Outcome, RunOptions
from benchmark.run.worker import execute
from benchmark.share.rerun import LEAST, allowed
from tests.support.broken_plugins import plugin

PROFILE = """
title = "tiny"
seeds = [0, 1]
methods = ["proden"]
datasets = ["digits"]
[train]
epochs = 2
batch = 32
holdout = 0.1
[data.digits]
settings = { test = 1500 }
generator = "uniform"
rate = 0.2
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a method of the tree, one run of a plug-in."""
    folder = tmp_path_factory.mktemp("verify")
    profile, file = folder / "tiny.toml", folder / "mine.py"
    profile.write_text(PROFILE)
    file.write_text(plugin("mine"))
    choices = [Choice(), Choice(methods="mine", seeds="0", plugins=(str(file),))]
    for spec in [spec for choice in choices for spec in select(str(profile), choice).specs()]:
        assert execute(spec, RunOptions(folder / "results", folder / "data")).status == "done"
    return folder


@pytest.fixture
def results(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained / "results", tmp_path / "results"))


class Verified:
    """A call of `verify`: its exit code, what it printed, its certificate."""

    def __init__(self, place: Path, capsys: pytest.CaptureFixture[str], *words: str) -> None:
        out = place.parent / "certificate.json"
        before = contents(place)
        self.code = main(["verify", str(place), "--device", "cpu", "--out", str(out), *words])
        self.text = capsys.readouterr().out
        self.certificate = json.loads(out.read_text())
        assert contents(place) == before  # it reads only


def contents(place: Path) -> Any:
    return {p: p.read_bytes() for p in place.rglob("*") if p.is_file()} if place.is_dir() else place.read_bytes()


def run_of(results: Path, name: str = "proden/seed0") -> Path:
    return next(results.glob(f"runs/tiny/digits/{name}-*"))


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_honest_results_are_verified_and_run_again_to_the_same_bits(
    trained: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(trained / "mine.py")
    done = Verified(results, capsys, "--plugin", file, "--cells", "2")
    assert done.code == 0 and done.certificate["verdict"] == "verified", done.text
    assert all((c["passed"], c["failed"]) == (3, 0) for c in done.certificate["checks"].values())
    assert [r["bit_equal"] for r in done.certificate["run_again"]] == [True, True]
    assert {r["run"].split()[2] for r in done.certificate["run_again"]} == {"proden", "mine"}
    bundle = results.with_name("b.tar.gz")
    assert main(["bundle", "--results", str(results), "--out", str(bundle)]) == 0
    again = Verified(bundle, capsys, "--plugin", file, "--cells", "0")
    assert again.code == 0 and again.certificate["content_sha256"] == done.certificate["content_sha256"]


def test_what_cannot_be_checked_is_no_pass(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run_of(results, "proden/seed1") / "predictions.npz").unlink()
    done = Verified(results, capsys, "--cells", "0")
    assert done.code == 3 and "not all could be checked" in done.certificate["verdict"]
    (plugged, kept) = done.certificate["not_checked"].items()
    assert plugged == ("its method is a plug-in; give the file with --plugin mine.py", ["tiny digits mine seed 0"])
    assert kept == ("it has kept no predictions", ["tiny digits proden seed 1"])


def test_another_version_of_the_plug_in_is_not_run(
    trained: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = results.parent / "mine.py"
    other.write_text(plugin("mine") + "raise SystemExit\n")
    done = Verified(results, capsys, "--plugin", str(other), "--cells", "0")
    assert done.code == 3 and "another version of mine" in done.text


def number(run: Path) -> None:
    edit(run / "run.json", lambda document: document["summary"].update(accuracy=99.0))


def number_and_epochs(run: Path) -> None:
    number(run)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    lines[-1]["result"]["test_accuracy"] = 99.0
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def prediction(run: Path) -> bytes:
    arrays = dict(np.load(run / "predictions.npz"))
    arrays["test_logits"][:9] *= -1
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    (run / "predictions.npz").write_bytes(stream.getvalue())
    return stream.getvalue()


def prediction_and_hash(run: Path) -> None:
    digest = hashlib.sha256(prediction(run)).hexdigest()
    edit(run / "run.json", lambda document: document["files"].update({"predictions.npz": digest}))


def pickled(run: Path) -> None:
    np.savez(run / "predictions.npz", test_logits=np.array([print], dtype=object))
    digest = hashlib.sha256((run / "predictions.npz").read_bytes()).hexdigest()
    edit(run / "run.json", lambda document: document["files"].update({"predictions.npz": digest}))


def candidate(run: Path) -> None:
    path = next((run.parents[4] / "candidates" / "digits").glob("*seed0*.npz"))
    arrays = dict(np.load(path))
    arrays["bits"][3] ^= 64
    np.savez(path, **arrays)


def configuration(run: Path) -> None:
    edit(run / "run.json", lambda document: document["config"]["train"].update(lr=0.5))


def moved(run: Path) -> None:
    run.rename(run.with_name(run.name.replace("seed0", "seed7")))


def cut(run: Path) -> None:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text(lines[0] + "\n")


def half(run: Path) -> None:
    (run / "run.json").unlink()


@pytest.mark.parametrize(
    ("tamper", "sentence"),
    [
        (number, "accuracy is 99.0 in run.json and"),
        (number_and_epochs, "by its predictions"),
        (prediction, "predictions.npz is not the file that the run wrote"),
        (prediction_and_hash, "by its predictions"),
        (pickled, "not a readable .npz file of plain arrays"),
        (candidate, "its labels are not those that its SHA-256 was made of"),
        (configuration, "its configuration is not the one that its config_digest was made of"),
        (moved, "it lies in runs/tiny/digits/proden/seed7-"),
        (cut, "metrics.jsonl has 1 whole epochs"),
        (half, "it has no run.json"),
    ],
)
def test_whatever_was_tampered_with_is_named(
    results: Path, tamper: Callable[[Path], Any], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tamper(run_of(results))
    done = Verified(results, capsys, "--cells", "0")
    assert done.code == 1 and done.certificate["verdict"] == "refuted"
    assert any(sentence in finding for finding in done.certificate["findings"]), done.certificate["findings"]
    assert not [finding for finding in done.certificate["findings"] if "seed 1" in finding]


def test_other_weights_are_found_by_running_the_cell_again(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(run_of(results, "proden/seed1"))
    shutil.rmtree(run_of(results, "mine/seed0"))
    document = run_of(results) / "run.json"
    edit(document, lambda known: known.update(weights_sha256="0" * 64))
    done = Verified(results, capsys)
    assert done.code == 1 and "run again: weights differ on the same kind of machine" in done.text
    edit(document, lambda known: known["environment"].update(torch="1.0"))
    done = Verified(results, capsys)
    (again,) = done.certificate["run_again"]
    assert done.code == 0 and again["tolerance"] >= LEAST and not again["same_kind"], done.text
    assert "points on another kind of machine" in done.certificate["sentence"]


def test_the_tolerance_follows_from_the_size_of_the_test_part() -> None:
    assert allowed(80.0, 500) == pytest.approx(3 * (2 * 80 * 20 / 500) ** 0.5)
    assert allowed(100.0, 500) == allowed(None, 0) == LEAST


def test_nothing_to_verify_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    for place, sentence in (("nowhere", "no results folder"), ("empty", "no finished run")):
        assert main(["verify", str(tmp_path / place), "--out", str(tmp_path / "c.json"), "--device", "cpu"]) == 1
        assert sentence in capsys.readouterr().err
    assert main(["verify", str(tmp_path), "--cells", "-1"]) == 2
    assert not (tmp_path / "c.json").exists()


def test_a_run_that_cannot_be_trained_here_is_no_refutation(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = Outcome("failed", "no space left on the disk")
    monkeypatch.setattr("benchmark.share.rerun.execute", lambda spec, options: failed)
    done = Verified(results, capsys)
    assert done.code == 3 and "it cannot be trained here (no space left on the disk)" in done.text
