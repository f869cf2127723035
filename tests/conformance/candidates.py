"""The candidate rules against their golden numbers."""

from __future__ import annotations

from torch import Tensor

from datasets.candidates import candidate_sets as candidates
from datasets.candidates import generators
from tests.conformance.shared import Inputs, Params


def _with_size(probabilities: Tensor) -> Inputs:
    return {"probabilities": probabilities, "expected_size": candidates.expected_size(probabilities)}


def flip_probabilities(params: Params, inputs: Inputs, variant: str) -> Inputs:
    return _with_size(generators.flip_probabilities(inputs["logits"], inputs["labels"], params["rate"]))


def hierarchical_probabilities(params: Params, inputs: Inputs, variant: str) -> Inputs:
    return _with_size(generators.hierarchical_probabilities(inputs["superclass"], inputs["labels"], params["rate"]))


def uniform(params: Params, inputs: Inputs, variant: str) -> Inputs:
    return _with_size(generators.uniform_probabilities(inputs["labels"], params["classes"], params["rate"]))
