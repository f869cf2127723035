"""Parts of methods that could grow faster than the data: CEL's class-wise losses, VALEN's neighbour search.

The losses are compared with loops that state the equations literally, with a (B, C, C) Gram matrix where the paper sums
over pairs of classes. They index row by row; with `torch.unbind` they are 1.3 times as fast at 200 classes, 2.9 at 1,000.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmark.speed.timing import CPU, Work, compare, seconds
from benchmark.train.guard import peak_memory_mb, reset_peak_memory
from methods import cel
from methods.parts.knn import nearest_neighbours

CLASSES = (200, 1000)
BATCH, LENGTH = 32, 512  # the paper's vectors; its batch of 128 would take minutes as loops
GOALS = {200: 10.0}  # by number of classes
GAMMA = 1.0
ROWS, WIDTH, NEIGHBOURS = 50_000, 512, 3  # CIFAR-100 and ResNet-18
GOAL_MB = 2048.0


def class_associative_loss(h: Tensor, candidates: Tensor) -> Tensor:
    """L_cal, its means taken over the entries of one Gram matrix per sample. (B, C, l), (B, C) bool -> scalar."""
    embeddings = F.normalize(h, dim=2)
    gram = embeddings @ embeddings.mT
    losses = []
    for i, inside in enumerate(candidates):
        cosines = gram[i]
        s = cosines[inside][:, inside].mean()
        d = cosines[inside][:, ~inside].mean() if bool((~inside).any()) else s.new_zeros(())
        losses.append(1 - s + GAMMA * d.abs())
    return torch.stack(losses).mean()


def prototype_discriminative_loss(h: Tensor, classes: Tensor, prototypes: Tensor) -> Tensor:
    """L_pdl. (B, C, l), (B,), (C, l) of unit length -> scalar."""
    losses = []
    for i, c in enumerate(classes.tolist()):
        e = F.normalize(h[i, c], dim=0)
        others = torch.cat((prototypes[:c], prototypes[c + 1 :])) @ e
        losses.append(1 - e @ prototypes[c] + GAMMA * others.mean().abs())
    return torch.stack(losses).mean()


def cel_losses(classes: int, batch: int = BATCH, length: int = LENGTH) -> tuple[Work, Work]:
    """Both losses of two views and their gradients, by loops and vectorised.

    There are about ten candidates per sample, the average of CIFAR-100.
    """
    generator = torch.Generator().manual_seed(classes)
    candidates = torch.rand(batch, classes, generator=generator) < 10 / classes
    candidates[torch.arange(batch), torch.randint(classes, (batch,), generator=generator)] = True
    views = [torch.randn(batch, classes, length, generator=generator).requires_grad_() for _ in range(2)]
    prototypes = F.normalize(torch.randn(classes, length, generator=generator), dim=1)
    choice = cel.high_confidence_class(torch.randn(batch, classes, generator=generator), candidates)

    def with_gradients(loss_of: Callable[[Tensor], Tensor]) -> list[Tensor]:
        loss = torch.stack([loss_of(h) for h in views]).sum()
        return [loss.detach(), *torch.autograd.grad(loss, views)]

    def loop(h: Tensor) -> Tensor:
        pull = class_associative_loss(h, candidates)
        return pull + prototype_discriminative_loss(h, choice.classes, prototypes)

    def vectorised(h: Tensor) -> Tensor:
        chosen = cel.class_embeddings(h, choice.classes)
        pull = cel.class_associative_loss(h, candidates, GAMMA)
        return pull + cel.prototype_discriminative_loss(chosen, choice, prototypes, GAMMA)

    return lambda: with_gradients(loop), lambda: with_gradients(vectorised)


def measure_losses(rounds: int) -> list[dict[str, Any]]:
    """Both losses with their gradients, vectorised and as loops, a row per number of classes."""
    rows: list[dict[str, Any]] = []
    for classes in CLASSES:
        slow, fast, ratio = compare(*cel_losses(classes), rounds)
        goal = GOALS.get(classes)
        row = {"classes": classes, "loops_ms": 1e3 * slow, "vectorised_ms": 1e3 * fast, "times_faster": ratio}
        rows.append({**row, "goal": goal, "met": None if goal is None else ratio >= goal})
    return rows


def measure_neighbours(rows: int = ROWS, width: int = WIDTH) -> list[dict[str, Any]]:
    """One row: peak memory is that of the whole process, of which `own_mb` came with the search."""
    features = torch.randn(rows, width, generator=torch.Generator().manual_seed(0))
    reset_peak_memory(CPU)
    before = peak_memory_mb(CPU)
    spent = seconds(lambda: nearest_neighbours(features, NEIGHBOURS))
    peak = peak_memory_mb(CPU)
    memory = {"peak_mb": peak, "own_mb": peak - before, "goal": GOAL_MB, "met": peak < GOAL_MB}
    return [{"features": f"{rows:,} × {width}", "neighbours": NEIGHBOURS, "seconds": spent, **memory}]
