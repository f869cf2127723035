"""Pieces of losses whose gradient is written down instead of recorded: the same numbers in fewer, larger operations.

Autograd would walk a dozen small nodes back for each of these; which shows where networks are small.
Gradients of gradients are not defined. Shapes: B batch, C classes, M other rows.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def _unit(x: Tensor) -> tuple[Tensor, Tensor]:
    length = torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp_min_(1e-12)
    return x / length, length


class _Unit(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        rows, length = _unit(x)
        ctx.save_for_backward(rows, length)
        return rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        rows, length = ctx.saved_tensors
        along = (gradient * rows).sum(1, keepdim=True)
        return torch.addcmul(gradient, rows, along, value=-1).div_(length)


def unit(x: Tensor) -> Tensor:
    """Rows scaled to length 1; a zero row stays zero. (B, D) -> (B, D)."""
    return _Unit.apply(x) if x.requires_grad else _unit(x)[0]


class _UnitSums(Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor, weights: Tensor) -> Tensor:
        lengths = torch.linalg.vector_norm(vectors, dim=2).clamp_min_(1e-12)
        scaled = weights / lengths[:, None]  # dividing the weights sums unit vectors without making them
        ctx.save_for_backward(vectors, lengths, scaled)
        return scaled @ vectors

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        vectors, lengths, scaled = ctx.saved_tensors
        # ∂/∂h_j of Σ w_j ⟨g, h_j/‖h_j‖⟩ is w_j/‖h_j‖ (g − ⟨g, e_j⟩ e_j)
        with torch.autocast(gradient.device.type, enabled=False):  # mixed precision is on during backward passes
            along = ((gradient @ vectors.mT) * scaled).sum(1) / lengths.square()  # (B, C)
            return torch.baddbmm(vectors * along[..., None], scaled.mT, gradient, beta=-1), None


def unit_sums(vectors: Tensor, weights: Tensor) -> Tensor:
    """Σ_j w_kj h_j/‖h_j‖ of each sample; weights constant. (B, C, l), (B, K, C) -> (B, K, l)."""
    return _UnitSums.apply(vectors, weights)


class _Contrast(Function):
    @staticmethod
    def forward(
        ctx: Any,
        anchors: Tensor,
        others: tuple[Tensor, ...],
        weights: Tensor,
        filled: Tensor | None,
        tau: float,
        eps: float,
    ) -> Tensor:
        size = len(anchors)
        columns = torch.cat((anchors, *others)) if others else anchors
        logits = (anchors / tau) @ columns.T
        top = logits.amax(1, keepdim=True) if eps > 0 else None
        lowest = torch.finfo(logits.dtype).min / 4  # finite, so that a weight of 0 times it is 0
        if filled is not None:
            logits = torch.where(filled, logits, lowest)
        logits.fill_diagonal_(lowest)
        if top is None:
            log_p = torch.log_softmax(logits, dim=1)
        else:
            log_p = logits - torch.logaddexp(torch.logsumexp(logits, 1, keepdim=True), top + math.log(eps))
        loss = torch.dot(weights.reshape(-1), log_p.view(-1)) / -size
        pull = torch._log_softmax_backward_data(weights, log_p, 1, log_p.dtype)  # w − p Σw, in one go
        ctx.save_for_backward(torch.addmm(pull[:, :size].T @ anchors, pull, columns))
        ctx.scale = -1 / (size * tau)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        (by_anchors,) = ctx.saved_tensors
        return by_anchors * (gradient * ctx.scale), None, None, None, None, None


def contrastive_loss(
    anchors: Tensor,
    others: tuple[Tensor, ...],
    weights: Tensor,
    tau: float,
    filled: Tensor | None = None,
    eps: float = 0.0,
) -> Tensor:
    """−(1/B) Σ_a Σ_b w_ab log exp(z_a·z_b/τ) / Σ_{k≠a} exp(z_a·z_k/τ), b and k over [anchors; others].

    (B, d), M rows of (…, d), (B, B+M) -> scalar. Anchors get gradient on both sides, all else is constant; w_aa is 0. `filled`
    (B+M,) names the columns that exist. `eps` is added to the sum after the row's largest term, the anchor's with
    itself included, has been taken out of it, as released codes do.
    """
    return _Contrast.apply(anchors, others, weights, filled, tau, eps)


class _DirichletKL(Function):
    @staticmethod
    def forward(ctx: Any, alpha: Tensor, prior: float) -> Tensor:
        size, classes = alpha.shape
        total, excess = alpha.sum(1, keepdim=True), alpha - prior
        ctx.save_for_backward(alpha, total, excess)
        inner = excess * (torch.digamma(alpha) - torch.digamma(total)) - torch.lgamma(alpha)
        constant = classes * math.lgamma(prior) - math.lgamma(classes * prior)
        return (torch.lgamma(total).sum() + inner.sum()) / size + constant

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        alpha, total, excess = ctx.saved_tensors
        # ∂/∂α_k is (α_k − β) ψ′(α_k) − ψ′(Σα) Σ_j (α_j − β): the digammas cancel
        common = torch.polygamma(1, total) * excess.sum(1, keepdim=True)
        return (excess * torch.polygamma(1, alpha) - common) * (gradient / len(alpha)), None


def dirichlet_kl(alpha: Tensor, prior: float) -> Tensor:
    """KL(Dir(α_i) ‖ Dir(prior, …, prior)), mean over the batch. (B, C) -> scalar."""
    return _DirichletKL.apply(alpha, prior)


class _DirichletDraw(Function):
    @staticmethod
    def forward(ctx: Any, parameters: Tensor) -> Tensor:
        # Products of two numbers below this are denormal, and a hundred times slower to compute with.
        sample = torch._sample_dirichlet(parameters).clamp_min_(torch.finfo(parameters.dtype).tiny ** 0.5)
        ctx.save_for_backward(sample, parameters)
        return sample

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        sample, parameters = ctx.saved_tensors
        total = parameters.sum(-1, keepdim=True).expand_as(parameters)
        along = (sample * gradient).sum(-1, keepdim=True)
        return torch._dirichlet_grad(sample, parameters, total) * (gradient - along)


def dirichlet_draw(parameters: Tensor) -> Tensor:
    """One reparameterised draw per row. (…, C) -> (…, C), positive, rows sum to 1."""
    return _DirichletDraw.apply(parameters)
