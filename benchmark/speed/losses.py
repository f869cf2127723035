"""How fast the vectorised parts of methods are, against the same equations as loops, in the same run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmark.speed import reference as plain
from benchmark.speed.timing import keep_large_blocks, seconds
from methods import able, cel, pico, pop
from methods.parts import ml_decoder

CLASSES = (100, 200, 1000)
BATCH, LENGTH = 32, 512  # the paper's vectors; its batch of 128 would take minutes as loops
POP_ROWS = 2000
GOAL_CLASSES, GOAL = 200, 10.0
REPEATS = 5  # of the fast form in a round, so that the clock's resolution plays no part
GAMMA, THETA = 0.99, 0.3


@dataclass(frozen=True)
class Pair:
    """One computation in both forms."""

    name: str
    loops: Callable[[], Any]
    vectorised: Callable[[], Any]


def candidate_sets(rows: int, classes: int, generator: torch.Generator) -> Tensor:
    """(rows, classes) bool with about ten labels in each row, the average size of CIFAR-100's."""
    sets = torch.rand(rows, classes, generator=generator) < 10 / classes
    sets[torch.arange(rows), torch.randint(classes, (rows,), generator=generator)] = True
    return sets


def cel_pair(classes: int, batch: int = BATCH, length: int = LENGTH, apart: plain.Apart = plain.one_by_one) -> Pair:
    """Group classifier, both class-wise losses and their gradients, prototype update, on two views."""
    generator = torch.Generator().manual_seed(classes)
    candidates = candidate_sets(batch, classes, generator)
    leaves = [torch.randn(batch, classes, length, generator=generator).requires_grad_() for _ in range(2)]
    weight = (torch.randn(classes, length, generator=generator) / length).requires_grad_()
    bias = torch.zeros(classes, requires_grad=True)
    prototypes = F.normalize(torch.randn(classes, length, generator=generator), dim=1)

    def gradients(loss: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad(loss, [*leaves, weight, bias]))

    def loops() -> list[Tensor]:
        logits = [plain.group_logits(h, weight, bias, apart) for h in leaves]
        chosen = plain.likeliest_candidates(logits[0].detach(), candidates)
        loss = torch.stack(logits).sum() + plain.class_associative_loss(leaves, candidates, 1.0, apart)
        loss = loss + plain.prototype_discriminative_loss(leaves, chosen, prototypes, 1.0, apart)
        return [loss.detach(), *gradients(loss), plain.cel_prototypes(prototypes, leaves[0].detach(), chosen)]

    def vectorised() -> list[Tensor]:
        logits = [ml_decoder.group_logits(h, weight, bias) for h in leaves]
        choice = cel.high_confidence_class(logits[0], candidates)
        chosen = [cel.class_embeddings(h, choice.classes) for h in leaves]
        loss = torch.stack(logits).sum()
        for h, e in zip(leaves, chosen, strict=True):
            loss = loss + cel.class_associative_loss(h, candidates, 1.0)
            loss = loss + cel.prototype_discriminative_loss(e, choice, prototypes, 1.0)
        moved = cel.updated_prototypes(prototypes, chosen[0].detach(), choice)
        return [loss.detach(), *gradients(loss), moved]

    return Pair("CEL's loss block", loops, vectorised)


def careful_cel_pair(classes: int) -> Pair:
    """The same against loops that do not make autograd pay for every row."""
    return replace(cel_pair(classes, apart=torch.unbind), name="CEL's, careful loops")


def able_pair(classes: int, batch: int = BATCH) -> Pair:
    generator = torch.Generator().manual_seed(classes)
    candidates = candidate_sets(batch, classes, generator)
    confidence = torch.rand(batch, classes, generator=generator) * candidates
    assigned = confidence.argmax(1)
    return Pair(
        "ABLE's positives",
        lambda: [plain.positive_weights(assigned, candidates, confidence)],
        lambda: [able.positive_weights(assigned, candidates, confidence, "per_image")],
    )


def pop_pair(classes: int, rows: int = POP_ROWS) -> Pair:
    generator = torch.Generator().manual_seed(classes)
    candidates = candidate_sets(rows, classes, generator)
    weights = torch.rand(rows, classes, generator=generator) * candidates

    def vectorised() -> list[Tensor]:
        sets = pop.purify_by_ratio(weights, candidates, THETA)
        return [sets, pop.purified_weights(weights, sets)]

    return Pair("POP's purification", lambda: list(plain.purified(weights, candidates, THETA)), vectorised)


def pico_pair(classes: int, batch: int = BATCH, length: int = 128) -> Pair:
    generator = torch.Generator().manual_seed(classes)
    prototypes = F.normalize(torch.randn(classes, length, generator=generator), dim=1)
    queries = F.normalize(torch.randn(batch, length, generator=generator), dim=1)
    labels = torch.randint(classes, (batch,), generator=generator)
    return Pair(
        "PiCO's prototypes",
        lambda: [plain.pico_prototypes(prototypes, queries, labels, GAMMA)],
        lambda: [pico.updated_prototypes(prototypes, queries, labels, GAMMA, "batch")],
    )


def compare(pair: Pair, rounds: int) -> dict[str, float]:
    """Milliseconds of both forms, taking turns, and how many times faster the second is."""
    cpu = torch.device("cpu")
    pair.vectorised(), pair.loops()
    times = []
    for _ in range(rounds):
        slow = seconds(pair.loops, cpu)
        fast = seconds(lambda: [pair.vectorised() for _ in range(REPEATS)], cpu) / REPEATS
        times.append((slow, fast))
    return {
        "loops_ms": 1e3 * median(slow for slow, _ in times),
        "vectorised_ms": 1e3 * median(fast for _, fast in times),
        "ratio": median(slow / fast for slow, fast in times),
    }


def measure(rounds: int = 5, classes: tuple[int, ...] = CLASSES) -> list[dict[str, Any]]:
    """A row per part and number of classes; the last column is growth in time over growth in classes."""
    keep_large_blocks()
    rows: list[dict[str, Any]] = []
    for make in (cel_pair, careful_cel_pair, able_pair, pop_pair, pico_pair):
        before: dict[str, Any] | None = None
        for count in classes:
            pair = make(count)
            row: dict[str, Any] = {"part": pair.name, "classes": count, **compare(pair, rounds)}
            if before is not None:
                growth = row["vectorised_ms"] / before["vectorised_ms"]
                row["growth_per_class"] = growth / (count / before["classes"])
            if make is cel_pair and count == GOAL_CLASSES:
                row |= {"goal": GOAL, "met": row["ratio"] >= GOAL}
            rows.append(row)
            before = row
    return rows
