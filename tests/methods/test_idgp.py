"""IDGP beyond its golden numbers: large sets, warm-ups, edge cases, precision, resume."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch

from methods import idgp
from methods.base import Clock
from methods.idgp import IDGP
from tests.support.tiny import tiny_batch, tiny_task
from tests.support.tiny_epochs import (
    all_steps,
    run,
    start,
)

NEUTRAL = IDGP.Config(alpha=1, beta=1, delta=1, theta_w=1, gamma=1, eta=1, T1=1, T2=1, warm_up=0.25, ramp=0.5)
APART = replace(NEUTRAL, joint_warmup=False)
DERIVED = replace(NEUTRAL, g_likelihood="jensen", flip_pseudo_label=False, g_reduction="batch")
PHASES = [Clock(0, 0, 4, 2), Clock(1, 2, 4, 2), Clock(3, 6, 4, 2)]


def test_two_hundred_candidates_in_single_precision_give_the_double_precision_numbers() -> None:
    torch.manual_seed(0)
    candidates = torch.ones(4, 200, dtype=torch.bool)
    u, h = torch.randn(4, 200), 3 * torch.randn(4, 200)
    h[0] = 0  # z = ½: the product over 200 candidates underflows
    h[1] = 200  # z rounds to 1
    h[2] = -200  # z rounds to 0
    d = torch.softmax(u, 1)
    rho = idgp.f_weights(h, d, candidates, 1.0, True)
    exact = idgp.f_weights(h.double(), d.double(), candidates, 1.0, True)
    torch.testing.assert_close(rho, exact.float(), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(rho.sum(1), torch.ones(4))
    nll = idgp.marginal_nll(u, h, candidates, 1.0, 1.0)
    torch.testing.assert_close(
        nll, idgp.marginal_nll(u.double(), h.double(), candidates, 1.0, 1.0).float(), rtol=1e-5, atol=0
    )


def test_the_marginal_adds_up_over_all_candidate_sets() -> None:
    torch.manual_seed(0)
    u, h = torch.randn(1, 3).double(), torch.randn(1, 3).double()
    total = sum(
        torch.exp(-idgp.marginal_nll(u, h, torch.tensor([sets]), 1.0, 1.0))
        for sets in product([False, True], repeat=3)
        if any(sets)
    )
    torch.testing.assert_close(total, (torch.softmax(u, 1) * (1 - torch.sigmoid(h))).sum(1))


def test_a_set_of_one_label_gives_it_all_the_weight() -> None:
    one = torch.tensor([[False, True, False]])
    u, h, d = torch.randn(1, 3), torch.randn(1, 3), one.float()
    for flip in (True, False):
        assert torch.equal(idgp.f_weights(h, d, one, 2.0, flip), one.float())
    assert torch.equal(idgp.recorded_d(u, one, 3.0), one.float())
    assert torch.equal(idgp.recorded_b(h, one, 1.0) > 0, one)


def test_the_derived_form_pulls_the_only_candidate_to_not_added_and_the_released_one_to_a_half() -> None:
    one, u = torch.tensor([[True, False, False]]), torch.zeros(1, 3)

    def slope(z: float, form: idgp.GLikelihood) -> float:
        h = torch.logit(torch.tensor([[z, 0.5, 0.5]])).requires_grad_()
        idgp.g_likelihood_loss(h, u, one, 1.0, 1.0, "batch", form).backward()
        assert h.grad is not None
        return h.grad[0, 0].item()

    assert slope(0.01, "jensen") > 0
    assert slope(0.5, "released") == pytest.approx(0, abs=1e-6)
    assert slope(0.4, "released") < 0 < slope(0.6, "released")


def test_warm_up_lies_inside_the_epochs_and_is_never_skipped_in_short_runs() -> None:
    method = IDGP(IDGP.Config(), tiny_task())
    assert method.warming(Clock(0, 0, 4, 1)) == (True, True)
    assert method.warming(Clock(1, 1, 4, 1)) == (False, False)
    assert method.warming(Clock(4, 4, 500, 1)) == (True, True)
    assert method.warming(Clock(5, 5, 500, 1)) == (False, False)
    assert method.ramp(Clock(5, 5, 500, 1)) == 0
    assert method.ramp(Clock(55, 55, 500, 1)) == pytest.approx(0.5)
    assert method.ramp(Clock(499, 499, 500, 1)) == 1


def test_the_networks_warm_up_independently_of_each_other() -> None:
    task = tiny_task(epochs=4, steps=2)
    joint, joint_sgd = start(IDGP, NEUTRAL, task)
    apart, apart_sgd = start(IDGP, APART, task)
    untouched = {key: value.clone() for key, value in apart.g.state_dict().items()}
    run(joint, task, joint_sgd, range(2))
    run(apart, task, apart_sgd, range(2))
    assert torch.equal(joint.d, apart.d)
    assert all(torch.equal(value, apart.f.state_dict()[key]) for key, value in joint.f.state_dict().items())
    assert all(torch.equal(value, apart.g.state_dict()[key]) for key, value in untouched.items())
    assert torch.equal(apart.b, task.candidates.float()) and not torch.equal(joint.b, apart.b)


def test_f_learns_nothing_from_the_loss_of_g_nor_g_from_that_of_f() -> None:
    task = tiny_task()
    method, _ = start(IDGP, replace(NEUTRAL, alpha=0, beta=0, delta=0), task)
    method.training_step(tiny_batch(task, range(5), 3), PHASES[2]).loss.backward()
    assert all(p.grad is None or not p.grad.any() for p in method.f.parameters())
    assert any(p.grad is not None and p.grad.any() for p in method.g.parameters())
    method, _ = start(IDGP, replace(NEUTRAL, theta_w=0, gamma=0, eta=0), task)
    method.training_step(tiny_batch(task, range(5), 3), PHASES[2]).loss.backward()
    assert all(p.grad is None or not p.grad.any() for p in method.g.parameters())
    assert any(p.grad is not None and p.grad.any() for p in method.f.parameters())


def test_normalised_weights_divide_each_total() -> None:
    task = tiny_task()
    config = IDGP.Config()
    plain, _ = start(IDGP, config, task)
    scaled, _ = start(IDGP, replace(config, normalise_weights=True), task)
    a, b = (m.training_step(tiny_batch(task, range(5), 3), PHASES[2]).logs for m in (plain, scaled))
    torch.testing.assert_close(a["f"], b["f"] * 101.01)
    torch.testing.assert_close(a["g"], b["g"] * 2.1)


def test_only_visited_rows_change_and_stay_inside_their_sets() -> None:
    task = tiny_task(epochs=4, steps=2)
    method, sgd = start(IDGP, NEUTRAL, task)
    d, b = method.d.clone(), method.b.clone()
    run(method, task, sgd, all_steps(task), size=3)
    seen = torch.zeros(task.num_samples, dtype=torch.bool)
    for step in all_steps(task):
        torch.manual_seed(step)
        seen[torch.randperm(task.num_samples)[:3]] = True
    assert torch.equal(method.d[~seen], d[~seen]) and torch.equal(method.b[~seen], b[~seen])
    assert not method.d[~task.candidates].any() and not method.b[~task.candidates].any()
    torch.testing.assert_close(method.confidence().sum(1), torch.ones(task.num_samples))
