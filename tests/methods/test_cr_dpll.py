"""CR-DPLL beyond its golden numbers and the contract."""

from __future__ import annotations

import pytest
import torch

from methods import cr_dpll


def test_the_supervised_loss_keeps_its_gradient_where_a_wrong_label_has_all_the_probability() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    loss = cr_dpll.supervised_loss(logits, torch.tensor([[False, True, True]]))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == pytest.approx(1e4)
    assert torch.allclose(gradient, torch.tensor([[1.0, 0.0, -1.0]]))
