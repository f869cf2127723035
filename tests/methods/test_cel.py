"""CEL beyond its golden numbers and the contract."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from methods.base import Clock
from methods.blocks import unit
from methods.cel import (
    CEL,
    Proden2V,
    Variant,
    class_affinities,
    high_confidence_class,
    prototype_discriminative_loss,
    updated_prototypes,
)
from methods.networks.ml_decoder import ClassWiseEncoder
from tests.support.tiny import TinyOptimiser, tiny_batch, tiny_task

CONFIG = CEL.Config(embedding_length=8, heads=2, feed_forward=12)
RELEASED = replace(
    CONFIG,
    cal_variant="released",
    pdl_variant="released",
    selection="masked_product",
    prototype_variant="released",
    prototype_before_loss=True,
)
FIRST, SECOND = Clock(0, 0, 4, 5), Clock(2, 10, 4, 5)


def test_a_single_candidate_is_pulled_nowhere() -> None:
    h = torch.randn(4, 5, 6, requires_grad=True)
    candidates = torch.eye(5, dtype=torch.bool)[:4]
    cases: tuple[tuple[Variant, float], ...] = (("paper", 1.0), ("released", 0.0))
    for variant, value in cases:
        s, _ = class_affinities(h, candidates, variant)
        torch.testing.assert_close(s, torch.full((4,), value))
        assert torch.autograd.grad(s.sum(), h)[0].abs().max() < 1e-6


def test_selections_differ_where_the_paper_and_the_code_do() -> None:
    logits = torch.tensor([[-1.0, -2.0, 3.0], [5.0, 1.0, 2.0]])
    candidates = torch.tensor([[True, True, False], [False, True, True]])
    assert high_confidence_class(logits, candidates).classes.tolist() == [0, 2]
    assert high_confidence_class(logits, candidates, "masked_product").classes.tolist() == [2, 2]
    for sets, expected in ((candidates, [0.0, 0.0]), (~candidates, [1.0, 1.0])):
        assert high_confidence_class(logits, sets, "global").counts.tolist() == expected


def test_the_encoder_has_the_published_size_and_scale() -> None:
    classes = 10
    encoder = ClassWiseEncoder(512, classes, length=512, heads=8, feed_forward=2048, dropout=0.1).eval()
    assert sum(p.numel() for p in encoder.parameters() if p.requires_grad) == 3_416_064 + 513 * classes
    with torch.no_grad():
        h, logits = encoder(torch.randn(2, 512, 2, 2))
    assert h.shape == (2, classes, 512) and logits.shape == (2, classes)
    torch.testing.assert_close(h.norm(dim=2), torch.full((2, classes), 512**0.5), rtol=1e-3, atol=0)


def test_the_ablation_switches_terms_on_one_by_one() -> None:
    task = tiny_task()
    batch = tiny_batch(task, range(6))
    for config, early, late in [
        (CONFIG, {"cls", "cal"}, {"cls", "cal", "pdl"}),
        (replace(CONFIG, beta=0.0), {"cls", "cal"}, {"cls", "cal"}),
        (replace(CONFIG, alpha=0.0, beta=0.0), {"cls"}, {"cls"}),
    ]:
        method = CEL(config, task)
        assert set(method.training_step(batch, FIRST).logs) == early
        assert set(method.training_step(batch, SECOND).logs) == late


def test_the_control_is_cel_with_the_classification_loss_alone() -> None:
    task = tiny_task()
    config = Proden2V.Config(embedding_length=8, heads=2, feed_forward=12)
    losses = []
    for method in (Proden2V(config, task), CEL(replace(CONFIG, alpha=0.0, beta=0.0), task)):
        torch.manual_seed(0)
        for parameter in method.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        torch.nn.init.normal_(method.network[1].queries)  # type: ignore[index]
        losses.append(method.training_step(tiny_batch(task, range(6)), SECOND).loss)
    assert torch.equal(*losses)


def test_half_precision_does_not_touch_the_sums_behind_losses_and_prototypes() -> None:
    torch.manual_seed(0)
    h, candidates = torch.randn(6, 5, 8), torch.eye(5, dtype=torch.bool)[[0, 1, 2, 3, 4, 0]] | (torch.rand(6, 5) < 0.5)
    choice = high_confidence_class(torch.randn(6, 5), candidates)
    prototypes, chosen = unit(torch.randn(5, 8)), unit(torch.randn(6, 8))

    def results() -> list[Tensor]:
        return [
            *class_affinities(h, candidates),
            *class_affinities(h, candidates, "released"),
            prototype_discriminative_loss(chosen, choice, prototypes, 1.0),
            prototype_discriminative_loss(chosen, choice, prototypes, 1.0, "released"),
            updated_prototypes(prototypes, chosen, choice),
        ]

    exact = results()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        lowered = results()
    assert all(torch.equal(a, b) for a, b in zip(exact, lowered, strict=True))


def test_stored_confidences_stay_uniform_until_the_first_refresh() -> None:
    task = tiny_task()
    batch = tiny_batch(task, range(6))
    for first_refresh, epoch, moves in ((0, 0, True), (2, 1, False), (2, 2, True)):
        method = CEL(replace(CONFIG, first_refresh=first_refresh), task)
        start = method.confidence().clone()
        method.update(batch, TinyOptimiser(method), Clock(epoch, 5 * epoch, 4, 5))
        assert torch.equal(start, method.confidence()) != moves
        assert method.prototypes.any(), "prototypes move all the same"
