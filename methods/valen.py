"""VALEN — variational label enhancement for instance-dependent partial labels.

N. Xu, C. Qiao, X. Geng, M.-L. Zhang: Instance-Dependent Partial Label Learning, NeurIPS 2021 (arXiv 2110.12911).

A PRODEN warm-up of the classifier f (Eq. 1, its min relaxed to confidences O) is followed by a second stage with an
encoder g (a copy of f) and a decoder h. With logits u = f(x), a = g(x), candidates S and nearest-neighbour graph A:

    d ~ Dir(s),  s = softmax of a over S + c₀                     the label distribution, reparameterised
    L_rec = 0.01·mse(h(d), x) + 0.01·bce(d, Y) + mse(row-softmax(sigmoid(d dᵀ)), A)      reconstruction (Eq. 9)
    L_α   = KL( Dir(α) ‖ Dir(β₀, …) ),  α = clip(exp(a/4), 0.01, 30)                     prior (Eq. 7)
    L_d   = cross-entropy of softmax(a) with O                                           compatibility (Eq. 10)
    L_o   = cross-entropy of softmax(u) with D                                           classifier risk (Eq. 12)
    L     = w_rec·L_rec + β·L_α + γ·L_d + θ·L_o

D ← κ·(d on S, renormalised) + (1 − κ)·O, then O ← softmax of u over S, both used at the sample's next visit. These are
the terms of the released conference code; `valen_paper.py` has the paper's own form.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods.base import About, Added, Batch, Clock, Method, Step, Task, TrainingData, ViewName
from methods.blocks import (
    Classifier,
    at_least_float32,
    candidate_softmax,
    dirichlet_draw,
    dirichlet_kl,
    full_precision,
    masked_logsumexp,
    soft_cross_entropy,
    training_features,
    uniform_confidence,
)
from methods.networks.knn import batch_adjacency, nearest_neighbours
from methods.registry import register


def min_loss(logits: Tensor, candidates: Tensor) -> Tensor:
    """Eq. 1: cross-entropy with the cheapest candidate, mean over the batch. (B, C), (B, C) -> scalar."""
    log_p = F.log_softmax(at_least_float32(logits), dim=1)
    return -log_p.masked_fill(~candidates.bool(), -math.inf).amax(1).mean()


def concentration(encoder_logits: Tensor, candidates: Tensor, floor: float, detach_normaliser: bool = True) -> Tensor:
    """Return Dirichlet parameters: softmax over the candidates, plus `floor` everywhere. (B, C) -> (B, C)."""
    log_p = F.log_softmax(at_least_float32(encoder_logits), dim=1)
    log_normaliser = masked_logsumexp(log_p, candidates).unsqueeze(1)
    if detach_normaliser:
        log_normaliser = log_normaliser.detach()
    # Masked before exp: a dominant non-candidate would overflow there.
    return (log_p - log_normaliser).masked_fill(~candidates.bool(), -math.inf).exp() + floor


def kl_parameters(encoder_logits: Tensor, scale: float = 0.25, low: float = 0.01, high: float = 30.0) -> Tensor:
    """α = clip(exp(scale·a), low, high), clipped before exp so that no gradient is 0·∞. (B, C) -> (B, C)."""
    return (at_least_float32(encoder_logits) * scale).clamp(math.log(low), math.log(high)).exp()


def similarity(sample: Tensor) -> Tensor:
    """Return inner products of label distributions, sigmoid(d dᵀ), in full precision. (B, C) -> (B, B)."""
    with full_precision(sample):
        return torch.sigmoid(sample @ sample.T)


def input_error(decoded: Tensor, target: Tensor) -> Tensor:
    """Return the mean square between decoder output and its target. (B, P), (B, P) -> scalar."""
    return F.mse_loss(at_least_float32(decoded), target)


def candidate_error(sample: Tensor, candidates: Tensor) -> Tensor:
    """Return the binary cross-entropy of the candidate set with d itself as the logit. (B, C), (B, C) -> scalar."""
    return F.binary_cross_entropy_with_logits(sample, candidates.to(sample.dtype))


def sample_graph(sample: Tensor) -> Tensor:
    """Return the graph that the sample implies: row-softmax of sigmoid(d dᵀ). (B, C) -> (B, B)."""
    return torch.softmax(similarity(sample), dim=1)


def graph_error(sample: Tensor, adjacency: Tensor) -> Tensor:
    """Return the mean square between the graph of the sample and that of the images. (B, C), (B, B) -> scalar."""
    return F.mse_loss(sample_graph(sample), adjacency.to(sample.dtype))


def label_distribution(sample: Tensor, confidence: Tensor, candidates: Tensor, correct: float) -> Tensor:
    """Return the new target: `correct` of the sample, renormalised on the candidates, the rest confidence. (B, C)."""
    inside = sample.detach() * candidates
    inside = inside / inside.sum(1, keepdim=True).clamp_min(torch.finfo(inside.dtype).tiny)
    return correct * inside + (1.0 - correct) * confidence


def input_target(inputs: Tensor, size: int) -> Tensor:
    """Return the target of the decoder. Features (B, d) as they are; images (B, 3, H, W) average-pooled to (B, size).

    32 × 32 images stay as they are; at 224 × 224 a decoder of all pixels would need 90 GB.
    """
    inputs = at_least_float32(inputs)
    if inputs.dim() == 2:
        return inputs
    return F.adaptive_avg_pool2d(inputs, math.isqrt(size // inputs.shape[1])).flatten(1)


def cross_entropies(views: list[Tensor], target: Tensor) -> Tensor:
    """Return the cross-entropy with one target, added over the views. (B, C) each, (B, C) -> scalar."""
    return torch.stack([soft_cross_entropy(logits, target) for logits in views]).sum()


class Decoder(nn.Sequential):
    """Label distribution -> input: two linear layers, Xavier-normal weights, biases 0.01 (released code)."""

    def __init__(self, num_classes: int, size: int) -> None:
        super().__init__(nn.Linear(num_classes, size), nn.ReLU(inplace=True), nn.Linear(size, size))
        self.size = size
        for name, parameter in self.named_parameters():
            nn.init.xavier_normal_(parameter) if name.endswith("weight") else nn.init.constant_(parameter, 0.01)


@register
class Valen(Method):
    """After a PRODEN warm-up, an encoder infers one label distribution per image. It is trained to reconstruct the input, the
    candidate set and a nearest-neighbour graph, and its distributions are the targets of the classifier.

    Network outputs: logits of two networks, features for the graph.
    """

    name = "valen"
    about = About("VALEN", "IDPLL", venue="NeurIPS", year=2021, forwards="2", state="2 N×C tables, N×k neighbours")
    views: ClassVar[tuple[ViewName, ...]] = ("weak",)

    @dataclass(frozen=True)
    class Config:
        warmup: float = 0.02  # paper: 10 of 500 epochs; at least one unless 0
        k: int = 3  # released code: 3 neighbours everywhere
        alpha: float = 1.0  # w_rec; paper and released commands
        beta: float = 0.1  # released commands for instance-dependent sets; paper: 1
        gamma: float = 10.0  # released CIFAR-10 command, journal code for CIFAR-100; paper: 1
        theta: float = 1.0  # paper and released commands
        correct: float = 0.2  # κ; released CIFAR-10 command, journal code; paper: 1
        floor: float = 0.01  # c₀: conference code; journal code 1e-6, whose sampling gradients reach 1e5
        prior: float = 1.0  # β₀: released code; the paper says "minor value"
        detach_normaliser: bool = True  # conference code; journal code False
        sample_from: Literal["masked_softmax", "alpha"] = "masked_softmax"  # released code; paper: one Dirichlet, alpha
        recon_x: Literal["pixels", "features", "none"] = "pixels"  # released code decodes the normalised image
        recon_side: int = 32  # side of that image: all of it on CIFAR, pooled where larger
        graph_refresh: Literal["once", "epoch"] = "once"  # released code; paper: every epoch
        encoder_init: Literal["warm", "fresh"] = "warm"  # copy of f after or before warm-up; the release differs by set
        warmup_loss: Literal["proden", "min"] = "proden"  # what the paper runs, and what its Eq. 1 states
        weight_x: Added[float] = 0.01  # of mse(h(d), x): released code for images; 1 in that for tables
        double_softmax: Added[bool] = False  # True: the warm-up takes probabilities for logits, as some tables were run

    weight_y = 0.01  # released code, literal there

    label_confidence: Tensor  # O (N, C)
    label_distribution: Tensor  # D (N, C), used from the second stage on
    neighbours: Tensor  # (N, k)
    graph_epoch: Tensor  # (), epoch at whose start the graph was built; −1 in warm-up
    feature_target: Tensor  # (N, F), only for recon_x="features"

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.network = Classifier(task)
        self.encoder = copy.deepcopy(self.network)
        features = self.network.backbone.feature_dim
        inputs = self.network.backbone.input_features or 3 * config.recon_side**2
        size = features if config.recon_x == "features" else inputs
        self.decoder = None if config.recon_x == "none" else Decoder(task.num_classes, size)
        n = task.num_samples
        uniform = uniform_confidence(task.candidates)
        self.register_buffer("label_confidence", uniform)
        self.register_buffer("label_distribution", uniform.clone())
        self.register_buffer("neighbours", torch.zeros(n, min(config.k, n - 1), dtype=torch.long))
        self.register_buffer("graph_epoch", torch.tensor(-1))
        if config.recon_x == "features":
            self.register_buffer("feature_target", torch.zeros(n, features))

    def on_epoch_start(self, clock: Clock, data: TrainingData) -> None:
        """Start the second stage in the first epoch after warm-up; a repeated call does nothing."""
        last_epoch = int(self.graph_epoch)
        refresh = self.config.graph_refresh == "epoch" and last_epoch != clock.epoch
        if clock.epoch < clock.warmup_epochs(self.config.warmup) or not (last_epoch < 0 or refresh):
            return
        self.build_graph(data)
        self.graph_epoch.fill_(clock.epoch)
        if last_epoch < 0:
            if self.config.encoder_init == "warm":
                self.encoder.load_state_dict(self.network.state_dict())
            self.label_distribution.copy_(self.label_confidence)
            data.reset_momentum()

    def build_graph(self, data: TrainingData) -> None:
        """Find the neighbours of all training images by the classifier's pooled features."""
        features = training_features(self, self.network, data)
        self.neighbours.copy_(nearest_neighbours(features, self.config.k))
        if self.config.recon_x == "features":
            deviation, mean = torch.std_mean(features, dim=0, correction=0)
            self.feature_target.copy_((features - mean) / deviation.clamp_min(1e-6))

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        logits = [self.network(view) for view in batch.views]
        if clock.epoch < clock.warmup_epochs(self.config.warmup):
            if self.config.double_softmax:
                logits = [torch.softmax(at_least_float32(u), dim=1) for u in logits]
            return Step(self.warmup_loss(logits, batch), carry=(logits[0].detach(), None))
        encoded = [self.encoder(view) for view in batch.views]
        sample = dirichlet_draw(self.concentration(encoded[0], batch.candidates))
        terms = self.terms(logits, encoded, sample, batch)
        logs = {name: term.detach() for name, term in terms.items()}
        return Step(self.objective(terms), logs, carry=(logits[0].detach(), sample.detach()))

    def warmup_loss(self, logits: list[Tensor], batch: Batch) -> Tensor:
        if self.config.warmup_loss == "min":
            return torch.stack([min_loss(u, batch.candidates) for u in logits]).sum()
        return cross_entropies(logits, batch.rows(self.label_confidence))

    def concentration(self, encoded: Tensor, candidates: Tensor) -> Tensor:
        if self.config.sample_from == "alpha":
            return kl_parameters(encoded)
        return concentration(encoded, candidates, self.config.floor, self.config.detach_normaliser)

    def terms(self, logits: list[Tensor], encoded: list[Tensor], sample: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return all terms of the second stage. Cross-entropies add up over the views; the rest is of the first view."""
        return {
            "rec_x": self.config.weight_x * self.input_error(sample, batch),
            "rec_y": self.weight_y * candidate_error(sample, batch.candidates),
            "rec_graph": graph_error(sample, batch_adjacency(self.neighbours, batch.index)),
            "kl": dirichlet_kl(kl_parameters(encoded[0]), self.config.prior),
            "compatibility": cross_entropies(encoded, batch.rows(self.label_confidence)),
            "classifier": cross_entropies(logits, batch.rows(self.label_distribution)),
        }

    def input_error(self, sample: Tensor, batch: Batch) -> Tensor:
        if self.decoder is None:
            return sample.new_zeros(())
        if self.config.recon_x == "features":
            return input_error(self.decoder(sample), batch.rows(self.feature_target))
        return input_error(self.decoder(sample), input_target(batch.views[0], self.decoder.size))

    def objective(self, terms: dict[str, Tensor]) -> Tensor:
        c = self.config
        reconstruction = terms["rec_x"] + terms["rec_y"] + terms["rec_graph"]
        encoder = c.alpha * reconstruction + c.beta * terms["kl"] + c.gamma * terms["compatibility"]
        return encoder + c.theta * terms["classifier"]

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        logits, sample = step.carry
        if sample is not None:  # before the confidence is replaced: D mixes in the one that this step has read
            confidence = batch.rows(self.label_confidence)
            distribution = label_distribution(sample, confidence, batch.candidates, self.config.correct)
            batch.store(self.label_distribution, distribution)
        batch.store(self.label_confidence, candidate_softmax(logits, batch.candidates))

    def predict(self, images: Tensor) -> Tensor:
        return self.network(images)

    def confidence(self) -> Tensor:
        return self.label_confidence


@register
class ValenThreeViews(Valen):
    """The authors' later re-run: cross-entropies on three views, everything else on the plain one."""

    name = "valen-three-views"
    about = About("VALEN (three views)", "control", venue="NeurIPS", year=2021, forwards="6", state="as VALEN")
    views: ClassVar[tuple[ViewName, ...]] = ("plain", "weak", "strong")
