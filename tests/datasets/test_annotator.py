"""The annotator: trained once, reproducible, without a trace in the global state."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmark.contract.pretend import PretendCuda
from datasets import digits
from datasets.base import DataError, Dataset, Split
from datasets.candidates import annotator
from datasets.candidates.annotator import Annotator, Recipe, Sitting
from datasets.candidates.candidate_sets import build


def small_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)
    )


RECIPE = Recipe("tiny", epochs=2, batch=32, lr=0.05)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    whole = digits.load(Path("nowhere"))
    return replace(whole, train=whole.train.rows(torch.arange(600)), test=whole.test.rows(torch.arange(200)))


@pytest.fixture(scope="module")
def trained(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[annotator.Annotation, Path]:
    folder = tmp_path_factory.mktemp("annotator")
    return Annotator(small_network, RECIPE).annotate(dataset, folder), folder


def test_it_learns(dataset: Dataset, trained: tuple[annotator.Annotation, Path]) -> None:
    annotation, _ = trained
    assert annotation.logits.shape == (600, 10) and annotation.logits.dtype == torch.float32
    assert annotation.train_accuracy > 0.8 and annotation.test_accuracy > 0.7
    right = (annotation.logits.argmax(1) == dataset.train.labels).double().mean().item()
    assert right == annotation.train_accuracy


def test_it_is_trained_once(dataset: Dataset, trained: tuple[annotator.Annotation, Path]) -> None:
    def never() -> nn.Module:
        raise AssertionError("trained again")

    again = Annotator(never, RECIPE).annotate(dataset, trained[1])
    assert again.sha256 == trained[0].sha256 and torch.equal(again.logits, trained[0].logits)
    assert again.test_accuracy == trained[0].test_accuracy


def test_training_again_gives_the_same_bits_whatever_the_global_state(
    dataset: Dataset, trained: tuple[annotator.Annotation, Path], tmp_path: Path
) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.manual_seed(99)
    try:
        again = Annotator(small_network, RECIPE).annotate(dataset, tmp_path)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert again.sha256 == trained[0].sha256


def test_the_global_random_state_is_left_as_it_was(dataset: Dataset, tmp_path: Path) -> None:
    before = torch.get_rng_state()
    Annotator(small_network, replace(RECIPE, epochs=1)).annotate(dataset, tmp_path)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("change", [{"seed": 1}, {"epochs": 1}, {"mode": "train"}])
def test_another_recipe_is_another_annotation(
    dataset: Dataset, trained: tuple[annotator.Annotation, Path], tmp_path: Path, change: dict[str, Any]
) -> None:
    other = Annotator(small_network, replace(RECIPE, **change))
    assert other.recipe_digest != Annotator(small_network, RECIPE).recipe_digest
    assert other.annotate(dataset, tmp_path).sha256 != trained[0].sha256


def test_start_weights_are_part_of_the_key_and_their_absence_is_not() -> None:
    without = Annotator(small_network, RECIPE).recipe_digest
    assert (
        without == "05e1a2ffb20c1a030eb1933f756b62b429fc3ec6f6d3ec8715638325eccce818"
    )  # as stored since the first annotators
    digests = {Annotator(small_network, replace(RECIPE, weights=file)).recipe_digest for file in ("a", "b")}
    assert len(digests | {without}) == 3


def test_training_views_get_rows_and_epoch(dataset: Dataset, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def weak(images: Tensor, sizes: Tensor | None, rows: Tensor, epoch: int) -> Tensor:
        assert torch.equal(images, dataset.train.images[rows])
        seen.append((epoch, len(rows)))
        return annotator.scaled(images)

    Annotator(small_network, replace(RECIPE, view="weak"), augment=weak).annotate(dataset, tmp_path)
    assert sum(count for epoch, count in seen if epoch == 0) == 600 and {epoch for epoch, _ in seen} == {0, 1}


def test_a_view_that_the_recipe_does_not_name_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        Annotator(small_network, replace(RECIPE, view="weak"))


def test_images_are_read_batch_by_batch(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    largest = 0
    original = Split.batch

    def counted(self: Split, index: Tensor) -> tuple[Tensor, Tensor | None]:
        nonlocal largest
        largest = max(largest, len(index))
        return original(self, index)

    monkeypatch.setattr(Split, "batch", counted)
    Annotator(small_network, replace(RECIPE, epochs=1, annotate_batch=50)).annotate(dataset, tmp_path)
    assert 0 < largest <= 200


def test_damage_is_noticed_and_named(dataset: Dataset, tmp_path: Path) -> None:
    quick = Annotator(small_network, replace(RECIPE, epochs=1))
    quick.annotate(dataset, tmp_path)
    path = next(tmp_path.rglob("*.npz"))
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    arrays["logits"][0, 0] += 1
    np.savez(path, allow_pickle=False, **arrays)
    with pytest.raises(DataError, match=rf"{path.name} is damaged: its SHA-256"):
        quick.annotate(dataset, tmp_path)
    path.write_bytes(b"cut")
    with pytest.raises(DataError, match=path.name):
        quick.annotate(dataset, tmp_path)


def test_divergence_is_an_error_and_leaves_no_file(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="diverged"):
        Annotator(small_network, replace(RECIPE, lr=1e30)).annotate(dataset, tmp_path)
    assert not list(tmp_path.rglob("*.npz"))


# Stopped and gone on with ----------------------------------------------------------------------------------------------


def forgetful_network() -> nn.Module:
    """With dropout, so that the state of torch's generator counts in every step."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.Flatten(), nn.Dropout(0.5), nn.Linear(512, 10)
    )


