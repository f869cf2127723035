"""IDGP — decompositional generation process.

C. Qiao, N. Xu, X. Geng: Decompositional Generation Process for Instance-Dependent Partial Label Learning, ICLR 2023.

A candidate set S is thought to arise in two steps: the annotator has the correct label in mind, a draw from
Categorical θ(x), and adds incorrect labels that fit the image, independent Bernoulli draws with probabilities z(x):

    p(S | x) = Σ_{j∈S} θ_j (1 − z_j) Π_{k∈S, k≠j} z_k Π_{k∉S} (1 − z_k),   θ = softmax(u/T1), z = σ(h/T2).

u are the logits of network f, h those of network g. Both are fitted by MAP. Jensen's inequality bounds the likelihood
by −Σ_j ρ_j log θ_j for f, ρ_j ∝ (1 − z_j)/z_j over S, and by the binary cross-entropy of z against s − ω for g,
ω_j = θ_j / Σ_{k∈S} θ_k. The priors, Dirichlet(1 + d) on θ and Beta(1 + b, 2 − b) on z, take the networks' own recorded
outputs d and b. Summed over three views, with λ ramping up over the epochs after the warm-up:

    L_F = α ΣP_f + β ΣK_f + λ δ ΣG_f,   L_G = θ_w ΣP_g + γ ΣK_g + λ η ΣG_g

(P prior, K likelihood, G consistency with d and b). The classifier is f. (1 − z_j)/z_j = exp(−h_j/T2), so everything
below stays in the log domain: the products over S in the released code underflow in float32 for large sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from methods.base import About, Batch, Clock, Method, Step, Task
from methods.blocks import (
    Classifier,
    at_least_float32,
    candidate_softmax,
    linear_ramp,
    masked_argmax,
    masked_logsumexp,
    soft_cross_entropy,
    uniform_confidence,
)
from methods.registry import register

Reduction = Literal["batch", "batch_class"]
GLikelihood = Literal["released", "jensen"]


def f_prior_loss(u: Tensor, d: Tensor, T1: float) -> Tensor:
    """P_f = −(1/B) Σ d log θ. (B, C), (B, C) -> scalar."""
    return soft_cross_entropy(at_least_float32(u) / T1, d)


def f_weights(h: Tensor, d: Tensor, candidates: Tensor, T2: float, flip_pseudo_label: bool) -> Tensor:
    """ρ: (1 − z_j)/z_j normalised over S, with z of the pseudo label arg max d turned into 1 − z if asked. (B, C)."""
    odds = -at_least_float32(h.detach()) / T2
    if flip_pseudo_label:
        pseudo_label = masked_argmax(d, candidates)[:, None]
        odds = odds.scatter(1, pseudo_label, -odds.gather(1, pseudo_label))
    return candidate_softmax(odds, candidates)


def f_likelihood_loss(u: Tensor, rho: Tensor, T1: float) -> Tensor:
    """K_f = −(1/B) Σ ρ log θ. (B, C), (B, C) -> scalar."""
    return soft_cross_entropy(at_least_float32(u) / T1, rho)


def divisor(h: Tensor, reduction: Reduction) -> int:
    """Return c, by which g's sums are divided: B or B·C."""
    return h.numel() if reduction == "batch_class" else len(h)


def g_prior_loss(h: Tensor, b: Tensor, T2: float, reduction: Reduction) -> Tensor:
    """P_g = −(1/c) Σ b log z + (1 − b) log(1 − z) over all labels. (B, C), (B, C) -> scalar."""
    h = at_least_float32(h) / T2
    total = F.binary_cross_entropy_with_logits(h, b.detach().to(h.dtype), reduction="sum")
    return total / divisor(h, reduction)


def g_likelihood_loss(
    h: Tensor, u: Tensor, candidates: Tensor, T1: float, T2: float, reduction: Reduction, form: GLikelihood
) -> Tensor:
    """K_g, binary cross-entropy of z against s − ω; the released form lacks its part ω log z. (B, C) -> scalar."""
    omega = candidate_softmax(at_least_float32(u.detach()) / T1, candidates)
    s = candidates.to(omega.dtype)
    if form == "jensen":
        return g_prior_loss(h, s - omega, T2, reduction)
    correct = (omega * F.logsigmoid(-at_least_float32(h) / T2)).sum()
    return g_prior_loss(h, s, T2, reduction) - correct / divisor(h, reduction)


