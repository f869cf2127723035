"""Candidate labels of a plan: the annotator from the profile, the stored sets, their data cards."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from benchmark.plan.spec import RunSpec
from benchmark.train.loading import dataset_of
from datasets.base import DataError, Dataset
from datasets.labels import candidates as sets
from datasets.labels.annotator import Annotator, Recipe
from datasets.labels.generators import GENERATORS
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

    def network() -> nn.Module:
        build = factory(
            encoder,
            3 if dataset.recipe else features.shape[1],
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
        view="weak" if dataset.recipe else "plain",
        mode=section.mode,
    )
    if dataset.recipe is None:
        return Annotator(network, recipe, device=device)
    views = Views(dataset.recipe, ANNOTATOR_SEED)

    def augment(images: Tensor, sizes: Tensor | None, rows: Tensor, epoch: int) -> Tensor:
        return views(images, rows, ("weak",), epoch, sizes)[0]

    return Annotator(network, recipe, views.test, augment, device)


def candidate_set(spec: RunSpec, dataset: Dataset, results: Path, device: str) -> sets.CandidateSet:
    """The stored candidate set of a run, made on first use. It depends on the data section and the seed alone."""
    generator = spec.data.generator
    if dataset.candidates is not None and "data.generator" not in spec.provenance:
        generator = "own"  # data that bring their own sets are used as they are unless somebody says otherwise
    annotated = GENERATORS[generator].annotator
    return sets.build(
        dataset,
        generator,
        spec.data.rate,
        spec.seed,
        results / "candidates",
        annotator_of(spec, dataset, device) if annotated else None,
        spec.data.target_size or None if annotated else None,
    )


def selected_sets(selection: Selection) -> Iterator[tuple[str, tuple[Dataset, sets.CandidateSet] | str]]:
    """Name, data and candidate set of the first seed, or how to get them, of every selected data set."""
    for name in selection.datasets:
        spec = selection.specs(selection.methods[:1], [name])[0]
        quiet = io.StringIO()  # a library that tries a download ten times would say so ten times
        try:
            dataset = dataset_of(spec, selection.place.data)
            with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
                found = candidate_set(spec, dataset, selection.place.results, selection.devices[0])
        except (DataError, MethodError) as error:
            yield spec.dataset, str(error)
        else:
            yield spec.dataset, (dataset, found)


def measure(selection: Selection) -> list[dict[str, Any]]:
    """Rows of Table 1: what each data set and its candidate labels look like here, or how to get it."""
    rows: list[dict[str, Any]] = []
    for name, there in selected_sets(selection):
        if isinstance(there, str):
            rows.append({"dataset": name, "missing": there})
            continue
        dataset, found = there
        numbers = sets.statistics(found.matrix, dataset.train.labels)
        images, sizes = dataset.train.batch(torch.arange(1))
        if dataset.recipe is None:
            side: Any = f"{images.shape[1]} features"
        else:  # images of many sizes are measured by their views
            side = images.shape[-1] if sizes is None else dataset.recipe.size
        rows.append(
            {
                "dataset": name,
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
    for name, there in selected_sets(selection):
        if isinstance(there, str):
            print(f"{name} has no card: {there}", file=sys.stderr)
            complete = False
            continue
        print(cards.text(*there))
        for path in cards.write(*there, out / name):
            print(f"Written: {path}")
    return complete