class Stopped(Exception):
    pass


class Kept(Sitting):
    """Keeps the state as a file would, and stops every so many steps."""

    def __init__(self, every: int) -> None:
        self.every, self.steps = every, 0
        self.content = b""
        self.epochs: list[int] = []

    def saved(self, misfit: Callable[[Mapping[str, Any]], str]) -> Mapping[str, Any] | None:
        if not self.content:
            return None
        state = torch.load(io.BytesIO(self.content), weights_only=True)
        assert misfit(state) == "" and misfit({**state, "epoch": 99}) and misfit({"epoch": 0})
        return state

    def after_step(self, state: Callable[[], dict[str, Any]]) -> None:
        self.steps += 1
        if self.steps % self.every == 0:
            buffer = io.BytesIO()
            torch.save(state(), buffer)
            self.content = buffer.getvalue()
            raise Stopped

    def after_epoch(self, epoch: int, result: Mapping[str, float]) -> None:
        self.epochs.append(epoch)
        assert 0 <= result["train_accuracy"] <= 100 and result["loss"] > 0


@pytest.mark.parametrize("every", [1, 19, 7])  # 19 steps are an epoch
def test_an_annotator_that_is_stopped_and_gone_on_with_ends_in_the_same_bits(
    dataset: Dataset, tmp_path: Path, every: int
) -> None:
    recipe = replace(RECIPE, mode="train")  # its outputs are drawn too
    whole = Annotator(forgetful_network, recipe).annotate(dataset, tmp_path / "whole")
    kept = Kept(every)
    stopped = Annotator(forgetful_network, recipe, surroundings=lambda *_: contextlib.nullcontext(kept))
    for _ in range(100):
        torch.manual_seed(99)  # each sitting is another process
        with contextlib.suppress(Stopped):
            assert stopped.annotate(dataset, tmp_path / "stopped").sha256 == whole.sha256
            break
    assert kept.steps == 38 and kept.epochs == [0, 1]


@pytest.mark.parametrize("size", [1.2, 4.01, 11.0])
def test_an_average_size_out_of_reach_is_said_before_the_annotator_trains(
    dataset: Dataset, tmp_path: Path, size: float
) -> None:
    def never() -> nn.Module:
        raise AssertionError("trained")

    with pytest.raises(DataError, match=r"between 2\.00 and 4\.00"):
        build(dataset, "instance", 0.3, 0, tmp_path, Annotator(never, RECIPE), target_size=size)
    short = Annotator(small_network, replace(RECIPE, epochs=1))
    fits = build(dataset, "instance", 0.3, 0, tmp_path, short, target_size=3.9)
    assert abs(fits.meta["expected_size"] - 3.9) < 1e-6


def test_on_a_card_it_is_that_of_the_cpu_with_cudnn(
    dataset: Dataset, trained: tuple[annotator.Annotation, Path], tmp_path: Path
) -> None:
    seen: set[bool] = set()

    def watched() -> nn.Module:
        network = small_network()
        network.register_forward_hook(lambda *_: seen.add(torch.backends.cudnn.enabled))
        return network

    with PretendCuda():
        there = Annotator(watched, RECIPE, device="cuda").annotate(dataset, tmp_path)
    assert seen == {True} and torch.equal(there.logits, trained[0].logits)
