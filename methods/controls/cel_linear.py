"""CEL with a linear classifier — the form in which feature tables have been run.

T. Fuchs, J. Klein: Variational inference for partial-label learning, released code (CEL as a baseline there). CEL's three
losses and tables are those of `cel.py`; its network is not: logits are a linear layer on the features f, and the class
vectors come from a branch of their own,

    z = W f + b,   h = V relu(f/‖f‖) + c, cut into one vector of length l per class,

so that L_cal and L_pdl reach the classifier through f alone. The prototypes move by the released rule, before the loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from methods.base import About, Method, Task
from methods.blocks import uniform_confidence, unit
from methods.cel import CEL
from methods.registry import register


class LinearHead(nn.Module):
    """Feature map (B, D, h, w) -> class vectors (B, C, l), logits (B, C)."""

    def __init__(self, feature_dim: int, num_classes: int, length: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(feature_dim, num_classes)
        self.embed = nn.Linear(feature_dim, num_classes * length)
        self.length = length

    def forward(self, feature_map: Tensor) -> tuple[Tensor, Tensor]:
        features = self.pool(feature_map).flatten(1)
        h = self.embed(torch.relu(unit(features))).view(len(features), -1, self.length)
        return h, self.head(features)


@register
class CELLinear(CEL):
    """CEL's losses on a branch beside a linear classifier."""

    name = "cel-linear"
    about = About("CEL (linear)", "control", forwards="2", state="N×C confidence, C×l prototypes")
    views = ("weak", "strong")

    @dataclass(frozen=True)
    class Config:
        alpha: float = 0.5  # released code, like all values here; meaning as in `cel`
        beta: float = 1.0
        gamma1: float = 1.0
        gamma2: float = 1.0
        warmup: float = 0.5005  # without L_pdl: epochs 0 … 500 of 1,001
        embedding_length: int = 32
        cal_variant: Literal["paper", "released"] = "released"
        pdl_variant: Literal["paper", "released"] = "released"
        selection: Literal["candidates", "masked_product", "global"] = "candidates"
        prototype_variant: Literal["paper", "released"] = "released"
        prototype_mode: Literal["batch", "sequential"] = "batch"
        prototype_before_loss: bool = True
        first_refresh: int = 0

    def __init__(self, config: Config, task: Task) -> None:
        Method.__init__(self, config, task)  # not CEL's, which builds the other network
        backbone = task.backbone()
        head = LinearHead(backbone.feature_dim, task.num_classes, config.embedding_length)
        self.network: nn.Module = nn.Sequential(backbone, head)
        self.register_buffer("label_confidence", uniform_confidence(task.candidates))
        self.register_buffer("prototypes", torch.zeros(task.num_classes, config.embedding_length))
