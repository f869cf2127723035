"""Datasets and published weights that runs need, and whether they are on this machine. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmark.config.spec import RunSpec
from benchmark.errors import CandidError
from datasets import registry
from datasets.candidates.generators import GENERATORS
from methods.networks.names import takes_weights
from methods.networks.pretrained import Whereabouts, whereabouts


def missing_data(specs: Iterable[RunSpec], root: Path) -> dict[str, str]:
    """Return by name on the command line which datasets are missing, and what to do about it."""
    missing: dict[str, str] = {}
    every = {spec.paths.get("dataset") or spec.dataset: spec.dataset_settings for spec in specs}
    for name, settings in every.items():
        availability = registry.get(name).find(root)
        cut_by_hand = availability.status == "incomplete" and settings.get("check_sizes") is False
        if availability.status != "found" and not cut_by_hand:
            missing[name] = f"{availability.detail}; {availability.how}"
    return missing


def refuse_missing(specs: Iterable[RunSpec], root: Path) -> None:
    """Raise CandidError before anything trains if data are not there."""
    specs = list(specs)
    missing = missing_data(specs, root)
    if not missing:
        return
    here = list(dict.fromkeys(s.dataset for s in specs if (s.paths.get("dataset") or s.dataset) not in missing))
    lines = [f"{name} is not here: {reason}." for name, reason in missing.items()]
    advice = f" To go on with the others: --datasets {','.join(here)}." if here else ""
    raise CandidError("\n".join(["Nothing was trained, because data are missing." + advice, *lines]))


@dataclass(frozen=True)
class Weights:
    """Published weights, or the file that replaces them, and the encoders and annotators that start from them."""

    network: str
    file: str
    users: tuple[str, ...]
    instead: str  # the setting that does without them

    @property
    def location(self) -> Whereabouts:
        return whereabouts(self.network, self.file)

    @property
    def sentence(self) -> str:
        location = self.location
        text = f"Weights of {self.network} for {', '.join(self.users)}: {location.words}"
        return f"{text}." if location.here or location.reachable else f"{text}; {self.advice}."

    @property
    def advice(self) -> str:
        return (
            f"fill the hub's cache on a machine with network (HF_HOME says where it is), or pass --set {self.instead}; "
            f"see `Weights` in docs/reproduce.md"
        )


def needed_weights(specs: Iterable[RunSpec]) -> list[Weights]:
    """Return the weights that encoders and annotators start from, each once."""
    users: dict[tuple[str, str, str], dict[str, None]] = {}  # by network, file and the setting that does without them
    for spec in specs:
        backbone, own = spec.backbone, registry.get(spec.paths.get("dataset") or spec.dataset).backbone
        encoder, file, annotator = backbone.name or own, spec.paths.get("weights", ""), spec.annotator.network or own
        if takes_weights(encoder) and (backbone.pretrained or file):
            users.setdefault((encoder, file, "backbone.weights=FILE"), {})[spec.dataset] = None
        if takes_weights(annotator) and annotator != encoder and GENERATORS[spec.data.generator].annotator:
            user = f"the annotator of {spec.dataset}"
            users.setdefault((annotator, "", f"annotator.network={encoder}"), {})[user] = None
    return [Weights(network, file, tuple(names), instead) for (network, file, instead), names in users.items()]
