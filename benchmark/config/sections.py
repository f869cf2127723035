"""The typed settings of a run, each with its default and its range. Needs no torch."""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmark.config.optimisation import OPTIMIZERS, SCHEDULES
from benchmark.errors import UsageError, did_you_mean
from datasets.candidates.generators import GENERATORS
from datasets.views.recipes import STRONG, WEAK, is_normalisation
from methods.registry import Setting


@dataclass(frozen=True)
class Rule:
    """A condition that a value must fulfil beyond its type."""

    holds: Callable[[Any], bool]
    text: str
    names: Collection[str] = ()  # to choose from


AT_LEAST_ONE = Rule(lambda value: value >= 1, "at least 1")
POSITIVE = Rule(lambda value: value > 0, "a positive number")
NOT_NEGATIVE = Rule(lambda value: value >= 0, "not negative")
SHARE = Rule(lambda value: 0 <= value < 1, "in [0, 1)")
LARGEST_SEED = 2**32 - 1  # a seed is an unsigned integer of 32 bits
DATA_SEED = Rule(lambda value: -1 <= value <= LARGEST_SEED, f"a seed from 0 to {LARGEST_SEED}, or -1 for the run's own")


TRUE_LABELS = 5  # held-out rows per class whose true label the criterion `true_label_accuracy` reads


def one_of(names: Collection[str]) -> Rule:
    return Rule(names.__contains__, f"one of {', '.join(names)}", names)


def setting(default: Any, rule: Rule | None = None, added: bool = False) -> Any:
    """Return a field with a rule. `added`, as `Added[…]` in a method's Config: left out of the identity at its default."""
    return field(default=default, metadata={"rule": rule, "added": added})


@dataclass(frozen=True)
class Train:
    """Training of the networks: the same for every method of a table unless a [[values]] entry sets another value."""

    epochs: int = setting(500, AT_LEAST_ONE)
    batch: int = setting(128, Rule(lambda value: value >= 2, "at least 2, because batch norm needs two samples"))
    lr: float = setting(0.05, POSITIVE)
    weight_decay: float = setting(1e-4, NOT_NEGATIVE)
    momentum: float = setting(0.9, SHARE)
    optimizer: str = setting("sgd", one_of(OPTIMIZERS), added=True)
    schedule: str = setting("cosine", one_of(SCHEDULES))
    decay: float = setting(0.5, POSITIVE, added=True)  # of the schedules step and exponential
    decay_every: float = setting(50.0, POSITIVE, added=True)  # epochs
    last_batch: Literal["drop", "keep"] = "drop"  # the last partial batch; a single left-over sample is never a batch
    amp: Literal["off", "bfloat16", "float16"] = "off"
    # On CUDA: which float32 operations may round their factors to 10 bits (TensorFloat-32); torch's own default.
    tf32: Literal["off", "conv", "all"] = setting("conv", added=True)
    channels_last: bool = True
    compile: bool = False
    steps: int = setting(0, NOT_NEGATIVE, added=True)  # of an epoch at most, for trials; 0: all of them
    eval_every: int = setting(1, AT_LEAST_ONE)  # epochs between evaluations; the last 2 % always, at least one
    measures: bool = setting(False, added=True)  # every evaluation records top-5, macro, worst class, ECE and NLL too
    # Whose labels of the training rows are scored: the method's belief, or its network's choice among the candidates.
    labels_by: Literal["belief", "network"] = setting("belief", added=True)
    holdout: float = setting(0.0, SHARE)  # of the training set, with candidate labels only, for selection without truth
    few: int = setting(0, NOT_NEGATIVE, added=True)  # train on so many held-out rows per class only; for `supervised`
    threads: int = setting(1, AT_LEAST_ONE)  # CPU threads of one run; part of the identity because sums depend on it


@dataclass(frozen=True)
class Data:
    """Candidate labels and split."""

    generator: str = setting("instance", one_of(GENERATORS))
    rate: float = setting(0.1, Rule(lambda value: 0 <= value <= 1, "in [0, 1]"))
    target_size: float = setting(0.0, NOT_NEGATIVE)  # average set size to calibrate to; 0 = not calibrated
    noise: float = setting(0.0, SHARE, added=True)  # probability that a wrong label replaces the true one in its set
    missing_truth: Literal["refuse", "keep"] = setting("refuse", added=True)  # own sets that lack the true label
    imbalance: float = setting(1.0, AT_LEAST_ONE, added=True)  # largest over smallest class, an exponential long tail
    split: int = 0  # which split or fold, for datasets that have several; -1 = the data's seed
    seed: int = setting(-1, DATA_SEED, added=True)  # of the data


