"""Pieces that several methods share, as pure functions and small modules. Shapes: B batch, N training set, C classes."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods import fused
from methods.base import Backbone, Task

LOWEST = {dtype: torch.finfo(dtype).min for dtype in (torch.float32, torch.float64)}


def at_least_float32(x: Tensor) -> Tensor:
    """Losses and beliefs are computed in float32 under mixed precision; float64 stays float64."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def as_mask(candidates: Tensor) -> Tensor:
    """As bool. Here and below nothing is asked of torch that is so already: even that takes long between convolutions."""
    return candidates if candidates.dtype == torch.bool else candidates.bool()


def constant(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Without gradient, in this precision."""
    values = values.detach() if values.requires_grad else values
    return values if values.dtype == dtype else values.to(dtype)


def uniform_confidence(candidates: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """1/|S_i| on the candidates, 0 elsewhere. (N, C) mask -> (N, C)."""
    mask = candidates.to(dtype)
    return mask / mask.sum(1, keepdim=True)


def candidate_softmax(logits: Tensor, candidates: Tensor) -> Tensor:
    """Softmax over the candidates, of which each row has one or more, 0 elsewhere. (…, C), (…, C) -> (…, C)."""
    logits = at_least_float32(logits)
    return torch.softmax(torch.where(as_mask(candidates), logits, LOWEST[logits.dtype]), dim=-1)


def masked_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """The same, but a row with an empty mask gives zeros. (…, C), (…, C) -> (…, C)."""
    return candidate_softmax(logits, mask) * as_mask(mask)


def masked_logsumexp(logits: Tensor, mask: Tensor) -> Tensor:
    """log Σ exp over the masked entries of each row; −inf for an empty mask. (B, C) -> (B,)."""
    return torch.logsumexp(torch.where(as_mask(mask), at_least_float32(logits), -math.inf), dim=1)


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """−(1/B) Σ_i Σ_j t_ij log softmax(z_i)_j, targets constant. (B, C), (B, C) -> scalar."""
    logits = at_least_float32(logits)
    return F.cross_entropy(logits, constant(targets, logits.dtype))


def masked_argmax(scores: Tensor, mask: Tensor) -> Tensor:
    """arg max inside the mask of finite scores, ties to the lowest index. (B, C) -> (B,)."""
    return torch.where(as_mask(mask), scores, -math.inf).argmax(1)


def one_hot(classes: Tensor, count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """1 at each class, 0 elsewhere. (B,) -> (B, count); torch's own is of integers, which have to be looked over and cast."""
    rows = torch.zeros(len(classes), count, dtype=dtype, device=classes.device)
    return rows.scatter_(1, classes[:, None], 1)


def added(losses: Iterable[Tensor]) -> Tensor:
    """Their sum; a single one as it is."""
    return functools.reduce(torch.add, losses)


def linear_ramp(position: float, length: float, top: float = 1.0) -> float:
    """From 0 at position 0 to `top` at `length`, then constant; `top` at once if length is 0."""
    return top if length <= 0 else top * min(max(position / length, 0.0), 1.0)


def full_precision(like: Tensor) -> AbstractContextManager[Any]:
    """Context in which products of float32 tensors stay float32 under mixed precision (autocast would lower them)."""
    kind = like.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def unit(x: Tensor) -> Tensor:
    """Rows scaled to length 1, at least in float32; a zero row stays zero. (B, D) -> (B, D)."""
    return fused.unit(at_least_float32(x))


def moco_loss(queries: Tensor, keys: Tensor, queue: Tensor, tau: float, filled: Tensor | None = None) -> Tensor:
    """Each query against its own key and the queue; other samples of the batch play no part. (B, D), (B, D), (M, D).

    `filled` (M,) bool leaves the slots of a queue out that were never written.
    """
    own = (queries * keys).sum(1, keepdim=True)
    others = queries @ queue.T
    if filled is not None:
        others = others.masked_fill(~filled, -math.inf)
    logits = torch.cat((own, others), dim=1) / tau
    return (torch.logsumexp(logits, dim=1) - logits[:, 0]).mean()


@torch.no_grad()
def ring_write(pointer: Tensor, *pairs: tuple[Tensor, Tensor]) -> None:
    """Overwrite the oldest rows of ring buffers in place and advance `pointer`, a 0-dim int64 tensor.

    Each pair is (buffer (M, …), new rows (B, …)). B need not divide M; of B > M rows the last M are kept.
    """
    size, count = pairs[0][0].shape[0], pairs[0][1].shape[0]
    first = max(count - size, 0)
    at = torch.arange(first, count, device=pointer.device).add_(pointer).remainder_(size)
    for buffer, rows in pairs:
        buffer.index_copy_(0, at, constant(rows[first:] if first else rows, buffer.dtype))
    pointer.add_(count).remainder_(size)


_parameters: WeakKeyDictionary[nn.Module, list[Tensor]] = WeakKeyDictionary()


def parameters_of(module: nn.Module) -> list[Tensor]:
    """The parameters, looked up once: that takes longer than most of what is done with them in a step."""
    if torch.compiler.is_compiling():  # which looks once anyway
        return list(module.parameters())
    if module not in _parameters:
        _parameters[module] = list(module.parameters())
    return _parameters[module]


@torch.no_grad()
def ema_update(target: nn.Module, source: nn.Module, momentum: float) -> None:
    """Parameters of `target` ← m·target + (1−m)·source; buffers are left alone."""
    torch._foreach_lerp_(parameters_of(target), parameters_of(source), 1.0 - momentum)


class GlobalAverage(nn.Module):
    """Global average pooling, (B, D, h, w) -> (B, D). A module, so that `speed` counts it as the network's."""

    def forward(self, feature_map: Tensor) -> Tensor:
        return feature_map.flatten(2).mean(2)


class Classifier(nn.Module):
    """Backbone, global average pooling, one linear layer."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.backbone: Backbone = task.backbone()
        self.pool = GlobalAverage()
        self.head = nn.Linear(self.backbone.feature_dim, task.num_classes)
        if self.backbone.xavier:
            nn.init.xavier_uniform_(self.head.weight)

    def features(self, images: Tensor) -> Tensor:
        """(B, D) pooled features."""
        return self.pool(self.backbone(images))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))


class ProjectionHead(nn.Sequential):
    """Two-layer MLP for contrastive embeddings; the caller normalises."""

    def __init__(self, dim_in: int, dim_out: int = 128, hidden: int | None = None) -> None:
        hidden = hidden or dim_in
        super().__init__(nn.Linear(dim_in, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, dim_out))


class ContrastiveClassifier(Classifier):
    """A linear classifier and a projection head on one pooled feature."""

    def __init__(self, task: Task, embed_dim: int = 128) -> None:
        super().__init__(task)
        self.projection = ProjectionHead(self.backbone.feature_dim, embed_dim)

    def both(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, C) and projections (B, d), the latter not normalised."""
        features = self.features(images)
        return self.head(features), self.projection(features)

    def embed(self, images: Tensor) -> Tensor:
        """Projections alone, (B, d)."""
        return self.projection(self.features(images))


@torch.no_grad()
def second_forward(network: nn.Module, images: Tensor, bn: str = "update") -> Tensor:
    """Another pass of the same view after the optimiser step, in training mode, as RC and LWS refresh their weights.

    `bn="frozen"` uses batch statistics but leaves the running averages of batch norm alone.
    """
    if bn == "update":
        return network(images)
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    kept = [(n, n.running_mean, n.running_var) for n in norms]
    for norm in norms:
        norm.running_mean, norm.running_var = None, None
    try:
        return network(images)
    finally:
        for norm, mean, var in kept:
            norm.running_mean, norm.running_var, norm.track_running_stats = mean, var, True
