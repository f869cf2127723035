"""VALEN as its paper writes it, with a graph-convolution encoder; `valen.py` has what its results were made with.

N. Xu, C. Qiao, X. Geng, M.-L. Zhang: Instance-Dependent Partial Label Learning, NeurIPS 2021 (arXiv 2110.12911).

The paper's encoder is a two-layer graph convolution on features Φ and candidates Y,

    Δ = Ã ReLU(Ã [Φ; Y] W₀) W₁,  Ã = D^{-1/2} A D^{-1/2}  (Eqs. 3–5),  α = clip(exp(Δ/4), 0.01, 30),  d ~ Dir(α)

with one Dirichlet for sampling and prior (Eqs. 4, 7), and it minimises λ·L_comp − ELBO, where

    ELBO = Σ [Y ln τ + (1 − Y) ln(1 − τ)] − ‖A − sigmoid(d dᵀ)‖² − KL(Dir(α) ‖ Dir(ε))  (Eq. 9), τ an MLP of d
    L_comp = −(1/n) Σ_ij (Y_ij/|S_i|) ln d_ij  (Eq. 10)

and trains the classifier on d renormalised over the candidates (Eq. 12). Each epoch rebuilds features and graph. Here
the ELBO is taken over the mini-batch and divided by its size, so that one pass serves encoder and classifier; the
classifier learns from the draw of the sample's previous visit, one epoch ago.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods.base import About, Batch, Clock, Method, Step, Task, TrainingData
from methods.blocks import (
    Classifier,
    at_least_float32,
    candidate_softmax,
    dirichlet_draw,
    dirichlet_kl,
    soft_cross_entropy,
    training_features,
    uniform_confidence,
)
from methods.networks.knn import batch_adjacency, nearest_neighbours
from methods.registry import register
from methods.valen import kl_parameters, label_distribution, similarity


def propagate(values: Tensor, neighbours: Tensor) -> Tensor:
    """Return Ã·values for the graph max(A, Aᵀ) + I, symmetrically normalised, without building it. (N, H), (N, k) -> (N, H).

    An edge that both ends list is counted once: its reverse gets weight 0.
    """
    n, k = neighbours.shape
    rows = torch.arange(n, device=neighbours.device)
    mutual = (neighbours[neighbours] == rows[:, None, None]).any(2)
    reverse = (~mutual).flatten().to(values.dtype)
    degree = torch.full((n,), k + 1.0, dtype=values.dtype, device=values.device)
    degree = degree.index_add(0, neighbours.flatten(), reverse)
    messages = values * degree.rsqrt().unsqueeze(1)
    total = messages + messages[neighbours].sum(1)
    incoming = messages.repeat_interleave(k, dim=0) * reverse.unsqueeze(1)
    return total.index_add(0, neighbours.flatten(), incoming) * degree.rsqrt().unsqueeze(1)


def graph_block(neighbours: Tensor, index: Tensor) -> Tensor:
    """Return the batch's block of the symmetric 0/1 graph with unit diagonal. (N, k), (B,) -> (B, B) bool."""
    edges = batch_adjacency(neighbours, index) > 0
    return edges | edges.T


def log_likelihood(sample: Tensor, tau_logits: Tensor, candidates: Tensor, adjacency: Tensor) -> Tensor:
    """Eq. 9 for one sample, sums over the batch. (B, C), (B, C) logits of τ, (B, C), (B, B) -> scalar."""
    tau_logits = at_least_float32(tau_logits)
    labels = -F.binary_cross_entropy_with_logits(tau_logits, candidates.to(tau_logits.dtype), reduction="sum")
    return labels - (adjacency.to(sample.dtype) - similarity(sample)).square().sum()


def compatibility_loss(sample: Tensor, target: Tensor) -> Tensor:
    """Eq. 10: −Σ_j t_ij ln d_ij, mean over the batch. (B, C), (B, C) -> scalar."""
    return -(target * sample.log()).sum(1).mean()


def risk(logits: Tensor, sample: Tensor, candidates: Tensor) -> Tensor:
    """Eq. 12: cross-entropy with d renormalised on the candidates. All (B, C) -> scalar."""
    return soft_cross_entropy(logits, label_distribution(sample, sample, candidates, correct=1.0))


class GraphEncoder(nn.Module):
    """The second half of the graph convolution; its input Ã [Φ; Y] is constant within an epoch."""

    def __init__(self, dim_in: int, num_classes: int, hidden: int) -> None:
        super().__init__()
        self.weight0 = nn.Parameter(nn.init.xavier_uniform_(torch.empty(dim_in, hidden)))
        self.weight1 = nn.Parameter(nn.init.xavier_uniform_(torch.empty(hidden, num_classes)))

    def forward(self, smoothed: Tensor, neighbours: Tensor) -> Tensor:
        """Return the logits of α. (N, F + C) -> (N, C)."""
        return propagate(at_least_float32(torch.relu(smoothed @ self.weight0) @ self.weight1), neighbours)


