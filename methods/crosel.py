"""CroSel — two networks select confident labels for each other.

S. Tian, H. Wei, Y. Wang, L. Feng: CroSel: Cross Selection of Confident Pseudo Labels for Partial-Label Learning,
CVPR 2024 (arXiv 2303.10365 v3).

Each network remembers its largest probability and that class, over all classes, for each sample in the last t epochs.
At the start of an epoch network k selects sample i with label ŷ^k_i where

    the class was the same in all t epochs,  its mean probability is above γ,  the class is in S_i,

and r is the share of selected samples, averaged over the networks. A step of network k, k̄ being the other one:

    L_l = mean over the batch's selected rows of −log softmax(f(weak))_{ŷ^k̄}         cross selection
    P = [softmax of f(strong) over S; softmax of f(weak) over S]                     targets of X = [weak; strong], constant
    X̃ = l X + (1−l) X_π,  P̃ = l P + (1−l) P_π,  l = max(b, 1−b),  b ~ Beta(α, α)     co-mix
    L_cr = −(1/2B) Σ_i Σ_j P̃_ij log softmax(f(X̃_i))_j
    L = L_l + (1 − r) λ_cr L_cr

Before, a warm-up with the loss of CC. The mean of both networks' logits predicts. The networks meet in labels and r
only, so one optimiser on the sum of their losses trains both.

The release draws a second batch from the selected samples. Here the labelled rows are the selected ones among the batch:
L_l has the same expectation, but each selected sample is used once per epoch instead of 1/r times. Of the paper the
abstract, the overview figure and Algorithm 1 were available; defaults follow the released code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods.base import About, Batch, Clock, Method, Step, Task, TrainingData
from methods.blocks import Classifier, at_least_float32, candidate_softmax, draw_mixing, mix, soft_cross_entropy
from methods.cc import candidate_likelihood_loss
from methods.registry import register

UNSELECTED = -1  # in place of a label


def top_prediction(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest probability and its class, ties to the lowest. (N, C) -> (N,), (N,)."""
    probability, top = torch.softmax(at_least_float32(logits), dim=1).max(1)
    return probability, top


def push(bank: Tensor, newest: Tensor) -> Tensor:
    """Drop the bank's oldest slice, the first, and append the newest. (t, N), (N,) -> (t, N)."""
    return torch.cat((bank[1:], newest[None].to(bank.dtype)))


def select(top_probability: Tensor, top_class: Tensor, candidates: Tensor, threshold: float) -> Tensor:
    """Return the label of each selected sample, −1 elsewhere. (t, N), (t, N), (N, C) -> (N,).

    A slice with probability 0 was never written: nothing is selected before all are.
    """
    label = top_class[-1]
    stable = (top_class == label).all(0) & (top_probability > 0).all(0)
    confident = top_probability.mean(0) > threshold
    admissible = candidates.bool().gather(1, label[:, None]).squeeze(1)
    return torch.where(stable & confident & admissible, label, UNSELECTED)


def selected_share(labels: Tensor) -> Tensor:
    """r: share of samples with a label. (…, N) -> ()."""
    return (labels != UNSELECTED).float().mean()


def crossed_targets(logits: Tensor, candidates: Tensor, temperature: float = 1.0) -> Tensor:
    """Return the candidate softmax of [strong; weak], the targets of [weak; strong]. (2B, C), (B, C) -> (2B, C)."""
    return candidate_softmax(at_least_float32(logits) / temperature, candidates.repeat(2, 1))


