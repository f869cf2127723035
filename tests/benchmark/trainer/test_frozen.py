"""Frozen encoders: stored maps are what the encoder gives, whoever builds them and however often they are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmark.config.profile import load_profile
from benchmark.config.resolution import Override, resolve
from benchmark.runner.estimate import measure
from benchmark.runner.options import RunOptions
from benchmark.runner.worker import drawn_set
from benchmark.trainer import frozen
from benchmark.trainer.candidates import annotator_run
from benchmark.trainer.frozen import Frozen, FrozenLoader, ensure, frozen_of
from benchmark.trainer.loading import dataset_of
from benchmark.trainer.trainer import Trainer
from datasets.base import DataError
from datasets.views.views import Views
from methods.networks.backbones import BackboneError, factory
from methods.registry import discover, load
from tests.conftest import ROOT, TINY, TinyBenchmark
from tests.support.killing import wait_until
from tests.support.methods import every_method

CPU = torch.device("cpu")
PROFILE = (
    TINY.replace("test = 1500", "test = 1700").replace("epochs = 3", "epochs = 2")
    + 'backbone = { name = "small-cnn", frozen = true, cells = 2, draws = 2, adapter = 16 }'
)
BUILD = """
import sys
from tests.benchmark.trainer.test_frozen import encoder
from benchmark.trainer.frozen import ensure
from pathlib import Path
found = encoder(Path(sys.argv[1]))
ensure([found.maps("train", view) for view in ("weak", "strong", "distill", "plain")])
"""


def encoder(folder: Path, *settings: str, method: str = "proden") -> Frozen:
    """The frozen encoder of a tiny run whose stores lie in `folder`."""
    spec, dataset = tiny(folder, *settings, method=method)
    return frozen_of(spec, dataset, CPU)


def tiny(folder: Path, *settings: str, method: str = "proden"):
    profile = folder / "tiny.toml"
    profile.write_text(PROFILE)
    overrides = [Override(*setting.replace("=", ".").split(".", 2)) for setting in settings]
    spec = resolve(load_profile(str(profile)), discover().get(method), "digits", 0, overrides)
    return spec, dataset_of(spec, folder / "data")


def bytes_of(found: Frozen) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(found.folder.glob("*.maps"))}


def test_a_view_is_the_map_of_the_stored_draw_and_a_repeated_name_gets_another(tmp_path):
    found = encoder(tmp_path)
    loader = FrozenLoader(found, 7, CPU, ("weak", "strong"))
    rows = torch.tensor([5, 3, 90, 40])
    weak, strong, second, plain = loader.train_views(rows, ("weak", "strong", "strong", "plain"), 4)
    images, _ = found.dataset.train.batch(rows)
    views = Views(found.recipe, frozen.VIEW_SEED)
    for made, name in ((weak, "weak"), (strong, "strong"), (second, "strong")):
        draws = torch.stack([found.encode(views(images, rows, (name,), draw)[0]).float() for draw in (0, 1)])
        assert ((draws - made).abs().flatten(2).amax(2) < 2e-3).any(0).all(), name
    assert not torch.equal(strong, second)
    assert torch.allclose(plain, found.encode(views.test(images)).float(), atol=2e-3)
    other_batch = loader.train_views(rows[[2]], ("weak",), 4)[0]
    assert torch.equal(other_batch[0], weak[2])
    epochs = [loader.train_views(rows, ("weak",), epoch)[0] for epoch in range(8)]
    assert any(not torch.equal(epochs[0], later) for later in epochs[1:])


def test_a_killed_build_goes_on_and_ends_in_the_same_bytes(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir(), cut.mkdir()
    ensure([encoder(whole).maps("train", view) for view in ("weak", "strong", "distill", "plain")])
    partial = encoder(cut).maps("train", "weak").path.with_suffix(".partial")
    process = subprocess.Popen([sys.executable, "-c", BUILD, str(cut)], cwd=ROOT)
    until = time.monotonic() + 60
    while not (partial.exists() and partial.stat().st_size) and time.monotonic() < until:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not bytes_of(encoder(cut)), "it was killed too late to show anything"
    with open(partial, "ab") as stream:
        stream.write(b"half a block")
    before = partial.stat().st_ino
    two = [subprocess.Popen([sys.executable, "-c", BUILD, str(cut)], cwd=ROOT) for _ in range(2)]
    assert [process.wait(timeout=120) for process in two] == [0, 0]
    assert bytes_of(encoder(cut)) == bytes_of(encoder(whole))
    assert encoder(cut).maps("train", "weak").path.stat().st_ino == before, "it began anew"


def test_another_recipe_has_another_store(tmp_path):
    first = encoder(tmp_path).maps("train", "weak")
    for setting in ("backbone.cells=1", "backbone.draws=3", "backbone.name=resnet18-cifar"):
        assert encoder(tmp_path, setting).maps("train", "weak").path != first.path, setting
    assert encoder(tmp_path, "backbone.adapter=9").maps("train", "weak").path == first.path


def test_a_store_that_does_not_fit_on_the_disk_is_refused_before_it_is_begun(tmp_path, monkeypatch):
    found = encoder(tmp_path)
    monkeypatch.setattr(frozen.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1))
    with pytest.raises(DataError, match=r"need .* GB .* are free; CANDID_CACHE names another folder"):
        ensure([found.maps("train", "weak")])
    assert not list(found.folder.glob("*.partial"))


def test_settings_of_a_frozen_encoder_do_not_touch_other_runs(tmp_path):
    (tmp_path / "plain.toml").write_text(PROFILE.replace(", frozen = true, cells = 2, draws = 2, adapter = 16", ""))
    profile = load_profile(str(tmp_path / "plain.toml"))
    specs = [
        resolve(profile, discover().get("proden"), "digits", 0, overrides)
        for overrides in ([], [Override("backbone", "cells", "5"), Override("backbone", "draws", "9")])
    ]
    assert specs[0].digest == specs[1].digest
    assert specs[0].label == specs[1].label == "proden"


@pytest.mark.parametrize("name", every_method())
def test_every_method_trains_on_frozen_maps(name, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp() / "frozen-methods"
    folder.mkdir(exist_ok=True)
    spec, dataset = tiny(folder, method=name)
    candidates = torch.ones(len(dataset.train), dataset.num_classes, dtype=torch.bool)
    trainer = Trainer(spec, load(discover().get(name)), dataset, candidates, CPU)
    for _ in range(trainer.epochs):  # second stages too
        record = trainer.train_epoch()
    assert 0 <= record["result"]["test_accuracy"] <= 100
    assert not any("conv_stem" in key for key in trainer.method.state_dict())


def test_runs_are_measured_before_any_map_is_made(tmp_path):
    spec, dataset = tiny(tmp_path, method="proden")
    cost = measure(spec, 1, dataset, CPU)
    assert cost.seconds > 0 and cost.peak_memory_mb > 0
    assert not list(tmp_path.rglob("*.maps")) and not list(tmp_path.rglob("*.partial"))


def test_a_frozen_run_resumes_to_the_same_weights(tmp_path):
    (tmp_path / "tiny.toml").write_text(PROFILE)
    words = ("run", "--methods", "proden", "--seeds", "0", "--epochs", "150")
    results = []
    for name in ("whole", "cut"):
        bench = TinyBenchmark(tmp_path / name, tmp_path / "tiny.toml")
        bench.folder.mkdir()
        if name == "cut":
            process = bench.start(*words, "--checkpoint-seconds", "0.05")
            wait_until(lambda: list(bench.results.glob("runs/*/*/*/checkpoint*")), 60, "a checkpoint")  # noqa: B023
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert not any(d["status"] == "done" for d in bench.documents())
        done = bench.run(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        results.append(bench.results_only())
    assert results[0] == results[1]


def test_an_annotator_learns_from_the_same_maps(tmp_path):
    settings = ("data.generator=instance", "annotator.network=small-cnn", "annotator.epochs=30")
    settings += ("annotator.batch=16",)
    spec, dataset = tiny(tmp_path, *settings)
    candidates = drawn_set(spec, dataset, RunOptions(tmp_path, tmp_path))
    assert candidates.meta["train_accuracy"] > 0.5  # ten classes
    assert (encoder(tmp_path).maps("train", "weak")).complete()
    assert candidates.matrix[torch.arange(len(dataset.train)), dataset.train.labels].all()
    other, _ = tiny(tmp_path, *settings, "backbone.adapter=8")
    assert annotator_run(other, dataset).digest != annotator_run(spec, dataset).digest


def test_features_and_encoders_without_a_map_are_refused(tmp_path):
    spec, dataset = tiny(tmp_path)
    with pytest.raises(BackboneError, match="has no images"):
        frozen_of(spec, dataset.__class__(**{**vars(dataset), "recipe": None}), CPU)
    found = encoder(tmp_path)
    found.network.forward = lambda images: images.mean((2, 3))  # type: ignore[method-assign]
    with pytest.raises(BackboneError, match="not a feature map"):
        found.encode(torch.zeros(2, 3, 16, 16))


def test_tokens_of_a_vision_transformer_become_a_map():
    network = factory("timm:vit_tiny_patch16_224", pretrained=False)().eval()
    with torch.no_grad():
        images = torch.randn(1, 3, 224, 224)
        tokens, found = network.network(images), network(images)  # type: ignore[operator]
    assert found.shape == (1, 192, 14, 14)
    assert torch.equal(found[0, :, 2, 3], tokens[0, 1 + 2 * 14 + 3])
