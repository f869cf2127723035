"""CEL — class-wise embedding guided instance-dependent partial-label learning.

F. Yang, J. Cheng, H. Liu, Y. Dong, Y. Jia, J. Hou: Mixed Blessing: Class-Wise Embedding guided Instance-Dependent
Partial Label Learning, KDD 2025.

The network gives one vector h_i^j per (picture, class); E = h/‖h‖, S_i is the candidate set, n_i its size, q the number
of classes. With a weak and a strong view, whose losses are added,

    L     = L_cls + α L_cal + β L_pdl, the last term in the second stage of training only
    L_cls = −(1/B) Σ_i Σ_j T_ij log P_ij, T the weak view's last P restricted to S_i (as in PRODEN)
    L_cal = (1/B) Σ_i (1 − s_i) + γ₁|d_i|, s_i = mean ⟨E^j, E^k⟩ over j, k ∈ S_i,
            d_i = mean ⟨E^j, E^h⟩ over j ∈ S_i, h ∉ S_i
    L_pdl = (1/B) Σ_i (1 − s_i) + γ₂|d_i|, s_i = ⟨E^c, Q^c⟩, d_i = mean ⟨E^c, Q^k⟩ over k ≠ c, c = arg max_{j∈S_i} P_ij
    Q^c   ← normalise(Q^c + Σ_{i: c_i = c} E_i^c)

By bilinearity the means over pairs are products of sums: with A = Σ_{j∈S} E^j and N = Σ_{h∉S} E^h, s = ‖A‖²/n² and
d = ⟨A, N⟩/(n(q−n)), so no (B, C, C) tensor is made. The released code departs from the paper in several places; each is
a field of `Config`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods import fused
from methods.base import About, Batch, Clock, Method, Step, Task
from methods.blocks import (
    at_least_float32,
    candidate_softmax,
    full_precision,
    masked_argmax,
    one_hot,
    soft_cross_entropy,
    uniform_confidence,
    unit,
)
from methods.registry import register

Variant = Literal["paper", "released"]
Selection = Literal["candidates", "masked_product", "global"]


class Dropout(nn.Dropout):
    """The usual dropout; on a CPU, where drawing takes longer than the layers around it, four entries share 64 bits."""

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or not self.training or self.p == 0:
            return super().forward(x)
        dropped = round(self.p * 2**16)  # of 2¹⁶ equally likely 16-bit numbers
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device).random_(-(2**63), None)
        bits = draws.view(torch.int16)[: x.numel()].view(x.shape)
        kept = torch.ge(bits, dropped - 2**15, out=torch.empty(x.shape, dtype=x.dtype, device=x.device))
        return x * kept.mul_(2**16 / max(2**16 - dropped, 1))


class ClassWiseEncoder(nn.Module):
    """ML-Decoder with one fixed query per class: feature map (B, D, h, w) -> vectors (B, C, l), logits (B, C)."""

    queries: Tensor

    def __init__(self, feature_dim: int, num_classes: int, config: CEL.Config) -> None:
        super().__init__()
        length, width, dropout = config.embedding_length, config.feed_forward, config.dropout
        self.register_buffer("queries", torch.randn(num_classes, length))  # drawn once, not trained
        self.embed = nn.Sequential(nn.Linear(feature_dim, length), nn.ReLU(inplace=True))
        self.attention = nn.MultiheadAttention(length, config.heads, dropout, batch_first=True)
        self.widen = nn.Sequential(nn.Linear(length, width), nn.ReLU(inplace=True), Dropout(dropout))
        self.narrow = nn.Linear(width, length)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(length) for _ in range(3))
        self.dropout = Dropout(dropout)
        self.group_weight = nn.Parameter(torch.randn(num_classes, length) * math.sqrt(2 / (length + num_classes)))
        self.group_bias = nn.Parameter(torch.zeros(num_classes))

    def forward(self, feature_map: Tensor) -> tuple[Tensor, Tensor]:
        memory = self.embed(feature_map.flatten(2).transpose(1, 2))
        queries = self.queries.expand(feature_map.shape[0], -1, -1)  # every sample draws its own dropout mask
        t = self.norm1(queries + self.dropout(queries))
        t = self.norm2(t + self.dropout(self.attention(t, memory, memory, need_weights=False)[0]))
        h = self.norm3(t + self.dropout(self.narrow(self.widen(t))))
        return h, group_logits(h, self.group_weight, self.group_bias)


def group_logits(h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Class j's logit from class j's vector alone. (B, C, l), (C, l), (C,) -> (B, C)."""
    return torch.einsum("bcl,cl->bc", h, weight) + bias


class Choice(NamedTuple):
    """The class that stands for each sample."""

    classes: Tensor  # (B,) c_i
    counts: Tensor | None = None  # (B,) 1, or 0 for a sample that is skipped; None: all count


