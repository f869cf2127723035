"""Published weights that the runs of a plan start from, and whether they are on this machine. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from benchmark.config.spec import RunSpec
from datasets import registry
from datasets.candidates.generators import GENERATORS
from methods.networks.names import takes_weights
from methods.networks.pretrained import Whereabouts

CACHE = "fill the hub's cache on a machine with network (HF_HOME says where it is)"
SEE = "see `Weights` in docs/reproduce.md"


@dataclass(frozen=True)
class Weights:
    """Published weights, or the file that replaces them, and the encoders and annotators that start from them."""

    network: str
    file: str
    users: tuple[str, ...]
    instead: str  # the setting that does without them

    def sentence(self, location: Whereabouts) -> str:
        text = f"Weights of {self.network} for {', '.join(self.users)}: {location.words}"
        return f"{text}." if location.here or location.reachable else f"{text}; {self.advice}."

    @property
    def advice(self) -> str:
        return f"{CACHE}, or pass --set {self.instead}; {SEE}"


def needed(specs: Iterable[RunSpec]) -> list[Weights]:
    """Return the weights that encoders and annotators start from, each once."""
    users: dict[tuple[str, str, str], dict[str, None]] = {}
    for spec in specs:
        for network, file, user, instead in _starts(spec):
            if takes_weights(network):
                users.setdefault((network, file, instead), {})[user] = None
    return [Weights(network, file, tuple(names), instead) for (network, file, instead), names in users.items()]


def _starts(spec: RunSpec) -> Iterator[tuple[str, str, str, str]]:
    """Yield network, weight file, user and the setting that does without them, for encoder and annotator of a run."""
    backbone, own = spec.backbone, registry.get(spec.paths.get("dataset") or spec.dataset).backbone
    encoder, file = backbone.name or own, spec.paths.get("weights", "")
    if backbone.pretrained or file:
        yield encoder, file, spec.dataset, "backbone.weights=FILE"
    if not GENERATORS[spec.data.generator].annotator:
        return
    annotator = spec.annotator.network or own
    if annotator != encoder:
        yield annotator, "", f"the annotator of {spec.dataset}", f"annotator.network={encoder}"
