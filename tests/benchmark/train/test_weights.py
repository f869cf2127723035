"""Weight files: whom they reach, and that candidate labels never outlive the file that made them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmark.errors import UsageError
from benchmark.plan.selection import Choice, select
from benchmark.plan.spec import RunSpec
from benchmark.train.candidates import annotator_of, candidate_set
from benchmark.train.loading import dataset_of
from datasets.labels.candidates import CandidateSet
from methods.parts.backbones import BackboneError, factory

PROFILE = """
title = "weights"
seeds = [0]
methods = ["proden"]
datasets = ["digits"]

[data.digits]
generator = "instance"
rate = 0.3
settings = { test = 1500 }
backbone = { name = "small-cnn-characters" }
annotator = { network = "small-cnn-characters", epochs = 1, batch = 32 }
"""


def spec_of(folder: Path, *settings: str) -> RunSpec:
    profile = folder / "weights.toml"
    profile.write_text(PROFILE)
    return select(str(profile), Choice(settings=settings)).specs()[0]


def candidates_of(spec: RunSpec, results: Path) -> CandidateSet:
    return candidate_set(spec, dataset_of(spec, Path("nowhere")), results, "cpu")


def inside(name: str, **settings: Any) -> dict[str, torch.Tensor]:
    """The state dict of a timm model, with its own names."""
    return {key.removeprefix("network."): value for key, value in factory(name, **settings)().state_dict().items()}


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Two weight files of the small network."""
    paths = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        paths.append(str(tmp_path / f"{seed}.pth"))
        torch.save(factory("small-cnn-characters", pretrained=False)().state_dict(), paths[-1])
    return paths[0], paths[1]


def test_another_weight_file_makes_other_candidates_whatever_was_made_before(
    tmp_path: Path, files: tuple[str, str]
) -> None:
    first, second = (spec_of(tmp_path, f"backbone.weights={file}") for file in files)
    before = candidates_of(first, tmp_path / "shared")
    after = candidates_of(second, tmp_path / "shared")
    assert before.sha256 != after.sha256
    assert candidates_of(second, tmp_path / "fresh").sha256 == after.sha256
    assert candidates_of(first, tmp_path / "shared").sha256 == before.sha256
    assert len(list((tmp_path / "shared").rglob("annotator-*.npz"))) == 2


def test_a_moved_weight_file_finds_its_candidates(tmp_path: Path, files: tuple[str, str]) -> None:
    results, moved = tmp_path / "results", tmp_path / "moved.pth"
    before = candidates_of(spec_of(tmp_path, f"backbone.weights={files[0]}"), results)
    moved.write_bytes(Path(files[0]).read_bytes())
    assert candidates_of(spec_of(tmp_path, f"backbone.weights={moved}"), results).sha256 == before.sha256
    assert len(list(results.rglob("annotator-*.npz"))) == 1


def test_a_file_that_changes_after_planning_makes_no_candidates(tmp_path: Path, files: tuple[str, str]) -> None:
    spec = spec_of(tmp_path, f"backbone.weights={files[0]}")
    Path(files[0]).write_bytes(Path(files[1]).read_bytes())
    os.utime(files[0], (1, 1))  # the two files may be written within one tick of the clock
    with pytest.raises(UsageError, match=r"0\.pth has changed since the runs were planned"):
        candidates_of(spec, tmp_path / "results")
    assert not list(tmp_path.rglob("*.npz"))


def test_data_sets_whose_encoder_has_no_use_for_a_weight_file_keep_label_and_identity(files: tuple[str, str]) -> None:
    def specs(*settings: str) -> dict[str, RunSpec]:
        choice = Choice(methods="proden", datasets="cifar100,cifar100h,cub200", seeds="0", settings=settings)
        return {spec.dataset: spec for spec in select("paper", choice).specs()}

    plain, by_file, untrained = specs(), specs(f"backbone.weights={files[0]}"), specs("backbone.pretrained=false")
    for name in ("cifar100", "cifar100h"):
        assert by_file[name] == untrained[name] == plain[name]
        assert by_file[name].digest == untrained[name].digest == plain[name].digest
    assert by_file["cub200"].label == "proden[backbone.weights=0.pth]"
    assert len({s["cub200"].digest for s in (plain, by_file, untrained)}) == 3


