"""Encoders by name, for settings and plans. Needs no torch; `backbones` builds them."""

NAMES = (
    "small-cnn",
    "small-cnn-characters",
    "small-cnn-signs",
    "resnet18-cifar",
    "resnet34-imagenet",
    "efficientnet-lite0",
    "mlp",
    "linear",
    "timm:NAME",
)
PRETRAINED = ("small-cnn-characters", "small-cnn-signs", "resnet34-imagenet", "efficientnet-lite0", "timm:")


def takes_weights(name: str) -> bool:
    """Whether the network has published weights, for which a file can stand in."""
    return name.startswith(PRETRAINED)
