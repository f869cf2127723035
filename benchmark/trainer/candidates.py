"""Candidate labels of a run: the annotator from the profile, the stored sets."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmark.config.sections import AUTO
from benchmark.config.sections import Backbone as BackboneSettings
from benchmark.config.spec import RunSpec
from benchmark.errors import warn
from benchmark.trainer.annotating import Keeper, Reader
from benchmark.trainer.frozen import FrozenAnnotator, FrozenLoader, frozen_of
from datasets.base import Dataset
from datasets.candidates import candidate_sets as sets
from datasets.candidates.annotator import Annotator, Recipe
from datasets.candidates.generators import GENERATORS
from datasets.views.recipes import normalised
from datasets.views.views import Views
from methods.base import Backbone, Task
from methods.blocks import Classifier
from methods.networks.backbones import USE_A_FILE, factory
from methods.networks.names import takes_weights
from methods.networks.pretrained import normalisation as published_normalisation

ANNOTATOR_SEED = 0  # one annotator per data set, whatever the seed of a run


def annotator_of(spec: RunSpec, dataset: Dataset, device: str) -> Annotator:
    """The clean-label network of a data set, trained on the weak view, read in its test view."""
    section = spec.annotator
    named = dataset.annotator if section.network == AUTO else section.network
    encoder = named or dataset.backbone  # never the run's own choice: all runs share the labels
    features = dataset.train.images
    of_run = spec.backbone.name or dataset.backbone
    own = encoder == of_run and takes_weights(encoder)  # it starts as the run's encoder does
    pretrained = spec.backbone.pretrained or not own
    normalisation = spec.backbone.normalisation if own else published_normalisation(encoder)
    frozen = spec.backbone.frozen and encoder == of_run  # then it learns from the same maps

    @functools.cache
    def maps() -> FrozenLoader:
        place = torch.device(device)
        return FrozenLoader(frozen_of(spec, dataset, place), ANNOTATOR_SEED, place, ("weak",))

    def network() -> nn.Module:
        build: Callable[[], Backbone] = (
            maps().encoder.adapter
            if frozen
            else factory(
                encoder,
                3 if dataset.recipe else features.shape[1],
                pretrained,
                spec.weight_file() if own else "",
                asks=f"The annotator of {dataset.name}",
                remedy=USE_A_FILE
                if own
                else f"let it start as the run's encoder does: --set annotator.network={of_run}",
                file=spec.annotator_file(),
            )
        )
        return Classifier(Task(dataset.num_classes, torch.ones(1, dataset.num_classes, dtype=torch.bool), 1, 1, build))

    recipe = Recipe(
        network=f"{encoder}-{frozen_name(spec.backbone, dataset)}" if frozen else encoder,
        epochs=section.epochs,
        batch=section.batch,
        lr=section.lr,
        weight_decay=section.weight_decay,
        seed=ANNOTATOR_SEED,
        view="weak" if dataset.recipe else "plain",
        mode=section.mode,
        pretrained=pretrained,
        weights=spec.backbone.weights if own else "",
        normalisation=normalisation,
    )
    if frozen:
        return FrozenAnnotator(network, recipe, device=device, inputs=maps)
    if dataset.recipe is None:
        return Annotator(network, recipe, device=device)
    views = Views(normalised(dataset.recipe, normalisation), ANNOTATOR_SEED)

    def augment(images: Tensor, sizes: Tensor | None, rows: Tensor, epoch: int) -> Tensor:
        return views(images, rows, ("weak",), epoch, sizes)[0]

    return Annotator(network, recipe, views.test, augment, device)


def frozen_name(settings: BackboneSettings, dataset: Dataset) -> str:
    """What makes the maps that a frozen annotator learns from, beside encoder and weights."""
    side = dataset.recipe.size if dataset.recipe else 0
    return f"frozen-{side}px-{settings.draws}-draws-{settings.cells}-cells-{settings.adapter}"


def candidate_set(
    spec: RunSpec, dataset: Dataset, results: Path, device: str, keeper: Keeper | Reader | None = None
) -> sets.CandidateSet:
    """The stored candidate set of a run, made on first use. It depends on data, annotator with its weights, and seed.

    With a `keeper`, an annotator that has to be trained first is a run that can be followed, stopped and gone on with.
    """
    generator = spec.data.generator
    if dataset.candidates is not None and "data.generator" not in spec.provenance:
        generator = "own"  # data that bring their own sets are used as they are unless somebody says otherwise
    if generator == "own":
        say_if_supervised(dataset)
    annotator, target_size = None, None
    if GENERATORS[generator].annotator:
        annotator, target_size = annotator_of(spec, dataset, device), spec.data.target_size or None
        if keeper is not None:
            annotator = replace(annotator, surroundings=keeper.sit, environment=keeper.environment)
    folder = results / "candidates"
    return sets.build(
        dataset, generator, spec.data.rate, spec.data_seed, folder, annotator, target_size, spec.data.noise
    )


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
