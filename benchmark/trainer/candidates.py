"""Candidate labels of a run: the annotator whose mistakes become instance-dependent labels, and the stored sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmark import artifacts
from benchmark.config.sections import AUTO, Annotator, Backbone, Data, Train
from benchmark.config.spec import RunSpec, identity_of
from benchmark.errors import warn
from benchmark.store import ANNOTATOR, ANNOTATOR_SEED, StoredRun, run_folder
from benchmark.trainer.seeding import derive
from benchmark.trainer.trainer import Trainer
from datasets.base import DataError, Dataset
from datasets.candidates import candidate_sets as sets
from datasets.candidates.generators import GENERATORS
from methods.networks.names import takes_weights
from methods.networks.pretrained import normalisation

BLOCK = 500  # consecutive rows that are annotated at once, as in the releases; matters with mode "train" only


def annotator_run(spec: RunSpec, dataset: Dataset) -> RunSpec:
    """Return the run that trains the annotator of a run's candidate labels on the true labels of its dataset.

    It depends on the data and on the annotator's settings: runs of all methods, seeds and views share it.
    """
    section, of_run = spec.annotator, spec.backbone.name or dataset.backbone
    network = dataset.annotator if section.network == AUTO else section.network
    encoder = network or dataset.backbone  # never the encoder of the run
    frozen, same = spec.backbone.frozen, encoder == of_run
    if same and (frozen or takes_weights(encoder)):  # starts from the weights that the run starts from
        of_run_weights = Backbone(encoder, spec.backbone.pretrained, spec.backbone.weights, spec.backbone.normalisation)
        backbone = spec.backbone if frozen else of_run_weights
    else:
        backbone = Backbone(encoder, normalisation=normalisation(encoder))
    train = Train(
        epochs=section.epochs,
        batch=section.batch,
        lr=section.lr,
        weight_decay=section.weight_decay,
        last_batch="keep",
        eval_every=section.epochs,
    )
    split = spec.data_seed if spec.data.split < 0 else spec.data.split
    paths = {"dataset": spec.paths.get("dataset", ""), "network": spec.paths.get("annotator", "")}
    if backbone.weights:
        paths["weights"] = spec.paths.get("weights", "")
    return RunSpec(
        method="supervised",
        method_config={},
        dataset=spec.dataset,
        dataset_settings=spec.dataset_settings,
        data=Data(generator="uniform", rate=0.0, split=split, imbalance=spec.data.imbalance),
        train=train,
        backbone=backbone,
        annotator=Annotator(mode=section.mode),
        seed=ANNOTATOR_SEED,
        dataset_sha256=spec.dataset_sha256,
        profile=spec.profile,
        label=ANNOTATOR,
        paths=paths,
        purpose=ANNOTATOR,
    )


def packed_annotation(trainer: Trainer, dataset: Dataset) -> bytes:
    """Return the content of annotation.npz: the logits (N, C) of a trained annotator for the training images.

    With mode "train", dropout and batch statistics stay on, which also changes the running statistics of the network.
    """
    method = trainer.method
    torch.manual_seed(derive(trainer.seed, "annotate"))
    method.train(trainer.spec.annotator.mode == "train")
    with torch.no_grad():
        views = (trainer.inputs.train_views(rows, ("plain",), 0)[0] for rows in trainer.rows.split(BLOCK))
        logits = torch.cat([method.predict(images).float().cpu() for images in views])
    if not logits.isfinite().all():
        raise DataError("its outputs are not all finite; choose a smaller annotator.lr")
    return artifacts.npz_bytes({"logits": logits.numpy(), "data": np.array(sets.fingerprint(dataset))})


def read_annotation(run: StoredRun, dataset: Dataset) -> sets.Annotation:
    """Return the outputs of a trained annotator; DataError if it is not trained, or was trained on other data."""
    document = run.read()
    if document is None or document["status"] != "done":
        reason = document and document.get("reason")
        raise DataError(reason or f"the annotator of {dataset.name} is not trained; rerun without --no-run.")
    content = artifacts.read_checked(run.path, artifacts.ANNOTATION, document)
    if content is None:
        raise DataError(f"{run.path / artifacts.ANNOTATION} is missing; rerun without --no-run to train the annotator.")
    arrays = artifacts.read_npz(run.path / artifacts.ANNOTATION, content)
    shape = (len(dataset.train), dataset.num_classes)
    logits = arrays.get("logits")
    if str(arrays.get("data")) != sets.fingerprint(dataset) or logits is None or logits.shape != shape:
        raise DataError(
            f"the annotator in {run.path} was trained on other data than those of {dataset.name} here; "
            f"delete its folder to train it again."
        )
    right = float((torch.from_numpy(logits).argmax(1) == dataset.train.labels).double().mean())
    test = run.summary.get("accuracy")
    return sets.Annotation(
        torch.from_numpy(logits), right, None if test is None else test / 100, document.get("environment") or {}
    )


def candidate_set(
    spec: RunSpec, dataset: Dataset, results: Path, train: Callable[[RunSpec], None] | None = None
) -> sets.CandidateSet:
    """Return the stored candidate set of a run, drawn on first use. It depends on data, annotator and seed.

    `train` carries out the run of an annotator; without it, DataError if the annotator is needed and not trained.
    """
    generator = spec.data.generator
    if dataset.candidates is not None and "data.generator" not in spec.provenance:
        generator = "own"  # own candidate sets are used unless the generator is set
    if generator == "own":
        warn_if_supervised(dataset)
    annotator, target_size = None, None
    if GENERATORS[generator].annotator:
        run = annotator_run(spec, dataset)
        identity = identity_of(run.digest, "")

        def outputs() -> sets.Annotation:
            if train is not None:
                train(run)
            return read_annotation(run_folder(results, run, identity), dataset)

        annotator, target_size = sets.Annotator(identity, outputs), spec.data.target_size or None
    folder = results / "candidates"
    return sets.build(
        dataset, generator, spec.data.rate, spec.data_seed, folder, annotator, target_size, spec.data.noise
    )


def warn_if_supervised(dataset: Dataset) -> None:
    """Warn once per dataset whose sets have one label each: these are ordinary labels, perhaps a forgotten generator."""
    if dataset.candidates is None or dataset.name in _warned or not bool((dataset.candidates.sum(1) == 1).all()):
        return
    _warned.add(dataset.name)
    warn(
        f"every candidate set of {dataset.name} holds one label only, so this is ordinary supervised training; "
        f"to make sets from these labels, choose a generator: --set data.generator=uniform."
    )


_warned: set[str] = set()  # datasets


def plausible_candidates(dataset: Dataset) -> Tensor:
    """Return random sets (N, C) for time measurements: real ones cost an annotator, and a step takes the same time."""
    generator = torch.Generator().manual_seed(0)
    candidates = torch.rand(len(dataset.train), dataset.num_classes, generator=generator) < 0.1
    labels = dataset.train.labels.clamp(min=0)  # any label will do where none is known
    candidates[torch.arange(len(dataset.train)), labels] = True
    return candidates
