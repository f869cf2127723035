"""The candidate rules against their golden numbers."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from datasets.candidates import candidate_sets as candidates
from datasets.candidates import generators

Inputs = dict[str, Tensor]


def _with_size(probabilities: Tensor) -> Inputs:
    return {"probabilities": probabilities, "expected_size": candidates.expected_size(probabilities)}


def flip_probabilities(params: dict[str, Any], inputs: Inputs, variant: str) -> Inputs:
    return _with_size(generators.flip_probabilities(inputs["logits"], inputs["labels"], params["rate"]))


def hierarchical_probabilities(params: dict[str, Any], inputs: Inputs, variant: str) -> Inputs:
    return _with_size(generators.hierarchical_probabilities(inputs["superclass"], inputs["labels"], params["rate"]))


def uniform(params: dict[str, Any], inputs: Inputs, variant: str) -> Inputs:
    return _with_size(generators.uniform_probabilities(inputs["labels"], params["classes"], params["rate"]))


OPS = {
    "flip_probabilities": flip_probabilities,
    "hierarchical_probabilities": hierarchical_probabilities,
    "uniform": uniform,
}
