"""CEL — class-wise embedding guided instance-dependent partial-label learning.

F. Yang, J. Cheng, H. Liu, Y. Dong, Y. Jia, J. Hou: Mixed Blessing: Class-Wise Embedding guided Instance-Dependent
Partial Label Learning, KDD 2025.

The network gives one vector h_i^j per (image, class); E = h/‖h‖, S_i is the candidate set, n_i its size, q the number
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

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods.base import About, Added, Batch, Clock, Method, Step, Task
from methods.blocks import (
    at_least_float32,
    candidate_softmax,
    full_precision,
    masked_argmax,
    soft_cross_entropy,
    uniform_confidence,
    unit,
)
from methods.networks.ml_decoder import ClassWiseEncoder
from methods.registry import register

Variant = Literal["paper", "released"]
Selection = Literal["candidates", "masked_product", "global"]


def class_affinities(h: Tensor, candidates: Tensor, variant: Variant = "paper") -> tuple[Tensor, Tensor]:
    """Return mean cosines among a sample's candidates and between them and the rest. (B, C, l), (B, C) -> s (B,), d (B,).

    "released" leaves the pairs j = k out of s and averages |cosine| in d, which takes a (B, C, C) tensor.
    """
    h = at_least_float32(h)
    lengths = torch.linalg.vector_norm(h, dim=2, keepdim=True).clamp_min(1e-12)
    inside = candidates.to(h.dtype)
    n = inside.sum(1)
    cross_pairs = n * (h.shape[1] - n)
    with full_precision(h):
        # Σ E^j = Σ h^j/‖h^j‖: the 0/1 weights are divided, not the vectors, which are l times as many numbers.
        a, rest = ((torch.stack((inside, 1 - inside), 1) / lengths.mT) @ h).unbind(1)  # (B, l) each
        square = (a * a).sum(1)
        if variant == "paper":
            return square / n**2, (a * rest).sum(1) / cross_pairs.clamp_min(1)
        # A singleton has no pair: 0 by rule, because (‖A‖² − 1)/1e-6 would be rounding noise.
        s = torch.where(n > 1, (square - n) / (n * (n - 1) + 1e-6), 0.0)
        cosines = ((h / lengths) @ (h / lengths).mT).abs()
        d = 2 * torch.einsum("bj,bjk,bk->b", inside, cosines, 1 - inside)
    return s, d / (2 * cross_pairs + 1e-6)


def class_associative_loss(h: Tensor, candidates: Tensor, gamma: float, variant: Variant = "paper") -> Tensor:
    """L_cal of one view. (B, C, l), (B, C) -> scalar."""
    s, d = class_affinities(h, candidates, variant)
    return (1 - s + gamma * d.abs()).mean()


class Choice(NamedTuple):
    """Class that represents each sample."""

    classes: Tensor  # (B,) c_i
    counts: Tensor  # (B,) 1, or 0 for a sample that is skipped


def high_confidence_class(logits: Tensor, candidates: Tensor, selection: Selection = "candidates") -> Choice:
    """Return arg max over the candidates of each sample. (B, C), (B, C) -> (B,), (B,).

    "masked_product" is the released arg max of logit × mask, which leaves the set when all candidate logits are
    negative; "global" skips samples whose overall arg max is not a candidate.
    """
    logits = at_least_float32(logits.detach())
    if selection == "global":
        classes = logits.argmax(1)
        return Choice(classes, candidates.gather(1, classes[:, None])[:, 0].to(logits.dtype))
    if selection == "masked_product":
        classes = (logits * candidates).argmax(1)
    else:
        classes = masked_argmax(logits, candidates)
    return Choice(classes, torch.ones_like(logits[:, 0]))


def class_embeddings(h: Tensor, classes: Tensor) -> Tensor:
    """E_i^{c_i}. (B, C, l), (B,) -> (B, l) of unit length."""
    return unit(h.gather(1, classes[:, None, None].expand(-1, 1, h.shape[2]))[:, 0])


def prototype_discriminative_loss(
    embeddings: Tensor, choice: Choice, prototypes: Tensor, gamma: float, variant: Variant = "paper"
) -> Tensor:
    """L_pdl of one view's E^c; prototypes constant, an empty one has cosine 0. (B, l), (B,) twice, (C, l) -> scalar.

    "released" averages |cosine|.
    """
    others = prototypes.shape[0] - 1
    prototypes = unit(prototypes.detach()).to(embeddings.dtype)
    with full_precision(embeddings):
        s = (embeddings * prototypes[choice.classes]).sum(1)
        if variant == "paper":
            d = (embeddings @ prototypes.sum(0) - s) / others
        else:
            d = ((embeddings @ prototypes.T).abs().sum(1) - s.abs()) / (others + 1e-6)
            s = s / (1 + 1e-6)
    return ((1 - s + gamma * d.abs()) * choice.counts).mean()


@torch.no_grad()
def updated_prototypes(
    prototypes: Tensor,
    embeddings: Tensor,
    choice: Choice,
    variant: Variant = "paper",
    mode: Literal["batch", "sequential"] = "batch",
) -> Tensor:
    """Return Q after a batch with vectors E^c of the weak view. (C, l), (B, l) -> (C, l).

    "released" gives all classes chosen in the batch one and the same vector; it is kept for study.
    """
    classes, counts = choice.classes, choice.counts.to(prototypes.dtype)[:, None]
    embeddings = embeddings.to(prototypes.dtype) * counts
    if variant == "paper" and mode == "sequential":
        # Each normalisation needs the one before, so this study mode goes sample by sample.
        result = prototypes.clone()
        for c, e, count in zip(classes.split(1), embeddings.split(1), counts.split(1), strict=True):
            row = result[c]
            result[c] = torch.where(count > 0, unit(row + e), row)
        return result
    member = F.one_hot(classes, prototypes.shape[0]) * counts
    if variant == "paper":
        with full_precision(prototypes):  # a product, because index_add has no fixed order of summation on CUDA
            sums = prototypes + member.T @ embeddings
    else:
        sums = (prototypes[classes[:1]] + embeddings.sum(0)).expand_as(prototypes)
    return torch.where(member.any(0)[:, None], unit(sums), prototypes)


@register
class CEL(Method):
    """Every image has one embedding per class. Those of its candidates are pulled together and away from the other classes;
    in a second stage the most probable candidate is also pulled towards the prototype of its class.

    Network outputs: logits, one embedding per class.
    """

    name = "cel"
    about = About("CEL", "IDPLL", venue="KDD", year=2025, forwards="2", state="N×C confidence, C×l prototypes")
    views = ("weak", "strong")

    @dataclass(frozen=True)
    class Config:
        alpha: float = 0.5  # weight of L_cal; recommended by the paper
        beta: float = 1.0  # weight of L_pdl; recommended by the paper; released default: 0.5
        gamma1: float = 1.0  # push-apart weight in L_cal; paper
        gamma2: float = 1.0  # push-apart weight in L_pdl; paper: 1 or 2
        warmup: float = 0.5  # first stage, without L_pdl; paper: 250 of 500 epochs
        embedding_length: int = 512  # l, length of a class embedding; paper
        heads: int = 8  # released code, as the next two
        feed_forward: int = 2048
        dropout: float = 0.1
        # Where the released code differs. Paper: pairs j = k count, |mean cosine|; released: they do not, mean |cosine|
        cal_variant: Variant = "paper"
        pdl_variant: Variant = "paper"  # |mean cosine| or mean |cosine|
        selection: Selection = "candidates"  # paper's text; released: "masked_product"; formula read strictly: "global"
        prototype_variant: Variant = "paper"  # released: all classes chosen in a batch get the same vector
        prototype_mode: Literal["batch", "sequential"] = "batch"  # normalise per batch (released) or per sample (paper)
        prototype_before_loss: bool = False  # paper: after it; released: before, so a sample meets its own E in Q
        first_refresh: Added[int] = 0  # epochs in which T stays uniform; 0 is the paper, more an extension of ours

    label_confidence: Tensor  # (N, C) T
    prototypes: Tensor  # (C, l) Q, zero for a class never chosen

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        backbone = task.backbone()
        sizes = (config.embedding_length, config.heads, config.feed_forward)
        encoder = ClassWiseEncoder(backbone.feature_dim, task.num_classes, *sizes, config.dropout)
        self.network: nn.Module = nn.Sequential(backbone, encoder)
        self.register_buffer("label_confidence", uniform_confidence(task.candidates))
        self.register_buffer("prototypes", torch.zeros(task.num_classes, config.embedding_length))

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        c, candidates = self.config, batch.candidates
        (h_weak, z_weak), (h_strong, z_strong) = (self.network(view) for view in batch.views)
        targets = batch.rows(self.label_confidence)
        loss = soft_cross_entropy(z_weak, targets) + soft_cross_entropy(z_strong, targets)
        logs = {"cls": loss.detach()}
        if c.alpha != 0:
            cals = [class_associative_loss(h, candidates, c.gamma1, c.cal_variant) for h in (h_weak, h_strong)]
            cal = torch.stack(cals).sum()
            loss, logs["cal"] = loss + c.alpha * cal, cal.detach()
        moves = None
        if c.beta != 0:
            choice = high_confidence_class(z_weak, candidates, c.selection)
            embeddings = [class_embeddings(h, choice.classes) for h in (h_weak, h_strong)]
            moves = (embeddings[0].detach(), choice)
            if c.prototype_before_loss:
                self.move_prototypes(*moves)
            if clock.epoch >= clock.epochs_of(c.warmup):
                q = self.prototypes
                pdls = [prototype_discriminative_loss(e, choice, q, c.gamma2, c.pdl_variant) for e in embeddings]
                pdl = torch.stack(pdls).sum()
                loss, logs["pdl"] = loss + c.beta * pdl, pdl.detach()
        return Step(loss, logs, carry=(z_weak.detach(), moves))

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        logits, moves = step.carry
        if clock.epoch >= self.config.first_refresh:
            batch.store(self.label_confidence, candidate_softmax(logits, batch.candidates))
        if moves is not None and not self.config.prototype_before_loss:
            self.move_prototypes(*moves)

    def move_prototypes(self, embeddings: Tensor, choice: Choice) -> None:
        variant, mode = self.config.prototype_variant, self.config.prototype_mode
        self.prototypes.copy_(updated_prototypes(self.prototypes, embeddings, choice, variant, mode))

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
