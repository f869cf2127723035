"""IDGP beyond its golden numbers and the contract."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from methods import idgp
from methods.base import Clock
from methods.idgp import IDGP
from tests.support.tiny import start, tiny_batch, tiny_task, train

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


def test_warm_up_lies_inside_the_epochs_and_is_never_skipped_in_short_runs() -> None:
    method = IDGP(IDGP.Config(), tiny_task())
    assert method.in_warmup(Clock(0, 0, 4, 1)) == (True, True)
    assert method.in_warmup(Clock(1, 1, 4, 1)) == (False, False)
    assert method.in_warmup(Clock(4, 4, 500, 1)) == (True, True)
    assert method.in_warmup(Clock(5, 5, 500, 1)) == (False, False)
    assert method.ramp(Clock(5, 5, 500, 1)) == 0
    assert method.ramp(Clock(55, 55, 500, 1)) == pytest.approx(0.5)
    assert method.ramp(Clock(499, 499, 500, 1)) == 1


def test_the_networks_warm_up_independently_of_each_other() -> None:
    task = tiny_task(epochs=4, steps=2)
    joint, joint_sgd = start(IDGP, NEUTRAL, task)
    apart, apart_sgd = start(IDGP, APART, task)
    untouched = {key: value.clone() for key, value in apart.g.state_dict().items()}
    train(joint, task, joint_sgd, range(2))
    train(apart, task, apart_sgd, range(2))
    assert torch.equal(joint.d, apart.d)
    assert all(torch.equal(value, apart.f.state_dict()[key]) for key, value in joint.f.state_dict().items())
    assert all(torch.equal(value, apart.g.state_dict()[key]) for key, value in untouched.items())
    assert torch.equal(apart.b, task.candidates.float()) and not torch.equal(joint.b, apart.b)


def test_normalised_weights_divide_each_total() -> None:
    task = tiny_task()
    config = IDGP.Config()
    plain, _ = start(IDGP, config, task)
    scaled, _ = start(IDGP, replace(config, normalise_weights=True), task)
    a, b = (m.training_step(tiny_batch(task, range(5), 3), PHASES[2]).logs for m in (plain, scaled))
    torch.testing.assert_close(a["f"], b["f"] * 101.01)
    torch.testing.assert_close(a["g"], b["g"] * 2.1)
