"""NEPLL — candidate-aware selective disambiguation by normalised entropy.

S. He, G. Yang, L. Feng: Candidate-aware Selective Disambiguation Based On Normalized Entropy for Instance-dependent
Partial-label Learning, ICCV 2023.

The entropy of a sample's label weights c over its candidates S, divided by that of a uniform guess,

    NE(c) = −Σ_{j∈S} c_j log c_j / log|S|,   0 if |S| = 1,

tells well-disambiguated (WD) from under-disambiguated (UD) samples. Two networks learn side by side, in three phases:

    warm-up    L = CE of the weak view against the stored weights C, as PRODEN
    selection  L = CE_weak + w (CE_strong + MIX + COMP): CE and mix-up on the share `eta` of lowest NE, and on the
               others only that a non-candidate is wrong, COMP = −mean Σ_{j∉S} log(1 − p_j)
    expansion  L = CE_weak + w (CE_strong + MIX) on the selected, who are joined by those with NE below the threshold τ
               of their predicted class, and by those with NE below a running mean κ on whose label both networks agree.

After every step C is the softmax of the weak view's logits over S. The networks meet only in that agreement and in the
prediction, the mean of their logits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods.base import About, Batch, Clock, Method, Step, Task, TrainingData
from methods.blocks import (
    BATCH_NORMS,
    Classifier,
    at_least_float32,
    candidate_softmax,
    linear_ramp,
    mix,
    soft_cross_entropy,
    uniform_confidence,
)
from methods.registry import register

EPSILON = 1e-7  # inside the logarithm of COMP, as released
ClassThreshold = Literal["selected_mean", "class_mean"]


def normalized_entropy(weights: Tensor, candidates: Tensor) -> Tensor:
    """Return the entropy over the candidates divided by log|S|, 0 for singletons. (…, B, C), (B, C) -> (…, B) in [0, 1]."""
    mask = candidates.to(weights.dtype)
    size = mask.sum(-1)
    entropy = -(torch.xlogy(weights, weights) * mask).sum(-1)
    return torch.where(size > 1, entropy / size.clamp_min(2).log(), 0.0)


def select(
    logits: Tensor, candidates: Tensor, eta: float, class_threshold: ClassThreshold
) -> tuple[Tensor, Tensor, Tensor]:
    """Select the ⌈eta·N⌉ samples of lowest NE (ties: the first), (N,) bool; class thresholds τ, (C,); NE, (N,)."""
    posterior = candidate_softmax(logits, candidates)
    ne = normalized_entropy(posterior, candidates)
    count = math.ceil(eta * len(ne))
    rows = ne.argsort(stable=True)[:count]
    selected = torch.zeros_like(ne, dtype=torch.bool)
    selected[rows] = True
    classes, of_selected = posterior.argmax(1)[rows], ne[rows]
    total = class_sums(of_selected, classes, logits.shape[1])
    if class_threshold == "selected_mean":
        return selected, total / max(count, 1), ne
    members = class_sums(torch.ones_like(of_selected), classes, logits.shape[1])
    return selected, total / members.clamp_min(1), ne


def class_sums(values: Tensor, classes: Tensor, num_classes: int) -> Tensor:
    """Sum the values (n,) in [0, 1] of each class (n,) -> (C,)."""
    if values.is_cuda:
        return integer_class_sums(values, classes, num_classes)
    return values.new_zeros(num_classes).index_add_(0, classes, values)


def integer_class_sums(values: Tensor, classes: Tensor, num_classes: int) -> Tensor:
    """Sum the values of each class as multiples of 2^-40.

    A GPU adds in no fixed order, which changes sums of floats but not of integers.
    """
    unit = 2.0**-40
    whole = (values.double() / unit).round().to(torch.int64)
    return (whole.new_zeros(num_classes).index_add_(0, classes, whole).double() * unit).to(values.dtype)


def expand(
    logits: Tensor,
    candidates: Tensor,
    agree: Tensor,
    selected: Tensor,
    weights: Tensor,
    tau: Tensor,
    kappa: Tensor,
    T: float,
    lam: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return selection, current label weights and next κ of the expansion phase, of one network or with a dimension for two.

    logits (…, B, C), candidates (B, C), `agree` (B,): both networks predict the same candidate, selected (…, B),
    `weights` (…, B, C): the stored ones, tau (…, C), kappa (…) -> (…, B), (…, B, C), (…).
    """
    posterior = candidate_softmax(logits, candidates)
    ne = normalized_entropy(posterior, candidates)
    rest = ~selected
    well = rest & (ne < tau.gather(-1, posterior.argmax(-1)))
    rest = rest & ~well
    under = rest & agree & (ne < kappa[..., None])
    # t^(1/T), normalised, is the softmax at temperature T: no logarithm of a weight that may have underflowed.
    sharp_weights = candidate_softmax(at_least_float32(logits) / T, candidates)
    in_force = torch.where(well[..., None], posterior, weights.to(posterior.dtype))
    in_force = torch.where(under[..., None], sharp_weights, in_force)
    mean = masked_mean(ne, rest).to(kappa.dtype)
    return selected | well | under, in_force, torch.where(rest.any(-1), lam * kappa + (1 - lam) * mean, kappa)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over the masked rows, 0 (without gradient) if there is none. (…, B), (…, B) bool -> (…)."""
    mask = mask.to(values.dtype)
    return (values * mask).sum(-1) / mask.sum(-1).clamp_min(1)


def selected_cross_entropy(logits: Tensor, targets: Tensor, selected: Tensor) -> Tensor:
    """Return the soft cross-entropy averaged over the selected rows. (…, B, C), (…, B, C), (…, B) -> (…)."""
    log_p = F.log_softmax(at_least_float32(logits), dim=-1)
    return -masked_mean((log_p * targets.detach().to(log_p.dtype)).sum(-1), selected)


def complementary_loss(logits: Tensor, candidates: Tensor, unselected: Tensor) -> Tensor:
    """Return −Σ_{j∉S} log(1 + 1e-7 − p_j), averaged over the unselected rows. (…, B, C), (B, C), (…, B) -> (…)."""
    log_p = F.log_softmax(at_least_float32(logits), dim=-1)
    log_not = torch.log(EPSILON - torch.expm1(log_p))  # 1 + 1e-7 − p would round the floor in float32
    return -masked_mean(torch.where(candidates.bool(), 0.0, log_not).sum(-1), unselected)


@register
class NEPLL(Method):
    """Two networks start as PRODEN. Then they train on the samples whose label weights have low normalised entropy; from the
    others they only learn that non-candidates are wrong. In a third phase more samples are selected.

    Network outputs: logits of two networks.
    """

    name = "nepll"
    about = About(
        "NEPLL", "IDPLL", "ICCV", 2023, forwards="4–6, and 2 per epoch", state="second network, two N×C weights"
    )
    views = ("weak", "strong")

    @dataclass(frozen=True)
    class Config:
        warmup: float = 60 / 450  # released: end of the warm-up, 60 of 450 epochs; at least one unless 0
        rampup: float = 100 / 450  # released: ramp of w, the first 100 of 450 epochs
        expand: float = 300 / 450  # released: start of the expansion phase, 300 of 450 epochs
        eta: float = 0.6  # released: share of samples selected
        lam: float = 0.99  # released: EMA factor of κ, per step
        T: float = 0.5  # released: temperature that sharpens UD samples
        mix_alpha: int = 4  # released: mix-up coefficients from Beta(4, 4), the larger of l and 1 − l
        # Released: a class's sum of NE over ALL selected samples, about C times smaller than the mean of the class.
        class_threshold: ClassThreshold = "selected_mean"
        ud_ema: Literal["per_epoch", "persistent"] = "per_epoch"  # released: κ starts at 0 again in every epoch

        def __post_init__(self) -> None:
            if not 0 < self.eta <= 1:
                raise ValueError(f"nepll: eta is the share of samples selected, in (0, 1], got {self.eta}.")
            if self.mix_alpha < 1 or self.T <= 0:
                raise ValueError(f"nepll: mix_alpha and T must be positive, got {self.mix_alpha} and {self.T}.")

    candidates: Tensor  # (N, C) bool
    weights: Tensor  # (2, N, C), stored label weights of each network
    selected: Tensor  # (2, N) bool, since the start of the epoch
    tau: Tensor  # (2, C)
    kappa: Tensor  # (2,)

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.networks = nn.ModuleList([Classifier(task), Classifier(task)])
        # Batch norm cannot normalise a single mixed sample when its maps have shrunk to one pixel.
        has_norm = any(isinstance(m, BATCH_NORMS) for m in self.networks.modules())
        self.least_to_mix = 2 if has_norm else 1
        self.register_buffer("candidates", task.candidates.bool().clone())
        self.register_buffer("weights", uniform_confidence(task.candidates).repeat(2, 1, 1))
        self.register_buffer("selected", torch.ones(2, task.num_samples, dtype=torch.bool))
        self.register_buffer("tau", torch.zeros(2, task.num_classes))
        self.register_buffer("kappa", torch.zeros(2))

    def in_warmup(self, clock: Clock) -> bool:
        return clock.epoch < clock.warmup_epochs(self.config.warmup)

    def ramp(self, clock: Clock) -> float:
        """Return w of the losses beside CE_weak."""
        return linear_ramp(clock.epoch, clock.epochs_of(self.config.rampup))

    @torch.no_grad()
    def on_epoch_start(self, clock: Clock, data: TrainingData) -> None:
        if self.config.ud_ema == "per_epoch":
            self.kappa.zero_()
        if self.in_warmup(clock):
            return
        self.eval()
        logits = data.infer(lambda images: tuple(network(images) for network in self.networks))
        self.train()
        for k in range(2):
            selected, tau, _ = select(logits[k], self.candidates, self.config.eta, self.config.class_threshold)
            self.selected[k], self.tau[k] = selected, tau

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        weak = torch.stack([network(batch.views[0]) for network in self.networks])  # (2, B, C)
        posterior = candidate_softmax(weak.detach(), batch.candidates)
        weights = self.weights[:, batch.index]
        carry = {"posterior": posterior}
        if self.in_warmup(clock):
            losses = torch.stack([soft_cross_entropy(weak[k], weights[k]) for k in range(2)])
            return Step(losses.sum(), self.logs({"network": losses}), carry)
        strong = torch.stack([network(batch.views[1]) for network in self.networks])
        selected = self.selected[:, batch.index]
        in_expansion = clock.epoch >= clock.epochs_of(self.config.expand)
        if in_expansion:
            selected, weights, carry["kappa"] = self.expand_selection(
                weak.detach(), batch.candidates, selected, weights
            )
        carry |= {"selected": selected, "targets": weights}
        # Both before either mix forward, so that the device is waited for once in a step.
        rows = [mask.nonzero().squeeze(1) for mask in selected]
        terms = {
            "ce_strong": selected_cross_entropy(strong, weights, selected),
            "mix": torch.stack([self.mix_loss(k, batch.views[0], weights[k], rows[k]) for k in range(2)]),
        }
        if not in_expansion:
            terms["complementary"] = complementary_loss(weak, batch.candidates, ~selected)
        ce_weak = selected_cross_entropy(weak, weights, selected)
        losses = ce_weak + self.ramp(clock) * torch.stack(list(terms.values())).sum(0)
        return Step(losses.sum(), self.logs(terms | {"ce_weak": ce_weak, "network": losses}), carry)

    def expand_selection(
        self, weak: Tensor, candidates: Tensor, selected: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Apply `expand` to both networks: selection (2, B), current label weights (2, B, C), next κ (2,)."""
        c, (first, second) = self.config, candidate_softmax(weak, candidates).argmax(2)
        return expand(weak, candidates, first == second, selected, weights, self.tau, self.kappa, c.T, c.lam)

    def logs(self, terms: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return each term, (2,), under its name with the number of the network."""
        return {f"{name}{k + 1}": value for name, pair in terms.items() for k, value in enumerate(pair.detach())}

    def mix_loss(self, k: int, images: Tensor, weights: Tensor, rows: Tensor) -> Tensor:
        """Return MIX: cross-entropy of network k on mixed weak views of the selected `rows` (n,), hard labels mixed alike.

        Only these rows may be forwarded, because batch-norm statistics depend on them: the one data-dependent shape.
        """
        if len(rows) < self.least_to_mix:
            return weights.new_zeros(())
        coefficient, order = self.draw_mix(k, rows)
        labels = F.one_hot(weights.argmax(1)[rows], self.num_classes).to(weights.dtype)
        logits = self.networks[k](mix(images[rows], order, coefficient))
        return soft_cross_entropy(logits, mix(labels, order, coefficient))

    def draw_mix(self, k: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Draw a coefficient l ≥ 1/2, (), and a permutation, (n,), for the n selected rows of network k."""
        # The median of 2a − 1 uniform draws is Beta(a, a).
        draw = torch.rand(2 * self.config.mix_alpha - 1, device=rows.device).median()
        return torch.maximum(draw, 1 - draw), torch.randperm(rows.shape[0], device=rows.device)

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        # Weights sharpened for one step are not stored.
        self.weights[:, batch.index] = step.carry["posterior"].to(self.weights.dtype)
        if "kappa" in step.carry:
            self.kappa.copy_(step.carry["kappa"])

    def predict(self, images: Tensor) -> Tensor:
        return (self.networks[0](images) + self.networks[1](images)) / 2

    def predictions(self, images: Tensor) -> dict[str, Tensor]:
        return {"network1": self.networks[0](images)}

    def confidence(self) -> Tensor:
        return self.weights.mean(0)

    def diagnostics(self) -> dict[str, float]:
        return {f"ud_threshold{k + 1}": float(self.kappa[k]) for k in range(2)}