def f_consistency_loss(u: Tensor, d: Tensor) -> Tensor:
    """G_f = KL(d ‖ softmax(u)), no temperature. (B, C), (B, C) -> scalar."""
    d = d.detach()
    return torch.xlogy(d, d).sum(1).mean() + soft_cross_entropy(u, d)


def g_consistency_loss(h: Tensor, b: Tensor) -> Tensor:
    """G_g = (1/B) Σ b (log b − log σ(h)): no temperature, no term for 1 − b. (B, C), (B, C) -> scalar."""
    b = b.detach()
    return (torch.xlogy(b, b) - b * F.logsigmoid(at_least_float32(h))).sum(1).mean()


def recorded_d(u: Tensor, candidates: Tensor, T1: float) -> Tensor:
    """d of the next visit: θ normalised over S. (B, C) -> (B, C)."""
    return candidate_softmax(at_least_float32(u) / T1, candidates)


def recorded_b(h: Tensor, candidates: Tensor, T2: float) -> Tensor:
    """b of the next visit: z on S, 0 elsewhere. (B, C) -> (B, C)."""
    z = torch.sigmoid(at_least_float32(h) / T2)
    return z * candidates.to(z.dtype)


def marginal_nll(u: Tensor, h: Tensor, candidates: Tensor, T1: float, T2: float) -> Tensor:
    """−log p(S | x) of each sample, exact; a diagnostic, not a training loss. (B, C) -> (B,)."""
    log_theta = F.log_softmax(at_least_float32(u) / T1, dim=1)
    h = at_least_float32(h) / T2
    every_candidate_added = F.binary_cross_entropy_with_logits(h, candidates.to(h.dtype), reduction="none").sum(1)
    return every_candidate_added - masked_logsumexp(log_theta - h, candidates)


