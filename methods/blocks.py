"""Functions and small modules that several methods share. Shapes: B batch, N training set, C classes."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Dirichlet
from torch.optim.swa_utils import get_ema_multi_avg_fn

from methods.base import Backbone, Method, Task, TrainingData

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def at_least_float32(x: Tensor) -> Tensor:
    """Convert half precision to float32, in which losses and confidences are computed; float64 stays float64."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def uniform_confidence(candidates: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return 1/|S_i| on the candidates, 0 elsewhere. (N, C) mask -> (N, C)."""
    mask = candidates.to(dtype)
    return mask / mask.sum(1, keepdim=True)


def candidate_softmax(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return the softmax over the candidates (one or more per row), 0 elsewhere. (…, C), (…, C) -> (…, C)."""
    logits = at_least_float32(logits)
    return torch.softmax(torch.where(candidates.bool(), logits, torch.finfo(logits.dtype).min), dim=-1)


def masked_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """Return the softmax over the masked entries; a row with an empty mask gives zeros. (…, C), (…, C) -> (…, C)."""
    return candidate_softmax(logits, mask) * mask.bool()


def masked_logsumexp(logits: Tensor, mask: Tensor) -> Tensor:
    """Return log Σ exp over the masked entries of each row; −inf for an empty mask. (B, C) -> (B,)."""
    return torch.logsumexp(torch.where(mask.bool(), at_least_float32(logits), -math.inf), dim=1)


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return −(1/B) Σ_i Σ_j t_ij log softmax(z_i)_j, targets constant. (B, C), (B, C) -> scalar."""
    logits = at_least_float32(logits)
    return F.cross_entropy(logits, targets.detach().to(logits.dtype))


def masked_argmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Return arg max inside the mask of finite scores, ties to the lowest index. (B, C) -> (B,)."""
    return torch.where(mask.bool(), scores, -math.inf).argmax(1)


def linear_ramp(position: float, length: float, top: float = 1.0) -> float:
    """Rise from 0 at position 0 to `top` at `length`, then stay; `top` at once if length is 0."""
    return top if length <= 0 else top * min(max(position / length, 0.0), 1.0)


def full_precision(like: Tensor) -> torch.autocast:
    """Keep products of float32 tensors in float32 under mixed precision (autocast would lower them)."""
    return torch.autocast(like.device.type, enabled=False)


def unit(x: Tensor) -> Tensor:
    """Scale vectors to length 1, at least in float32; a zero vector stays zero. (…, D) -> (…, D)."""
    return F.normalize(at_least_float32(x), dim=-1)


def contrastive_loss(
    anchors: Tensor,
    others: Tensor,
    weights: Tensor,
    tau: float,
    filled: Tensor | None = None,
    eps: float = 0.0,
) -> Tensor:
    """Return −(1/B) Σ_a Σ_b w_ab log exp(z_a·z_b/τ) / Σ_{k≠a} exp(z_a·z_k/τ), b and k over [anchors; others].

    (B, d), (M, d), (B, B+M) -> scalar. Anchors get gradient on both sides of the product; weights are constant, w_aa is 0.
    `filled` (B+M,) bool names the columns that exist; the others have weight 0. `eps` is added to the sum after the row's
    largest term, the anchor's with itself included, has been divided out, as released codes do.
    """
    logits = anchors @ torch.cat((anchors, others)).T / tau
    left_out = torch.eye(*logits.shape, dtype=torch.bool, device=logits.device)
    if filled is not None:
        left_out = left_out | ~filled
    log_total = torch.logsumexp(logits.masked_fill(left_out, -math.inf), dim=1, keepdim=True)
    if eps > 0:
        largest = logits.detach().amax(1, keepdim=True)
        log_total = torch.logaddexp(log_total, largest + math.log(eps))
    return (weights * (log_total - logits)).sum(1).mean()


def moco_loss(queries: Tensor, keys: Tensor, queue: Tensor, tau: float, filled: Tensor | None = None) -> Tensor:
    """Contrast each query with its own key and the queue, not with the batch. (B, D), (B, D), (M, D) -> scalar.

    `filled` (M,) bool leaves the slots of a queue out that were never written.
    """
    own = (queries * keys).sum(1, keepdim=True)
    others = queries @ queue.T
    if filled is not None:
        others = others.masked_fill(~filled, -math.inf)
    logits = torch.cat((own, others), dim=1) / tau
    return (torch.logsumexp(logits, dim=1) - logits[:, 0]).mean()


def dirichlet_draw(parameters: Tensor) -> Tensor:
    """Draw one reparameterised sample per row, at least 1e-19. (…, C) -> (…, C), rows sum to 1."""
    draw = Dirichlet(parameters, validate_args=False).rsample()
    # Products of two smaller numbers are denormal, with which a CPU computes a hundred times slower.
    return draw.clamp_min(torch.finfo(draw.dtype).tiny ** 0.5)


def dirichlet_kl(alpha: Tensor, prior: float) -> Tensor:
    """Return KL(Dir(α_i) ‖ Dir(prior, …, prior)), mean over the batch. (B, C) -> scalar.

    Written out in the order of torch's own: its search for the formula of two distributions cannot be compiled.
    """
    flat = torch.full_like(alpha, prior)
    total = alpha.sum(1)
    masses = total.lgamma() - flat.sum(1).lgamma() - (alpha.lgamma() - flat.lgamma()).sum(1)
    return (masses + ((alpha - flat) * (alpha.digamma() - total.digamma().unsqueeze(1))).sum(1)).mean()


@torch.no_grad()
def ring_write(pointer: Tensor, *pairs: tuple[Tensor, Tensor]) -> None:
    """Overwrite the oldest rows of ring buffers in place and advance `pointer`, a 0-dim int64 tensor.

    Each pair is (buffer (M, …), new rows (B, …)). B need not divide M; of B > M rows the last M are kept.
    """
    size, count = pairs[0][0].shape[0], pairs[0][1].shape[0]
    first = max(count - size, 0)
    at = (pointer + torch.arange(first, count, device=pointer.device)) % size
    for buffer, rows in pairs:
        buffer.index_copy_(0, at, rows[first:].to(buffer.dtype))
    pointer.add_(count).remainder_(size)


def ema_update(target: nn.Module, source: nn.Module, momentum: float) -> None:
    """Set the parameters of `target` to m·target + (1−m)·source; buffers stay as they are."""
    average = get_ema_multi_avg_fn(momentum)
    average(list(target.parameters()), list(source.parameters()), 0)


class Classifier(nn.Module):
    """Backbone, global average pooling, one linear layer."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.backbone: Backbone = task.backbone()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(self.backbone.feature_dim, task.num_classes)
        if self.backbone.xavier:
            nn.init.xavier_uniform_(self.head.weight)

    def features(self, images: Tensor) -> Tensor:
        """Return (B, D) pooled features."""
        return self.pool(self.backbone(images)).flatten(1)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))