@register
class ValenPaper(Method):
    """The variational method as printed: graph-convolution encoder, one Dirichlet, candidates and graph decoded."""

    name = "valen-paper"
    about = About("VALEN (paper)", "control", venue="NeurIPS", year=2021, forwards="1", state="2 N×C, N×(F+C), N×k")
    views = ("weak",)

    @dataclass(frozen=True)
    class Config:
        warmup: float = 0.02  # paper: 10 of 500 epochs
        k: int = 3  # released code; the paper gives no value
        hidden: int = 256  # not in the paper
        prior: float = 0.1  # ε: the paper says "minor value" and gives none
        lam: float = 1.0  # λ, paper
        target: Literal["logical", "confidence"] = "logical"  # Eq. 10; the released code has the confidence there
        draws: int = 1  # paper

    label_confidence: Tensor  # O (N, C)
    label_distribution: Tensor  # D (N, C), mean draw of the previous visit
    candidates: Tensor  # Y (N, C) bool
    neighbours: Tensor  # (N, k)
    smoothed: Tensor  # (N, F + C), Ã [Φ; Y]
    graph_epoch: Tensor  # (), epoch at whose start the graph was built; −1 in warm-up

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.network = Classifier(task)
        n, classes = task.num_samples, task.num_classes
        width = self.network.backbone.feature_dim + classes
        self.encoder = GraphEncoder(width, classes, config.hidden)
        layers = [nn.Linear(classes, config.hidden), nn.ReLU(), nn.Linear(config.hidden, config.hidden), nn.ReLU()]
        self.observation = nn.Sequential(*layers, nn.Linear(config.hidden, classes))
        uniform = uniform_confidence(task.candidates)
        self.register_buffer("label_confidence", uniform)
        self.register_buffer("label_distribution", uniform.clone())
        self.register_buffer("candidates", task.candidates.clone())
        self.register_buffer("neighbours", torch.zeros(n, min(config.k, n - 1), dtype=torch.long))
        self.register_buffer("smoothed", torch.zeros(n, width))
        self.register_buffer("graph_epoch", torch.tensor(-1))

    def on_epoch_start(self, clock: Clock, data: TrainingData) -> None:
        """Renew features and graph in every epoch after warm-up; a call repeated after a resume does nothing."""
        last_epoch = int(self.graph_epoch)
        if clock.epoch < clock.warmup_epochs(self.config.warmup) or clock.epoch == last_epoch:
            return
        features = training_features(self, self.network, data).to(self.smoothed)
        self.neighbours.copy_(nearest_neighbours(features, self.config.k))
        self.smoothed.copy_(propagate(torch.cat([features, self.candidates.to(features)], dim=1), self.neighbours))
        self.graph_epoch.fill_(clock.epoch)
        if last_epoch < 0:
            self.label_distribution.copy_(self.label_confidence)
            data.reset_momentum()

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        logits = self.network(batch.views[0])
        confidence = batch.rows(self.label_confidence)
        if clock.epoch < clock.warmup_epochs(self.config.warmup):
            return Step(soft_cross_entropy(logits, confidence), carry=(logits.detach(), None))
        alpha = kl_parameters(self.encoder(self.smoothed, self.neighbours)[batch.index])
        samples = dirichlet_draw(alpha.expand(self.config.draws, -1, -1))
        adjacency = graph_block(self.neighbours, batch.index)
        target = uniform_confidence(batch.candidates) if self.config.target == "logical" else confidence
        fits = [log_likelihood(d, self.observation(d), batch.candidates, adjacency) for d in samples]
        terms = {
            "likelihood": torch.stack(fits).mean() / len(batch.index),
            "kl": dirichlet_kl(alpha, self.config.prior),
            "compatibility": torch.stack([compatibility_loss(d, target) for d in samples]).mean(),
            "classifier": risk(logits, batch.rows(self.label_distribution), batch.candidates),
        }
        loss = self.config.lam * terms["compatibility"] - terms["likelihood"] + terms["kl"] + terms["classifier"]
        logs = {name: term.detach() for name, term in terms.items()}
        return Step(loss, logs, carry=(logits.detach(), samples.detach().mean(0)))

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        logits, sample = step.carry
        if sample is not None:
            batch.store(self.label_distribution, sample)
        batch.store(self.label_confidence, candidate_softmax(logits, batch.candidates))

    def predict(self, images: Tensor) -> Tensor:
        return self.network(images)

    def confidence(self) -> Tensor:
        return self.label_confidence