@register
class IDGP(Method):
    """One network models the correct label, a second one the labels that an annotator adds to it. Both are fitted to the
    candidate sets by maximum a posteriori estimation; the first one is the classifier.

    Network outputs: logits of two networks.
    """

    name = "idgp"
    about = About("IDGP", "IDPLL", venue="ICLR", year=2023, forwards="6", state="second network, two N×C tables")
    views = ("plain", "strong", "strong")

    @dataclass(frozen=True)
    class Config:
        # released for CIFAR-100 and a learning rate of 1e-3, like the next seven; 1 is neutral; see normalise_weights
        alpha: float = 100.0
        beta: float = 0.01
        delta: float = 1.0
        theta_w: float = 0.1
        gamma: float = 1.0
        eta: float = 1.0
        T1: float = 9.961146318408721
        T2: float = 8.3158546166844
        warm_up: float = 0.01  # released: 5 epochs before the 500; at least one unless 0
        joint_warmup: bool = True  # False as released: f, then g. The two do not interact, jointly data load once
        ramp: float = 0.2  # of λ; released: 100 of 500 epochs, counted from the end of the warm-up
        g_likelihood: GLikelihood = "released"
        flip_pseudo_label: bool = True  # released; repairs the released g likelihood, so False with "jensen"
        g_reduction: Reduction = "batch_class"  # released CIFAR-100 script; "batch" in the other one
        normalise_weights: bool = False  # divide L_F by α + β + δ and L_G by θ_w + γ + η, for learning rates above 0.01

        def __post_init__(self) -> None:
            if self.T1 <= 0 or self.T2 <= 0:
                raise ValueError(f"idgp: the temperatures T1 and T2 must be positive, got {self.T1} and {self.T2}.")

    d: Tensor  # (N, C) recorded output of f
    b: Tensor  # (N, C) recorded output of g

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.f = Classifier(task)
        self.g = Classifier(task)
        self.register_buffer("d", uniform_confidence(task.candidates))
        self.register_buffer("b", task.candidates.to(torch.float32))

    def ramp(self, clock: Clock) -> float:
        """Return λ, by the number of epochs since the warm-up."""
        warm = clock.warmup_epochs(self.config.warm_up) * (1 if self.config.joint_warmup else 2)
        return linear_ramp(clock.epoch - warm, clock.epochs_of(self.config.ramp))

    def in_warmup(self, clock: Clock) -> tuple[bool, bool]:
        """Return whether f and g warm up in this epoch; (False, False) is the main phase."""
        warm = clock.warmup_epochs(self.config.warm_up)
        first, second = clock.epoch < warm, warm <= clock.epoch < 2 * warm
        return (first, first) if self.config.joint_warmup else (first, second)

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        warm_f, warm_g = self.in_warmup(clock)
        if warm_f or warm_g:
            return self.warmup_step(batch, warm_f, warm_g)
        c, views, rows = self.config, len(batch.views), len(batch.index)
        u, h = self.logits(self.f, batch), self.logits(self.g, batch)
        # The views are one tall batch from here on. Every term is a mean over rows, so the sum over views is their
        # number times the mean over all of them.
        d, b = batch.rows(self.d).repeat(views, 1), batch.rows(self.b).repeat(views, 1)
        candidates = batch.candidates.repeat(views, 1)
        rho = f_weights(h, d, candidates, c.T2, c.flip_pseudo_label)
        ramp = self.ramp(clock)
        loss_f = c.alpha * f_prior_loss(u, d, c.T1) + c.beta * f_likelihood_loss(u, rho, c.T1)
        loss_f = loss_f + ramp * c.delta * f_consistency_loss(u, d)
        likelihood = g_likelihood_loss(h, u, candidates, c.T1, c.T2, c.g_reduction, c.g_likelihood)
        loss_g = c.theta_w * g_prior_loss(h, b, c.T2, c.g_reduction) + c.gamma * likelihood
        loss_g = loss_g + ramp * c.eta * g_consistency_loss(h, b)
        if c.normalise_weights:
            loss_f, loss_g = loss_f / (c.alpha + c.beta + c.delta), loss_g / (c.theta_w + c.gamma + c.eta)
        loss_f, loss_g = views * loss_f, views * loss_g
        plain_u, plain_h = u[:rows].detach(), h[:rows].detach()
        nll = marginal_nll(plain_u, plain_h, batch.candidates, c.T1, c.T2).mean()
        logs = {"f": loss_f.detach(), "g": loss_g.detach(), "marginal_nll": nll}
        return Step(loss_f + loss_g, logs, {"u": plain_u, "h": plain_h})

    def warmup_step(self, batch: Batch, warm_f: bool, warm_g: bool) -> Step:
        """Train the networks that warm up on the priors alone, with weight 1."""
        c, views, rows = self.config, len(batch.views), len(batch.index)
        losses: dict[str, Tensor] = {}
        carry: dict[str, Tensor] = {}
        if warm_f:
            u = self.logits(self.f, batch)
            losses["f"] = views * f_prior_loss(u, batch.rows(self.d).repeat(views, 1), c.T1)
            carry["u"] = u[:rows].detach()
        if warm_g:
            h = self.logits(self.g, batch)
            losses["g"] = views * g_prior_loss(h, batch.rows(self.b).repeat(views, 1), c.T2, c.g_reduction)
            carry["h"] = h[:rows].detach()
        logs = {name: loss.detach() for name, loss in losses.items()}
        return Step(torch.stack(list(losses.values())).sum(), logs, carry)

    def logits(self, network: Classifier, batch: Batch) -> Tensor:
        """Return logits of all views, one below the other; a pass each, because batch-norm statistics are per view."""
        return at_least_float32(torch.cat([network(view) for view in batch.views]))

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        if "u" in step.carry:
            batch.store(self.d, recorded_d(step.carry["u"], batch.candidates, self.config.T1))
        if "h" in step.carry:
            batch.store(self.b, recorded_b(step.carry["h"], batch.candidates, self.config.T2))

    def predict(self, images: Tensor) -> Tensor:
        return self.f(images)

    def confidence(self) -> Tensor:
        return self.d
