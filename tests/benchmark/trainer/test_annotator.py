"""Annotators: trained once per dataset and settings, reproducible, and refused where they do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmark import artifacts
from benchmark.config.selection import select
from benchmark.config.spec import RunSpec, identity_of
from benchmark.errors import CandidError
from benchmark.runner.options import RunOptions
from benchmark.runner.worker import drawn_set
from benchmark.store import StoredRun, annotators, run_folder
from benchmark.trainer.candidates import annotator_run, read_annotation
from benchmark.trainer.loading import dataset_of
from datasets.base import DataError, Dataset
from datasets.candidates.candidate_sets import CandidateSet
from tests.conftest import TINY

PROFILE = (
    TINY.replace('generator = "uniform"', 'generator = "instance"')
    + """
backbone = { name = "small-cnn" }
annotator = { network = "small-cnn", epochs = 2, batch = 8 }
"""
)


def specs_of(folder: Path, *settings: str, **words: Any) -> list[RunSpec]:
    profile = folder / "tiny.toml"
    profile.write_text(PROFILE)
    return select(str(profile), settings=settings, **words).specs()


def data_of(spec: RunSpec) -> Dataset:
    return dataset_of(spec, Path("nowhere"))


def draw(spec: RunSpec, results: Path) -> CandidateSet:
    return drawn_set(spec, data_of(spec), RunOptions(results, Path("nowhere")))


def stored(spec: RunSpec, results: Path) -> StoredRun:
    run = annotator_run(spec, data_of(spec))
    return run_folder(results, run, identity_of(run.digest, ""))


def test_it_is_one_run_for_all_methods_seeds_and_views_and_its_model_and_outputs_are_stored(tmp_path: Path) -> None:
    specs = specs_of(tmp_path, methods="proden,pico", seeds="0,1") + specs_of(tmp_path, "views.weak=crop-flip")
    assert len({annotator_run(spec, data_of(spec)).digest for spec in specs}) == 1
    for spec in specs[:3]:
        draw(spec, tmp_path)
    (run,) = annotators(tmp_path)
    assert run.status == "done" and run.has_model() and run.document["candidates_sha256"] == ""
    assert run.document["config"]["train"]["holdout"] == 0 and run.document["method"] == "supervised"
    annotation = read_annotation(run, data_of(specs[0]))
    assert annotation.logits.shape == (len(data_of(specs[0]).train), 10) and annotation.train_accuracy > 0.5
    assert annotation.test_accuracy == run.summary["accuracy"] / 100


def test_training_again_gives_the_same_bits_whatever_the_global_state(tmp_path: Path) -> None:
    (spec, *_) = specs_of(tmp_path, "annotator.mode=train")
    threads = torch.get_num_threads()
    logits = []
    try:
        for seed, name in enumerate(("a", "b")):
            torch.manual_seed(seed)
            torch.set_num_threads(1 + seed)
            draw(spec, tmp_path / name)
            logits.append(read_annotation(stored(spec, tmp_path / name), data_of(spec)).logits)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*logits)


def test_settings_of_the_annotator_make_another(tmp_path: Path) -> None:
    changes = ((), ("annotator.epochs=1",), ("annotator.mode=train",), ("annotator.lr=0.01",), ("data.imbalance=10",))
    sets = [draw(specs_of(tmp_path, *change)[0], tmp_path) for change in changes]
    assert len(list(annotators(tmp_path))) == len(changes) == len({each.meta["annotator"] for each in sets})


def test_damaged_outputs_are_noticed_and_the_annotator_is_trained_again(tmp_path: Path) -> None:
    (spec, *_) = specs_of(tmp_path)
    whole = draw(spec, tmp_path)
    run = stored(spec, tmp_path)
    (run.path / artifacts.ANNOTATION).write_bytes(b"cut")
    with pytest.raises(CandidError, match="its SHA-256 is not the one"):
        read_annotation(run, data_of(spec))
    for path in tmp_path.glob("candidates/*/*.npz"):
        path.unlink()
    assert draw(spec, tmp_path).sha256 == whole.sha256
    assert read_annotation(run, data_of(spec)).train_accuracy == whole.meta["train_accuracy"]


def test_outputs_for_other_data_are_refused(tmp_path: Path) -> None:
    (spec, *_) = specs_of(tmp_path)
    draw(spec, tmp_path)
    run, dataset = stored(spec, tmp_path), data_of(spec)
    arrays = {"logits": np.zeros((len(dataset.train), 10), dtype=np.float32), "data": np.array("other")}
    content = artifacts.npz_bytes(arrays)
    document = run.read() or {}
    run.write(document | {"files": artifacts.write(run.path, {artifacts.ANNOTATION: content})})
    with pytest.raises(DataError, match="was trained on other data than those of digits"):
        read_annotation(run, dataset)


def test_divergence_is_an_error_that_names_the_annotator_and_leaves_no_set(tmp_path: Path) -> None:
    (spec, *_) = specs_of(tmp_path, "annotator.lr=1e30")
    with pytest.raises(DataError, match="the annotator of digits diverged"):
        draw(spec, tmp_path)
    assert not list(tmp_path.rglob("*.npz"))
