"""Candidate labels of a plan: the annotator from the profile, the stored sets, their data cards."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from benchmark.plan.spec import RunSpec
from benchmark.run.worker import captured, dataset_of
from benchmark.train.inputs import RECIPES
from datasets.base import DataError, Dataset
from datasets.labels import candidates as sets
from datasets.labels.annotator import Annotator, Recipe
from datasets.views.views import Views
from methods.base import Task
from methods.blocks import Classifier
from methods.parts.backbones import factory
from methods.registry import MethodError

if TYPE_CHECKING:
    from benchmark.plan.selection import Selection

ANNOTATOR_SEED = 0  # one annotator per data set, whatever the seed of a run


def annotator_of(spec: RunSpec, dataset: Dataset, device: str) -> Annotator:
    """The clean-label network of a data set, trained on the weak view, read in its test view."""
    section = spec.annotator
    encoder = section.network or dataset.backbone  # never the run's own choice: all runs share the labels
    features = dataset.train.images
    is_picture = features.dtype == torch.uint8

    def network() -> nn.Module:
        build = factory(
            encoder,
            3 if is_picture else features.shape[1],
            weights=spec.paths.get("weights", "") if encoder == spec.backbone.name else "",
        )
        return Classifier(Task(dataset.num_classes, torch.ones(1, dataset.num_classes, dtype=torch.bool), 1, 1, build))

    recipe = Recipe(
        network=encoder,
        epochs=section.epochs,
        batch=section.batch,
        lr=section.lr,
        weight_decay=section.weight_decay,
        seed=ANNOTATOR_SEED,
        view="weak" if is_picture else "plain",
        mode=section.mode,
    )
    if not is_picture:
        return Annotator(network, recipe, device=device)
    views = Views(RECIPES[dataset.recipe], ANNOTATOR_SEED)

    def augment(images: Tensor, sizes: Tensor | None, rows: Tensor, epoch: int) -> Tensor:
        return views(images, rows, ("weak",), epoch, sizes)[0]

    return Annotator(network, recipe, views.test, augment, device)


def candidate_set(spec: RunSpec, dataset: Dataset, results: Path, device: str) -> sets.CandidateSet:
    """The stored candidate set of a run, made on first use. It depends on the data section and the seed alone."""
    generator = spec.data.generator
    if dataset.candidates is not None and "data.generator" not in spec.provenance:
        generator = "own"  # data that bring their own sets are used as they are unless somebody says otherwise
    instance = generator == "instance"
    return sets.build(
        dataset,
        generator,
        spec.data.rate,
        spec.seed,
        results / "candidates",
        annotator_of(spec, dataset, device) if instance else None,
        spec.data.target_size or None if instance else None,
    )


def plausible_candidates(dataset: Dataset) -> Tensor:
    """(N, C) random sets for measurements: real ones cost an annotator, and these take the same time in a step."""
    generator = torch.Generator().manual_seed(0)
    candidates = torch.rand(len(dataset.train), dataset.num_classes, generator=generator) < 0.1
    candidates[torch.arange(len(dataset.train)), dataset.train.labels] = True
    return candidates


def measure(selection: Selection) -> list[dict[str, Any]]:
    """Rows of Table 1: what each data set and its candidate labels look like here, or how to get it."""
    rows: list[dict[str, Any]] = []
    for name in selection.datasets:
        spec = selection.specs(selection.methods[:1], [name])[0]
        try:
            dataset = dataset_of(spec, selection.place.data)
            with captured(None):  # a library that tries a download ten times would say so ten times
                found = candidate_set(spec, dataset, selection.place.results, selection.devices[0])
        except (DataError, MethodError) as error:
            rows.append({"dataset": spec.dataset, "missing": str(error)})
            continue
        numbers = sets.statistics(found.matrix, dataset.train.labels)
        images, sizes = dataset.train.batch(torch.arange(1))
        side: Any = images.shape[-1] if dataset.recipe != "features" else f"{images.shape[1]} features"
        if sizes is not None:
            side = RECIPES[dataset.recipe].size
        rows.append(
            {
                "dataset": spec.dataset,
                "train": len(dataset.train),
                "test": len(dataset.test),
                "size": side,
                "classes": dataset.num_classes,
                "rate": found.meta.get("rate"),  # none where the data bring their own candidates
                "avg_cls": numbers.average_size,
                "ambiguity": numbers.ambiguity,
                "singletons": numbers.singletons,
            }
        )
    return rows


def show_candidates(selection: Selection, out: Path) -> bool:
    """Text and data card of every selected data set and the first seed; False if one is missing."""
    from benchmark.exhibits import card as cards

    complete = True
    for name in selection.datasets:
        spec = selection.specs(selection.methods[:1], [name])[0]
        try:
            dataset = dataset_of(spec, selection.place.data)
            with captured(None):  # a library that tries a download ten times would say so ten times
                found = candidate_set(spec, dataset, selection.place.results, selection.devices[0])
        except (DataError, MethodError) as error:
            print(f"{spec.dataset} has no card: {error}", file=sys.stderr)
            complete = False
            continue
        print(cards.text(dataset, found))
        for path in cards.write(dataset, found, out / spec.dataset):
            print(f"Written: {path}")
    return complete