class ContrastiveClassifier(Classifier):
    """A linear classifier and a projection head, an MLP, on one pooled feature, or that feature itself without the head."""

    def __init__(self, task: Task, embed_dim: int = 128, projected: bool = True) -> None:
        super().__init__(task)
        dim = self.backbone.feature_dim
        layers = [nn.Linear(dim, dim), nn.ReLU(inplace=True), nn.Linear(dim, embed_dim)] if projected else []
        self.projection = nn.Sequential(*layers)
        self.embed_dim = embed_dim if projected else dim

    def both(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (B, C) and projections (B, d), the latter not normalised."""
        features = self.features(images)
        return self.head(features), self.projection(features)

    def embed(self, images: Tensor) -> Tensor:
        """Return the projections alone, (B, d)."""
        return self.projection(self.features(images))


def training_features(method: Method, network: Classifier, data: TrainingData) -> Tensor:
    """Return pooled features of all training images in eval mode, (N, F)."""
    training = method.training
    method.eval()
    features = at_least_float32(data.infer(network.features))
    method.train(training)
    return features


@torch.no_grad()
def second_forward(network: nn.Module, images: Tensor, bn: str = "update") -> Tensor:
    """Forward the same view again after the optimiser step, in training mode, as RC and LWS refresh their weights.

    `bn="frozen"` uses batch statistics but leaves the running averages of batch norm alone.
    """
    if bn == "update":
        return network(images)
    norms = [m for m in network.modules() if isinstance(m, BATCH_NORMS) and m.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    try:
        return network(images)
    finally:
        for norm in norms:
            norm.track_running_stats = True


def draw_mixing(images: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Draw a mix-up of a batch: coefficient from Beta(α, α), (), and the partner of each row, (B,).

    The coefficient stays on the CPU, where it multiplies tensors of any device without synchronisation.
    """
    coefficient = torch.distributions.Beta(alpha, alpha, validate_args=False).sample()
    return coefficient, torch.randperm(len(images), device=images.device)


def mix(values: Tensor, order: Tensor, coefficient: Tensor) -> Tensor:
    """Return l·v_i + (1 − l)·v_π(i) over the rows. (n, …), (n,), () -> (n, …)."""
    coefficient = coefficient.to(values.dtype)
    return coefficient * values + (1 - coefficient) * values[order]