def high_confidence_class(logits: Tensor, candidates: Tensor, selection: Selection = "candidates") -> Choice:
    """arg max over the candidates of each sample. (B, C), (B, C) -> (B,), (B,) or None.

    "masked_product" is the released arg max of logit × mask, which leaves the set when all candidate logits are
    negative; "global" skips samples whose overall arg max is no candidate.
    """
    logits = at_least_float32(logits.detach())
    if selection == "global":
        classes = logits.argmax(1)
        return Choice(classes, candidates.gather(1, classes[:, None])[:, 0].to(logits.dtype))
    if selection == "masked_product":
        classes = (logits * candidates).argmax(1)
    else:
        classes = masked_argmax(logits, candidates)
    return Choice(classes)


def class_sums(views: Sequence[Tensor], candidates: Tensor, classes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A and N, the sums of unit vectors inside and outside the candidates, and E^c. V of (B, C, l) -> (V, B, l) each."""
    views = [at_least_float32(h) for h in views]
    inside = candidates.to(views[0].dtype)
    weights = torch.stack((inside, 1 - inside, one_hot(classes, inside.shape[1], inside.dtype)), 1)
    with full_precision(views[0]):
        a, rest, chosen = torch.stack([fused.unit_sums(h, weights) for h in views]).unbind(2)
    return a, rest, chosen


def class_affinities(a: Tensor, rest: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cosine among a sample's candidates and between them and the rest. (V, B, l) twice, (B, C) -> (V, B) twice."""
    n = candidates.sum(1, dtype=a.dtype)
    pairs = n * (candidates.shape[1] - n)
    return (a * a).sum(2) / (n * n), (a * rest).sum(2) / pairs.clamp_min(1)


def released_affinities(views: Sequence[Tensor], a: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """The same without the pairs j = k, and with means of |cosine| in d, which takes (B, C, C) tensors."""
    n = candidates.sum(1, dtype=a.dtype)
    inside = candidates.to(a.dtype)
    # A singleton has no pair: 0 by rule, because (‖A‖² − 1)/1e-6 would be rounding noise.
    s = torch.where(n > 1, ((a * a).sum(2) - n) / (n * (n - 1) + 1e-6), torch.zeros_like(n))
    with full_precision(a):
        embeddings = [F.normalize(at_least_float32(h), dim=2) for h in views]
        cosines = torch.stack([(e @ e.mT).abs() for e in embeddings])
        d = 2 * torch.einsum("bj,vbjk,bk->vb", inside, cosines, 1 - inside)
    return s, d / (2 * n * (candidates.shape[1] - n) + 1e-6)


def prototype_affinities(
    chosen: Tensor, classes: Tensor, prototypes: Tensor, variant: Variant = "paper"
) -> tuple[Tensor, Tensor]:
    """Cosine of E^c with its prototype, mean cosine with the others; 0 if empty. (V, B, l), (B,), (C, l) -> (V, B) twice.

    "released" averages |cosine|.
    """
    others = prototypes.shape[0] - 1
    prototypes = unit(prototypes.detach()).to(chosen.dtype)
    with full_precision(chosen):
        s = (chosen * prototypes[classes]).sum(2)
        if variant == "paper":
            return s, (chosen @ prototypes.sum(0) - s) / others
        return s / (1 + 1e-6), ((chosen @ prototypes.T).abs().sum(2) - s.abs()) / (others + 1e-6)


def affinity_loss(s: Tensor, d: Tensor, gamma: float, counts: Tensor | None = None) -> Tensor:
    """(1/B) Σ_i (1 − s_i) + γ|d_i|, added over the views: L_cal and L_pdl. (V, B), (V, B), (B,) -> scalar."""
    losses = 1 - torch.sub(s, d.abs(), alpha=gamma)
    if counts is not None:
        losses = losses * counts
    return losses.sum() / s.shape[1]


@torch.no_grad()
def updated_prototypes(
    prototypes: Tensor,
    chosen: Tensor,
    choice: Choice,
    variant: Variant = "paper",
    mode: Literal["batch", "sequential"] = "batch",
) -> Tensor:
    """Q after a batch with vectors E^c of the weak view. (C, l), (B, l) -> (C, l).

    "released" gives all classes chosen in the batch one and the same vector; it is kept for study.
    """
    classes, chosen = choice.classes, chosen.to(prototypes.dtype)
    member = one_hot(classes, prototypes.shape[0], prototypes.dtype)
    if choice.counts is not None:
        counts = choice.counts.to(prototypes.dtype)[:, None]
        member, chosen = member * counts, chosen * counts
    if variant == "paper" and mode == "sequential":
        # Each normalisation needs the one before, so this study mode goes sample by sample.
        result = prototypes.clone()
        for c, e, counted in zip(classes.split(1), chosen.split(1), member.split(1), strict=True):
            row = result[c]
            result[c] = torch.where(counted.any(), unit(row + e), row)
        return result
    if variant == "paper":
        with full_precision(prototypes):  # a product, because index_add has no fixed order of summation on CUDA
            moved = prototypes + member.T @ chosen
    else:
        moved = (prototypes[classes[:1]] + chosen.sum(0)).expand_as(prototypes)
    return torch.where(member.any(0)[:, None], unit(moved), prototypes)


@register
class CEL(Method):
    """Class-wise embeddings: candidates of a picture together, its likeliest class at that class's prototype."""

    name = "cel"
    about = About("CEL", "IDPLL", venue="KDD", year=2025, forwards="2", state="N×C confidence, C×l prototypes")
    views = ("weak", "strong")

    @dataclass(frozen=True)
    class Config:
        alpha: float = 0.5  # weight of L_cal; paper's advice
        beta: float = 1.0  # weight of L_pdl; paper's advice (the code's default is 0.5)
        gamma1: float = 1.0  # push-apart weight in L_cal; paper
        gamma2: float = 1.0  # push-apart weight in L_pdl; paper: 1 or 2
        warmup: float = 0.5  # first stage, without L_pdl; paper: 250 of 500 epochs
        embedding_length: int = 512  # l; paper
        heads: int = 8  # released code, as the next two
        feed_forward: int = 2048
        dropout: float = 0.1
        # Where the released code differs. Paper: pairs j = k count, |mean cosine|; released: they do not, mean |cosine|
        cal_variant: Variant = "paper"
        pdl_variant: Variant = "paper"  # |mean cosine| or mean |cosine|
        selection: Selection = "candidates"  # paper's text; released: "masked_product"; formula read strictly: "global"
        prototype_variant: Variant = "paper"  # released: all classes chosen in a batch get the same vector
        prototype_mode: Literal["batch", "sequential"] = "batch"  # normalise per batch (released) or per sample (paper)
        prototype_before_loss: bool = (
            False  # paper: after it; released: before, so a sample meets itself in its prototype
        )

    label_confidence: Tensor
    prototypes: Tensor

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        backbone = task.backbone()
        self.network: nn.Module = nn.Sequential(
            backbone, ClassWiseEncoder(backbone.feature_dim, task.num_classes, config)
        )
        self.register_buffer("label_confidence", uniform_confidence(task.candidates))
        self.register_buffer("prototypes", torch.zeros(task.num_classes, config.embedding_length))

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        config = self.config
        (h_weak, z_weak), (h_strong, z_strong) = (self.network(view) for view in batch.views)
        targets = batch.rows(self.label_confidence)
        # Both views at once: twice the mean over 2B rows.
        loss = 2 * soft_cross_entropy(torch.cat((z_weak, z_strong)), targets.repeat(2, 1))
        logs = {"cls": loss.detach()}
        if config.alpha == 0 and config.beta == 0:
            return Step(loss, logs, carry=(z_weak.detach(), None))
        choice = high_confidence_class(z_weak, batch.candidates, config.selection)
        a, rest, chosen = class_sums((h_weak, h_strong), batch.candidates, choice.classes)
        if config.alpha != 0:
            if config.cal_variant == "paper":
                affinities = class_affinities(a, rest, batch.candidates)
            else:
                affinities = released_affinities((h_weak, h_strong), a, batch.candidates)
            cal = affinity_loss(*affinities, config.gamma1)
            loss, logs["cal"] = loss + config.alpha * cal, cal.detach()
        if config.beta == 0:
            return Step(loss, logs, carry=(z_weak.detach(), None))
        moves = (chosen[0].detach(), choice)
        if config.prototype_before_loss:
            self._move_prototypes(*moves)
        if clock.epoch >= clock.epochs_of(config.warmup):
            affinities = prototype_affinities(chosen, choice.classes, self.prototypes, config.pdl_variant)
            pdl = affinity_loss(*affinities, config.gamma2, choice.counts)
            loss, logs["pdl"] = loss + config.beta * pdl, pdl.detach()
        return Step(loss, logs, carry=(z_weak.detach(), moves))

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        logits, chosen = step.carry
        confidence = candidate_softmax(logits, batch.candidates)
        batch.store(self.label_confidence, confidence)
        if chosen is not None and not self.config.prototype_before_loss:
            self._move_prototypes(*chosen)

    def _move_prototypes(self, chosen: Tensor, choice: Choice) -> None:
        variant, mode = self.config.prototype_variant, self.config.prototype_mode
        self.prototypes.copy_(updated_prototypes(self.prototypes, chosen, choice, variant, mode))

    def predict(self, images: Tensor) -> Tensor:
        return self.network(images)[1]

    def confidence(self) -> Tensor:
        return self.label_confidence


@register
class Proden2V(CEL):
    """CEL's network and views with L_cls alone: how much of CEL's lead over PRODEN the head and second view give."""

    name = "proden-2v"
    about = About("PRODEN-2V", "control", forwards="2", state="N×C confidence")
    views = ("weak", "strong")

    @dataclass(frozen=True)
    class Config(CEL.Config):
        alpha: float = 0.0
        beta: float = 0.0
