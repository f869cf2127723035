"""Encoders by name, for settings and plans. Needs no torch; `backbones` builds them."""

NAMES = (
    "small-cnn",
    "resnet18-cifar",
    "resnet34-imagenet",
    "efficientnet-lite0",
    "mobilenet-v2",
    "mlp",
    "linear",
    "timm:NAME",
    "FILE.py:CLASS",
)
DIGEST = 12  # hexadecimal digits of a file's SHA-256 in the stored name of a user's network
PRETRAINED = ("resnet34-imagenet", "efficientnet-lite0", "mobilenet-v2", "timm:")


def own_file(name: str) -> tuple[str, str] | None:
    """Return file and class of a user's network, written `path/net.py:Net`; None for any other name."""
    file, colon, attribute = name.rpartition(":")
    return (file, attribute) if colon and file.endswith(".py") and attribute.isidentifier() else None


def file_digest_of(name: str) -> str:
    """Return the SHA-256 prefix in the stored name of a user's network, `net.py:Net#0123456789ab`; "" if it has none."""
    digest = name.partition("#")[2]
    return digest if len(digest) == DIGEST and set(digest) <= set("0123456789abcdef") else ""


def takes_weights(name: str) -> bool:
    """Return whether the network has published weights, which a file can replace."""
    return name.startswith(PRETRAINED)
