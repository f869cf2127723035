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
    "FILE.py:CLASS",
)
PRETRAINED = ("small-cnn-characters", "small-cnn-signs", "resnet34-imagenet", "efficientnet-lite0", "timm:")


def own_file(name: str) -> tuple[str, str] | None:
    """File and class of a network of the user's, written `path/net.py:Net`; None for any other name."""
    file, colon, attribute = name.rpartition(":")
    return (file, attribute) if colon and file.endswith(".py") and attribute.isidentifier() else None


def takes_weights(name: str) -> bool:
    """Whether the network has published weights, for which a file can stand in."""
    return name.startswith(PRETRAINED)
