"""ML-Decoder with one fixed query per class, which gives CEL its class-wise vectors.

T. Ridnik, G. Sharir, A. Ben-Cohen, E. Ben-Baruch, A. Noy: ML-Decoder: Scalable and Versatile Classification Head,
WACV 2023. Here with as many queries as classes (no groups to share) and without self-attention.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def group_logits(h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return class j's logit from class j's vector alone. (B, C, l), (C, l), (C,) -> (B, C)."""
    return torch.einsum("bcl,cl->bc", h, weight) + bias


class ClassWiseEncoder(nn.Module):
    """Feature map (B, D, h, w) -> vectors (B, C, l), logits (B, C)."""

    queries: Tensor  # (C, l), drawn once, not trained

    def __init__(
        self, feature_dim: int, num_classes: int, length: int, heads: int, feed_forward: int, dropout: float
    ) -> None:
        super().__init__()
        self.register_buffer("queries", torch.randn(num_classes, length))
        self.embed = nn.Sequential(nn.Linear(feature_dim, length), nn.ReLU(inplace=True))
        self.attention = nn.MultiheadAttention(length, heads, dropout, batch_first=True)
        self.widen = nn.Sequential(nn.Linear(length, feed_forward), nn.ReLU(inplace=True), nn.Dropout(dropout))
        self.narrow = nn.Linear(feed_forward, length)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(length) for _ in range(3))
        self.dropout = nn.Dropout(dropout)
        self.group_weight = nn.Parameter(torch.randn(num_classes, length) * math.sqrt(2 / (length + num_classes)))
        self.group_bias = nn.Parameter(torch.zeros(num_classes))

    def forward(self, feature_map: Tensor) -> tuple[Tensor, Tensor]:
        memory = self.embed(feature_map.flatten(2).transpose(1, 2))
        queries = self.queries.expand(feature_map.shape[0], -1, -1)  # every sample draws its own dropout mask
        t = self.norm1(queries + self.dropout(queries))
        t = self.norm2(t + self.dropout(self.attention(t, memory, memory, need_weights=False)[0]))
        h = self.norm3(t + self.dropout(self.narrow(self.widen(t))))
        return h, group_logits(h, self.group_weight, self.group_bias)
