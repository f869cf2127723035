"""Candidate labels of a run: its annotator and the stored sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmark.config.spec import RunSpec, identity_of
from benchmark.errors import warn
from benchmark.store import run_folder
from benchmark.trainer.annotator import annotator_run, read_annotation
from datasets.base import Dataset
from datasets.candidates import candidate_sets as sets
from datasets.candidates.generators import GENERATORS


def candidate_set(
    spec: RunSpec, dataset: Dataset, results: Path, train: Callable[[RunSpec], None] | None = None
) -> sets.CandidateSet:
    """Return the stored candidate set of a run, drawn on first use. It depends on data, annotator and seed.

    `train` carries out the run of an annotator; without it, DataError if the annotator is needed and not trained.
    """
    generator = spec.data.generator
    if dataset.candidates is not None and "data.generator" not in spec.provenance:
        generator = "own"  # data that bring their own sets are used as they are unless somebody says otherwise
    if generator == "own":
        say_if_supervised(dataset)
    annotator, target_size = None, None
    if GENERATORS[generator].annotator:
        annotator, target_size = annotator_of(spec, dataset, results, train), spec.data.target_size or None
    folder = results / "candidates"
    return sets.build(
        dataset, generator, spec.data.rate, spec.data_seed, folder, annotator, target_size, spec.data.noise
    )


def annotator_of(
    spec: RunSpec, dataset: Dataset, results: Path, train: Callable[[RunSpec], None] | None
) -> sets.Annotator:
    """Return the annotator of a run's candidate labels, which is trained when its outputs are first asked for."""
    run = annotator_run(spec, dataset)
    identity = identity_of(run.digest, "")

    def outputs() -> sets.Annotation:
        if train is not None:
            train(run)
        return read_annotation(run_folder(results, run, identity), dataset)

    return sets.Annotator(identity, outputs)


def say_if_supervised(dataset: Dataset) -> None:
    """Sets of one label each are ordinary labels: more often a forgotten generator than meant. Said once."""
    if dataset.candidates is None or dataset.name in _said or not bool((dataset.candidates.sum(1) == 1).all()):
        return
    _said.add(dataset.name)
    warn(
        f"every candidate set of {dataset.name} holds one label only, so this is ordinary supervised training; "
        f"to make sets from these labels, choose a generator: --set data.generator=uniform."
    )


_said: set[str] = set()  # data sets


def plausible_candidates(dataset: Dataset) -> Tensor:
    """(N, C) random sets for measurements: real ones cost an annotator, and these take the same time in a step."""
    generator = torch.Generator().manual_seed(0)
    candidates = torch.rand(len(dataset.train), dataset.num_classes, generator=generator) < 0.1
    labels = dataset.train.labels.clamp(min=0)  # where none is known any label will do
    candidates[torch.arange(len(dataset.train)), labels] = True
    return candidates
