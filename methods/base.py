"""The method interface: the objects that a method receives and the hooks that it may implement.

A method gets candidate sets, never true labels: no object of this file contains them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeVar

import torch
from torch import Tensor, nn

ViewName = Literal["weak", "strong", "distill", "plain"]
T = TypeVar("T")
# `field: Added[int] = 0` in a Config: a field that is newer than recorded runs. At its default it is left out of a
# run's identity, so the identities of those runs stay.
Added = Annotated[T, "left out of the identity at its default"]


class Backbone(nn.Module):
    """An encoder: images (B, 3, H, W) or features (B, d) -> feature map (B, feature_dim, h, w). Pooling is the head's."""

    feature_dim: int
    input_features: int | None = None  # d where the inputs are features, None where they are images
    xavier: bool = False  # whether the classifier on top starts with Xavier-uniform weights


@dataclass(frozen=True)
class Task:
    """Everything a method may know about the problem."""

    num_classes: int
    candidates: Tensor  # (N, C) bool
    epochs: int
    steps_per_epoch: int
    backbone: Callable[[], Backbone]  # a fresh encoder; successive calls give independent initialisations

    @property
    def num_samples(self) -> int:
        return self.candidates.shape[0]


@dataclass(frozen=True)
class Batch:
    """One mini-batch, on the training device."""

    views: tuple[Tensor, ...]  # one per name in Method.views, normalised
    candidates: Tensor  # (B, C) bool
    index: Tensor  # (B,) rows in the training set

    def rows(self, table: Tensor) -> Tensor:
        """Return the batch's rows of a table with one row per training image. (N, …) -> (B, …)."""
        return table.index_select(0, self.index)

    def store(self, table: Tensor, rows: Tensor) -> None:
        """Write the batch's rows of a table, in the table's precision."""
        table.index_copy_(0, self.index, rows.to(table.dtype))


@dataclass(frozen=True)
class Clock:
    """Progress of training. Warm-ups and ramps are fractions of it, so short and long runs have the same schedule."""

    epoch: int  # 0-based
    step: int  # 0-based, over the whole training
    epochs: int
    steps_per_epoch: int

    @property
    def progress(self) -> float:
        """Return the share of all steps that is done, in [0, 1)."""
        return self.step / (self.epochs * self.steps_per_epoch)

    def epochs_of(self, fraction: float) -> int:
        """Return a fraction of training in whole epochs (rounded), the unit of warm-ups in papers."""
        return round(fraction * self.epochs)

    def warmup_epochs(self, fraction: float) -> int:
        """Return the length of a warm-up: at least one epoch, unless the fraction is 0."""
        return max(1, self.epochs_of(fraction)) if fraction > 0 else 0


@dataclass
class Step:
    """Result of one training step: the loss, its named terms for the record, and a value for `after_step`."""

    loss: Tensor
    logs: Mapping[str, Tensor] = field(default_factory=dict)
    carry: Any = None


class TrainingData(Protocol):
    """The training set in the epoch hooks."""

    def infer(self, fn: Callable[[Tensor], Any], view: ViewName = "plain") -> Any:
        """Apply `fn` to one view of every training image, in row order, without gradient; concatenate the results.

        `fn` returns a tensor or a tuple of tensors with the batch in front. The method sets train or eval mode itself.
        """

    def reset_momentum(self) -> None:
        """Forget the optimiser's momentum, as a freshly built optimiser would."""


class Minimiser(Protocol):
    """The optimiser in `Method.update`; it takes care of precision and gradient scaling."""

    def minimise(self, loss: Tensor) -> None:
        """Zero the gradients, back-propagate `loss`, take one step."""


@dataclass(frozen=True)
class About:
    """Description of a method for tables and the generated docs."""

    title: str  # as printed in tables, e.g. "CR-DPLL"
    kind: Literal["PLL", "IDPLL", "control", "reference"]
    venue: str = "–"
    year: int = 0
    forwards: str = "1"  # forward passes of a whole network per sample and step
    state: str = "none"  # what it keeps besides network weights


class Method(nn.Module):
    """One PLL method.

    All memory is in parameters, persistent buffers of fixed shape, or `get_extra_state()`: anything else is lost on
    resume. Random draws use torch's global generator only; the trainer seeds it from (seed, step) before every step.
    """

    name: ClassVar[str]
    about: ClassVar[About]
    views: ClassVar[tuple[ViewName, ...]] = ("weak",)

    @dataclass(frozen=True)
    class Config:
        """Hyper-parameters with defaults; subclasses replace it."""

    def __init__(self, config: Any, task: Task) -> None:
        super().__init__()
        self.config = config
        self.num_classes = task.num_classes

    # required -----------------------------------------------------------------------------------------------------
    def training_step(self, batch: Batch, clock: Clock) -> Step:
        """Return the loss of one batch, network in training mode."""
        raise NotImplementedError(f"{type(self).__name__} has no training_step")

    def predict(self, images: Tensor) -> Tensor:
        """Return (B, C) logits without side effects; called in eval mode without gradients."""
        raise NotImplementedError(f"{type(self).__name__} has no predict")

    # optional -----------------------------------------------------------------------------------------------------
    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        """Update state after the optimiser step, without gradients, still in training mode."""

    def on_epoch_start(self, clock: Clock, data: TrainingData) -> None:
        """Run before the first step of an epoch."""

    def on_epoch_end(self, clock: Clock, data: TrainingData) -> None:
        """Run after the last step of an epoch."""

    def param_groups(self) -> list[dict[str, Any]]:
        """Return parameter groups for SGD; a group may carry its own `lr_scale` (a factor on the learning rate)."""
        return [{"params": [p for p in self.parameters() if p.requires_grad]}]

    def confidence(self) -> Tensor | None:
        """Return the current label confidences (N, C), for diagnostics only."""
        return None

    def candidate_sets(self) -> Tensor | None:
        """Return the method's current candidate sets (N, C) bool if it purifies them; for diagnostics only."""
        return None

    def predictions(self, images: Tensor) -> Mapping[str, Tensor]:
        """Return further predictors to record beside `predict`, by name ("network1" -> (B, C) logits)."""
        return {}

    def diagnostics(self) -> Mapping[str, float]:
        """Return scalars of the method's state to record after every epoch."""
        return {}

    def update(self, batch: Batch, optimizer: Minimiser, clock: Clock) -> Step:
        """Take one step. Override only for alternating optimisation."""
        step = self.training_step(batch, clock)
        optimizer.minimise(step.loss)
        with torch.no_grad():
            self.after_step(batch, step, clock)
        return step
