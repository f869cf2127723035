"""PaPi beyond its golden numbers and the contract."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from methods.base import Clock
from methods.blocks import draw_mixing
from methods.papi import PaPi
from tests.support import tiny

CONFIG = PaPi.Config(embed_dim=4, rampup=0.25)
FIRST = Clock(0, 0, 4, 5)


def test_the_alignment_has_no_weight_in_the_first_epoch_however_short_the_ramp() -> None:
    method = PaPi(replace(CONFIG, rampup=0.0), tiny.tiny_task())
    assert method.psi(FIRST) == 0.0 and method.psi(Clock(1, 5, 4, 5)) == 1.0


@pytest.mark.parametrize("alpha", [0.05, 0.75, 8.0])
def test_mixing_coefficients_are_beta_distributed(alpha: float) -> None:
    torch.manual_seed(0)
    draws = torch.stack([draw_mixing(torch.zeros(2, 1), alpha)[0] for _ in range(4000)])
    assert torch.isfinite(draws).all() and draws.mean().item() == pytest.approx(0.5, abs=0.03)
    assert draws.var().item() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.1)
