"""PaPi beyond its golden numbers: what carries gradient, mixing, edge cases, precision, resume."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from methods.base import Clock
from methods.blocks import draw_mixing, uniform_confidence, unit
from methods.papi import PaPi, alignment_loss
from tests.support import tiny

CONFIG = PaPi.Config(embed_dim=4, rampup=0.25)
FIRST, LATER = Clock(0, 0, 4, 5), Clock(2, 10, 4, 5)


def parts(seed: int = 0) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    targets = torch.softmax(torch.randn(5, 3, generator=generator, dtype=torch.float64), 1)
    targets[0] = torch.tensor([0.0, 1.0, 0.0])
    return {
        "prototypes": unit(torch.randn(3, 4, generator=generator, dtype=torch.float64)),
        "targets": targets,
        "partners": torch.tensor([1, 0, 4, 2, 3]),
        "tau": 0.3,
    }


def test_the_alignment_loss_vanishes_where_the_prototypes_say_what_the_targets_say() -> None:
    given = parts()
    mixed = unit(torch.randn(5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).repeat(2, 1)
    given["targets"] = torch.softmax(mixed[:5] @ given["prototypes"].T / 0.3, 1)
    assert alignment_loss(mixed, coefficient=torch.tensor(1.0), **given).abs() < 1e-12


def test_both_forms_of_the_alignment_have_the_same_gradient_and_another_value() -> None:
    mixed = unit(torch.randn(10, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).requires_grad_()
    coefficient = torch.tensor(0.4, dtype=torch.float64)
    two, one = (
        alignment_loss(mixed, coefficient=coefficient, alignment=form, **parts())  # type: ignore[arg-type]
        for form in ("two_targets", "mixed_target")
    )
    assert torch.allclose(torch.autograd.grad(two, mixed)[0], torch.autograd.grad(one, mixed)[0], atol=1e-14)
    assert two > one + 0.01  # the entropy that mixing adds


def test_the_alignment_teaches_encoder_and_projection_but_not_the_linear_classifier() -> None:
    task = tiny.tiny_task()
    torch.manual_seed(0)
    method = PaPi(replace(CONFIG, alignment_weight=1e6), task).train()
    method.prototypes.copy_(unit(torch.randn(3, 4)))
    batch, plain = tiny.tiny_batch(task, range(6)), PaPi(replace(CONFIG, alignment_weight=0.0), task).train()
    plain.load_state_dict(method.state_dict())
    gradients = []
    for one in (method, plain):
        torch.manual_seed(1)
        one.training_step(batch, LATER).loss.backward()
        gradients.append([p.grad for p in one.network.head.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    for name in ("backbone.layers.0.weight", "projection.0.weight"):
        gradient = method.network.get_parameter(name).grad
        assert gradient is not None and gradient.abs().max() > 1


def test_the_alignment_has_no_weight_in_the_first_epoch_however_short_the_ramp() -> None:
    method = PaPi(replace(CONFIG, rampup=0.0), tiny.tiny_task())
    assert method.psi(FIRST) == 0.0 and method.psi(Clock(1, 5, 4, 5)) == 1.0


def test_a_step_makes_four_passes() -> None:
    task = tiny.tiny_task()
    method = PaPi(CONFIG, task).train()
    method.training_step(tiny.tiny_batch(task, range(4)), LATER)
    assert method.state_dict()["network.backbone.layers.1.num_batches_tracked"] == 4


def test_both_views_are_mixed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    task = tiny.tiny_task()
    method = PaPi(CONFIG, task).train()
    coefficient, partners = torch.tensor(0.3), torch.tensor([2, 0, 1])
    monkeypatch.setattr(method, "draw_mix", lambda images: (coefficient, partners))
    seen: list[Tensor] = []
    method.network.backbone.register_forward_pre_hook(lambda module, images: seen.append(images[0]))
    batch = tiny.tiny_batch(task, range(3))
    method.training_step(batch, LATER)
    for shown, view in zip(seen, [*batch.views, *(0.3 * v + 0.7 * v[partners] for v in batch.views)], strict=True):
        assert torch.allclose(shown, view)


@pytest.mark.parametrize("alpha", [0.05, 0.75, 8.0])
def test_mixing_coefficients_are_beta_distributed(alpha: float) -> None:
    torch.manual_seed(0)
    draws = torch.stack([draw_mixing(torch.zeros(2, 1), alpha)[0] for _ in range(4000)])
    assert torch.isfinite(draws).all() and draws.mean().item() == pytest.approx(0.5, abs=0.03)
    assert draws.var().item() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.1)


def test_soft_targets_stay_distributions_on_the_candidates_and_move_from_the_first_step() -> None:
    task = tiny.tiny_task(classes=4)
    torch.manual_seed(0)
    method = PaPi(CONFIG, task)
    tiny.train(method, task, tiny.TinyOptimiser(method), range(20))
    assert (method.targets[~task.candidates] == 0).all()
    assert torch.allclose(method.targets.sum(1), torch.ones(20), atol=1e-6)
    assert not torch.equal(method.targets, uniform_confidence(task.candidates))
    lengths = method.prototypes.norm(dim=1)
    assert (torch.isclose(lengths, torch.ones(4), atol=1e-5) | (lengths == 0)).all()
