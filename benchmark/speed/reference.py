"""The vectorised parts of methods once more, as loops over samples and classes: what their speed is measured against.

Each function states an equation in the most literal way, with (B, C, C) Gram matrices where the equation sums over
pairs of classes. Nothing trains with this file; `tests/test_speed.py` checks that both ways give the same numbers.

CEL's functions take a tensor apart with `apart`. The plain way is to index row by row, for which autograd pays a whole
tensor of zeros per row on the way back; `torch.unbind` spares it that, which is the best that loops can do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Apart = Callable[[Tensor], Sequence[Tensor]]


def one_by_one(x: Tensor) -> list[Tensor]:
    return [x[row] for row in range(len(x))]


# CEL -----------------------------------------------------------------------------------------------------------------


def group_logits(h: Tensor, weight: Tensor, bias: Tensor, apart: Apart = one_by_one) -> Tensor:
    """Class j's logit from class j's vector. (B, C, l), (C, l), (C,) -> (B, C)."""
    return torch.stack([vectors @ w + b for vectors, w, b in zip(apart(h.transpose(0, 1)), apart(weight), bias)], 1)


def class_associative_loss(
    views: Sequence[Tensor], candidates: Tensor, gamma1: float, apart: Apart = one_by_one
) -> Tensor:
    """L_cal, its means taken over the entries of one Gram matrix per sample. (B, C, l) each, (B, C) bool -> scalar."""
    total = candidates.new_zeros((), dtype=views[0].dtype)
    for h in views:
        embeddings = F.normalize(h, dim=2)
        gram = embeddings @ embeddings.mT  # (B, C, C)
        losses = []
        for cosines, inside in zip(apart(gram), candidates, strict=True):
            s = cosines[inside][:, inside].mean()
            d = cosines[inside][:, ~inside].mean() if bool((~inside).any()) else s.new_zeros(())
            losses.append(1 - s + gamma1 * d.abs())
        total = total + torch.stack(losses).mean()
    return total


def likeliest_candidates(logits: Tensor, candidates: Tensor) -> list[int]:
    """arg max over the candidates, sample by sample. (B, C), (B, C) bool -> B classes."""
    chosen = []
    for row, inside in zip(logits, candidates, strict=True):
        labels = inside.nonzero()[:, 0]
        chosen.append(int(labels[row[labels].argmax()]))
    return chosen


def prototype_discriminative_loss(
    views: Sequence[Tensor], classes: Sequence[int], prototypes: Tensor, gamma2: float, apart: Apart = one_by_one
) -> Tensor:
    """L_pdl. (B, C, l) each, B classes, (C, l) of unit or zero length -> scalar."""
    total = prototypes.new_zeros(())
    for h in views:
        losses = []
        for vectors, c in zip(apart(h), classes, strict=True):
            e = F.normalize(vectors[c], dim=0)
            others = torch.cat((prototypes[:c], prototypes[c + 1 :])) @ e
            losses.append(1 - e @ prototypes[c] + gamma2 * others.mean().abs())
        total = total + torch.stack(losses).mean()
    return total


def cel_prototypes(prototypes: Tensor, h: Tensor, classes: Sequence[int]) -> Tensor:
    """Q^c ← normalise(Q^c + Σ_{i: c_i = c} E_i^c). (C, l), (B, C, l) -> (C, l)."""
    moved = prototypes.clone()
    for i, c in enumerate(classes):
        moved[c] += F.normalize(h[i, c], dim=0)
    for c in set(classes):
        moved[c] = F.normalize(moved[c], dim=0)
    return moved


# ABLE, POP, PiCO -----------------------------------------------------------------------------------------------------


def positive_weights(assigned: Tensor, candidates: Tensor, confidence: Tensor) -> Tensor:
    """ABLE: weight of view b as a positive of view a, class by class. (B,), (B, C), (B, C) -> (2B, 2B)."""
    batch = len(assigned)
    weights = confidence.new_zeros(2 * batch, 2 * batch)
    for a in range(2 * batch):
        for j in candidates[a % batch].nonzero()[:, 0].tolist():
            members = (assigned == j).nonzero()[:, 0].tolist()
            for b in (*members, *(m + batch for m in members)):
                if b != a:
                    weights[a, b] = confidence[a % batch, j] / len(members)
    return weights


def purified(weights: Tensor, candidates: Tensor, theta: float) -> tuple[Tensor, Tensor]:
    """POP: a round of purification, label by label. (N, C), (N, C) bool -> sets (N, C) bool, weights (N, C)."""
    sets, averaged = candidates.clone(), torch.zeros_like(weights)
    for i, row in enumerate(weights):
        best = row.max()
        for j in candidates[i].nonzero()[:, 0].tolist():
            if row[j] / best < theta:
                sets[i, j] = False
        kept = sets[i].nonzero()[:, 0]
        averaged[i, kept] = row[kept] / row[kept].sum()
    return sets, averaged


def pico_prototypes(prototypes: Tensor, queries: Tensor, labels: Tensor, gamma: float) -> Tensor:
    """PiCO: μ_c ← γ μ_c + (1 − γ) q sample after sample, rows scaled at the end. (C, d), (B, d), (B,) -> (C, d)."""
    moved = prototypes.clone()
    for query, c in zip(queries, labels.tolist(), strict=True):
        moved[c] = gamma * moved[c] + (1 - gamma) * query
    return torch.stack([F.normalize(row, dim=0) for row in moved])
