"""A network of your own for any method: the class is named on the command line.

    ./reproduce.sh run --methods proden --datasets digits --seeds 0 --set backbone.name=examples/own_network.py:SmallResNet
    ./reproduce.sh fit mine.csv --method proden --set backbone.name=examples/own_network.py:FeatureNetwork

A network maps inputs to features; the methods add pooling and heads. It is called with the number of channels (3) or of
features and needs an attribute `feature_dim` = D; its output is (B, D), or a map (B, D, h, w). The content of this file is
part of the run's identity, so an edited network is another run.
"""

from __future__ import annotations

from torch import Tensor, nn


class Block(nn.Module):
    """Two convolutions beside a shortcut; halves the side of the map."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu(self.layers(x) + self.shortcut(x))


class SmallResNet(nn.Sequential):
    """For small images: (B, 3, H, W) -> (B, 64, H/4, W/4)."""

    feature_dim = 64

    def __init__(self, inputs: int) -> None:
        super().__init__(Block(inputs, 32), Block(32, self.feature_dim))


class FeatureNetwork(nn.Sequential):
    """For rows of features: (B, d) -> (B, 128)."""

    feature_dim = 128

    def __init__(self, inputs: int) -> None:
        super().__init__(nn.Linear(inputs, 128), nn.LayerNorm(128), nn.GELU(), nn.Dropout(0.1))