def labelled_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy averaged over the selected rows, 0 if there is none. (B, C), (B,) -> scalar."""
    total = F.cross_entropy(at_least_float32(logits), labels, ignore_index=UNSELECTED, reduction="sum")
    return total / (labels != UNSELECTED).sum().clamp_min(1)


@register
class CroSel(Method):
    """Each of two networks trains on the confident labels of the other: candidates that stayed its prediction, with high
    probability, for several epochs. A consistency loss on mixed images covers all samples.

    Network outputs: logits of two networks.
    """

    name = "crosel"
    about = About(
        "CroSel",
        "PLL",
        venue="CVPR",
        year=2024,
        forwards="10, and 2 per epoch",
        state="second network, two t×N banks and labels",
    )
    views = ("weak", "strong", "plain")

    @dataclass(frozen=True)
    class Config:
        warmup: float = 0.05  # released: 10 of 200 epochs; at least `history`, unless 0
        history: int = 3  # t, epochs; released
        threshold: float = 0.9  # γ; released
        lambda_cr: float = 1.0  # released command for CIFAR-100; for CIFAR-10: 4
        mixup_alpha: float = 0.75  # α; released
        mixup: bool = True  # released commands; its parser's default is off
        warmup_view: Literal["plain", "weak"] = "plain"  # released; the paper does not say
        # Algorithm 1 names a temperature T. The release computes sharpened targets and overwrites them at once.
        sharpen: Literal["none", "power"] = "none"  # released; "power": p^(1/T), renormalised
        sharpen_T: float = 0.5  # released commands, without effect there

        def __post_init__(self) -> None:
            if self.history < 1:
                raise ValueError(f"crosel: history must be at least one epoch, got {self.history}.")
            if self.sharpen_T <= 0 or self.mixup_alpha <= 0:
                raise ValueError(
                    f"crosel: sharpen_T and mixup_alpha must be positive, got {self.sharpen_T} and {self.mixup_alpha}."
                )

        @property
        def temperature(self) -> float:
            """Return T of the co-mix targets."""
            return self.sharpen_T if self.sharpen == "power" else 1.0

    candidates: Tensor  # (N, C) bool
    top_probability: Tensor  # (2, t, N) banks, oldest slice first; 0 where none was written
    top_class: Tensor  # (2, t, N)
    labels: Tensor  # (2, N) ŷ since the start of the epoch
    ratio: Tensor  # () r

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.networks = nn.ModuleList([Classifier(task), Classifier(task)])
        banks = (2, config.history, task.num_samples)
        self.register_buffer("candidates", task.candidates.bool().clone())
        self.register_buffer("top_probability", torch.zeros(banks))
        self.register_buffer("top_class", torch.zeros(banks, dtype=torch.int64))
        self.register_buffer("labels", torch.full((2, task.num_samples), UNSELECTED))
        self.register_buffer("ratio", torch.zeros(()))

    def in_warmup(self, clock: Clock) -> bool:
        warmup = self.config.warmup
        return warmup > 0 and clock.epoch < max(self.config.history, clock.epochs_of(warmup))

    @torch.no_grad()
    def on_epoch_start(self, clock: Clock, data: TrainingData) -> None:
        if self.in_warmup(clock):
            return
        for k in range(2):
            self.labels[k] = select(self.top_probability[k], self.top_class[k], self.candidates, self.config.threshold)
        self.ratio.copy_(selected_share(self.labels))

    @torch.no_grad()
    def on_epoch_end(self, clock: Clock, data: TrainingData) -> None:
        self.eval()
        predictions = data.infer(lambda images: sum((top_prediction(network(images)) for network in self.networks), ()))
        self.train()
        for k in range(2):
            self.top_probability[k] = push(self.top_probability[k], predictions[2 * k])
            self.top_class[k] = push(self.top_class[k], predictions[2 * k + 1])

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        if self.in_warmup(clock):
            images = batch.views[2 if self.config.warmup_view == "plain" else 0]
            losses = [candidate_likelihood_loss(network(images), batch.candidates) for network in self.networks]
            return Step(losses[0] + losses[1], {f"network{k + 1}": loss.detach() for k, loss in enumerate(losses)})
        (first, logs), (second, more) = self.network_loss(0, batch), self.network_loss(1, batch)
        return Step(first + second, logs | more)

    def network_loss(self, k: int, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of one network, trained on the labels that the other selected, and its parts."""
        config, network = self.config, self.networks[k]
        weak, strong, _ = batch.views
        labelled_term = labelled_loss(network(weak), batch.rows(self.labels[1 - k]))
        with torch.no_grad():
            targets = crossed_targets(network(torch.cat((strong, weak))), batch.candidates, config.temperature)
        images = torch.cat((weak, strong))
        if config.mixup:
            coefficient, partners = self.draw_mix(k, images)
            coefficient = torch.maximum(coefficient, 1 - coefficient)
            images, targets = (mix(values, partners, coefficient) for values in (images, targets))
        consistency = soft_cross_entropy(network(images), targets)
        loss = labelled_term + (1 - self.ratio) * config.lambda_cr * consistency
        parts = {"network": loss, "labelled": labelled_term, "comix": consistency}
        return loss, {f"{name}{k + 1}": value.detach() for name, value in parts.items()}

    def draw_mix(self, k: int, images: Tensor) -> tuple[Tensor, Tensor]:
        """Draw b, (), and partners π, (2B,), of network k."""
        return draw_mixing(images, self.config.mixup_alpha)

    def predict(self, images: Tensor) -> Tensor:
        return (self.networks[0](images) + self.networks[1](images)) / 2

    def predictions(self, images: Tensor) -> dict[str, Tensor]:
        return {f"network{k + 1}": network(images) for k, network in enumerate(self.networks)}

    def diagnostics(self) -> dict[str, float]:
        return {f"selected{k + 1}": float(selected_share(self.labels[k])) for k in range(2)}