@dataclass(frozen=True)
class Backbone:
    """Encoder of a run."""

    name: str = ""  # empty: the dataset's own
    pretrained: bool = True  # only where the encoder has published weights
    weights: str = ""  # a local state-dict file instead of a download; its SHA-256 in the configuration of a run
    # "mean/std", one number or three each; empty: what the weights were trained with, else the dataset's own.
    normalisation: str = setting("", Rule(is_normalisation, "mean/std, for example 0.5/0.5"), added=True)
    # The shape of `mlp`, see methods.networks.backbones.Layers; the last holds for `linear` too.
    width: int = setting(500, AT_LEAST_ONE, added=True)
    depth: int = setting(1, AT_LEAST_ONE, added=True)
    order: Literal["bn-relu", "relu-bn"] = setting("bn-relu", added=True)
    features: int = setting(0, NOT_NEGATIVE, added=True)
    xavier: bool = setting(False, added=True)
    # A fixed encoder whose maps of every view are stored, and the adapter that is trained on them; see trainer/frozen.py.
    frozen: bool = setting(False, added=True)
    draws: int = setting(4, AT_LEAST_ONE, added=True)  # stored draws of every random view
    cells: int = setting(3, AT_LEAST_ONE, added=True)  # maps are pooled to cells × cells
    adapter: int = setting(256, AT_LEAST_ONE, added=True)  # its width


AUTO = "auto"  # the default of the user's own data: a small network for small images, else their encoder


@dataclass(frozen=True)
class Annotator:
    """The clean-label network whose mistakes become instance-dependent candidates."""

    network: str = ""  # empty: the dataset's own encoder, whatever the run uses; auto: a small one for small images
    epochs: int = setting(10, AT_LEAST_ONE)
    batch: int = setting(128, Rule(lambda value: value >= 2, "at least 2"))
    lr: float = 0.05
    weight_decay: float = 5e-4
    mode: Literal["eval", "train"] = "eval"  # "train" imitates the released generators


@dataclass(frozen=True)
class Views:
    """Views of images that methods request by name; docs/protocol.md#views. Annotators have their own."""

    weak: str = setting("simclr", one_of(WEAK), added=True)
    strong: str = setting("randaugment", one_of(STRONG), added=True)


SECTIONS: dict[str, type] = {
    "train": Train, "data": Data, "backbone": Backbone, "annotator": Annotator, "views": Views,
}  # fmt: skip


@dataclass(frozen=True)
class RuledSetting(Setting):
    """A setting whose values must fulfil a rule beyond their type."""

    rule: Rule | None = None

    def check(self, value: Any) -> Any:
        value = super().check(value)
        if self.rule is not None and not self.rule.holds(value):
            hint = did_you_mean(str(value), self.rule.names)
            raise ValueError(f"{value!r} is not allowed; it must be {self.rule.text}{'.' if hint else ''}{hint}")
        return value


@functools.cache
def fields_of(section: type) -> dict[str, Setting]:
    """Return the typed settings of one of the dataclasses above."""
    return {
        item.name: RuledSetting(ast.unparse(ast.parse(str(item.type))), item.default, **item.metadata)
        for item in dataclasses.fields(section)
    }


def check_key(place: str, key: str, keys: Collection[str]) -> None:
    """Raise UsageError if there is no setting of that name."""
    if key not in keys:
        hint = did_you_mean(key, keys) or f" It has: {', '.join(keys) or 'no settings'}."
        raise UsageError(f"{place} has no '{key}'.{hint}")


def fit(place: str, check: Callable[[Any], Any], value: Any) -> Any:
    """Return the checked value; UsageError that names its place and what is allowed."""
    try:
        return check(value)
    except ValueError as error:
        raise UsageError(f"{place}: {error}{'' if str(error).endswith('?') else '.'}") from None


def identifying(values: Mapping[str, Any], settings: Mapping[str, Setting]) -> dict[str, Any]:
    """Return the values without added settings at their default: runs recorded before these keep their identity."""
    return {key: value for key, value in values.items() if not (settings[key].added and value == settings[key].default)}


def to_json(section: Any) -> dict[str, Any]:
    """Return a section as it enters the identity."""
    cls: type = type(section)
    return identifying(dataclasses.asdict(section), fields_of(cls))