def test_a_weight_file_that_nothing_has_a_use_for_is_one_sentence(tmp_path: Path, files: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match=r"changes nothing: no encoder here has published weights \(small-cnn\)"):
        spec_of(tmp_path, "backbone.name=small-cnn", f"backbone.weights={files[0]}")


@pytest.mark.parametrize("encoder", ["small-cnn-characters", "small-cnn"])
def test_the_annotator_starts_as_the_encoder_does_where_both_are_the_same(tmp_path: Path, encoder: str) -> None:
    spec = spec_of(tmp_path, "backbone.pretrained=false", f"annotator.network={encoder}")
    annotator = annotator_of(spec, dataset_of(spec, Path("nowhere")), "cpu")
    assert annotator.recipe.pretrained == (encoder != "small-cnn-characters")


def test_untrained_annotators_make_other_candidates(tmp_path: Path) -> None:
    kinds = [candidates_of(spec_of(tmp_path, f"backbone.pretrained={word}"), tmp_path) for word in ("true", "false")]
    assert kinds[0].sha256 != kinds[1].sha256


@pytest.mark.parametrize(
    ("network", "remedy"),
    [
        ("timm:resnet18", "pass --set backbone.weights=FILE"),
        ("resnet34-imagenet", "--set annotator.network=timm:resnet18"),
    ],
)
def test_weights_that_cannot_be_had_are_one_sentence_that_says_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: str, remedy: str
) -> None:
    def no_network(*_: Any, **__: Any) -> None:
        raise ConnectionError

    monkeypatch.setattr("timm.create_model", no_network)
    spec = spec_of(tmp_path, "backbone.name=timm:resnet18", f"annotator.network={network}")
    with pytest.raises(BackboneError, match=rf"^The annotator of digits starts from .*{remedy}\.$"):
        annotator_of(spec, dataset_of(spec, Path("nowhere")), "cpu").network()


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: {"model": state, "epoch": 3},
        lambda state: {"state_dict": state},
        lambda state: {"state_dict": {f"module.{key}": value for key, value in state.items()}},
        lambda state: state | {"fc.weight": torch.zeros(1000, 512)},
    ],
)
def test_what_training_scripts_save_is_understood(tmp_path: Path, wrap: Any) -> None:
    state = inside("timm:resnet18", pretrained=False)
    torch.save(wrap(state), tmp_path / "wrapped.pth")
    loaded = inside("timm:resnet18", weights=str(tmp_path / "wrapped.pth"))
    assert all(torch.equal(loaded[key], value) for key, value in state.items())


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("timm:resnet18", "a ResNet-18"),
        ("timm:resnet50", "a ResNet-50"),
        ("timm:mobilenetv3_small_050", "a network of 242 tensors from conv_stem.weight on"),
    ],
)
def test_a_file_for_another_network_is_one_sentence_that_says_for_which(tmp_path: Path, name: str, kind: str) -> None:
    file = tmp_path / "other.pth"
    torch.save(inside(name, pretrained=False), file)
    with pytest.raises(BackboneError, match=rf"it seems to hold {kind}, and a ResNet-34 is needed \(first difference"):
        factory("resnet34-imagenet", weights=str(file))()


@pytest.mark.parametrize("content", [{"epoch": 3}, [1], {"model": {"lr": 0.1}}, {}])
def test_a_file_without_a_state_dict_is_one_sentence(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "none.pth")
    with pytest.raises(BackboneError, match="is no plain state dict"):
        factory("resnet34-imagenet", weights=str(tmp_path / "none.pth"))()
