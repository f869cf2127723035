"""Candidate labels: rules, calibration, draw, statistics, files and the data card."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benchmark.cli.main import main
from benchmark.config.sections import Data, fields_of
from benchmark.exhibits.parts import card as cards
from datasets.base import DataError, Dataset, Split
from datasets.candidates import candidate_sets as candidates
from datasets.candidates import generators
from datasets.views.recipes import DIGITS
from tests.conftest import TinyBenchmark

CLASSES = 25
LABELS = torch.arange(200) % CLASSES


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    """Random images of 25 classes in five superclasses."""
    images = torch.randint(256, (250, 3, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    train, test = Split(images[:200], LABELS), Split(images[200:], LABELS[:50])
    names = tuple("ABCDßFGHIJKLMNOPQRSTUVWXY")
    return Dataset("pictures", CLASSES, names, train, test, DIGITS, superclass=torch.arange(CLASSES) // 5)


def annotate() -> candidates.Annotation:
    """Outputs that find most labels and confuse neighbouring classes."""
    noise = torch.randn(len(LABELS), CLASSES, generator=torch.Generator().manual_seed(0))
    near = 3 - (torch.arange(CLASSES) - LABELS[:, None]).abs().clamp(max=3)
    return candidates.Annotation(noise + near, 0.7, 0.6, {"device": "cpu"})


ANNOTATOR = candidates.Annotator("0123", annotate)


def random_problem(samples: int = 500, classes: int = 20, spread: float = 2.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = spread * torch.randn(samples, classes, generator=generator, dtype=torch.float64)
    return logits, torch.randint(classes, (samples,), generator=generator)


# rules


@given(st.integers(2, 12), st.integers(1, 6), st.floats(0, 1), st.floats(0, 500))
@settings(max_examples=40, deadline=None)
def test_flip_probabilities_are_probabilities_and_spare_the_true_label(
    classes: int, samples: int, rate: float, spread: float
) -> None:
    generator = torch.Generator().manual_seed(classes * 100 + samples)
    logits = spread * torch.randn(samples, classes, generator=generator)
    labels = torch.randint(classes, (samples,), generator=generator)
    probabilities = generators.flip_probabilities(logits, labels, rate)
    assert probabilities.isfinite().all() and probabilities.min() >= 0 and probabilities.max() <= 1
    assert (probabilities.gather(1, labels[:, None]) == 0).all()
    assert (candidates.expected_size(probabilities) <= 1 + rate * classes + 1e-4).all()


# calibration


def valen(rows: generators.Rows, rate: float) -> Tensor:
    return generators.flip_probabilities(rows.logits, rows.labels, rate)


def random_rows() -> generators.Rows:
    logits, labels = random_problem()
    return generators.Rows(labels, logits.shape[1], logits=logits)


@pytest.mark.parametrize("target", [2.5, 4.0, 5.9])
def test_calibration_meets_its_target(target: float) -> None:
    rows = random_rows()
    found = candidates.calibrate_temperature(valen, rows, 0.25, target)
    assert found.expected_size == pytest.approx(target, abs=1e-6)
    assert found.uncalibrated_size == pytest.approx(candidates.mean_size(valen, rows, 0.25))


@pytest.mark.parametrize("target", [1.5, 6.5])
def test_a_target_out_of_reach_is_said_with_what_is_in_reach(target: float) -> None:
    rows = random_rows()
    with pytest.raises(DataError, match=r"between 2\.00 and 6\.00"):
        candidates.calibrate_temperature(valen, rows, 0.25, target)


# draw


def test_draws_have_the_stated_frequencies_and_hold_the_true_label() -> None:
    labels = torch.arange(20_000) % 10
    drawn = candidates.draw(generators.uniform_probabilities(labels, 10, 0.3), labels, 0, "test")
    assert drawn[torch.arange(len(labels)), labels].all()
    assert drawn.sum(1).double().mean().item() == pytest.approx(1 + 9 * 0.3, abs=0.03)
    wrong = drawn.double().mean(0) * 10 / 9 - 1 / 9
    assert (wrong - 0.3).abs().max() < 0.02


def test_a_draw_depends_on_seed_and_stream_and_row_alone() -> None:
    labels = torch.arange(60) % 6
    chance = generators.uniform_probabilities(labels, 6, 0.4)
    drawn = candidates.draw(chance, labels, 1, "a")
    torch.manual_seed(123)
    assert torch.equal(drawn, candidates.draw(chance, labels, 1, "a"))
    assert torch.equal(drawn[20:], candidates.draw(chance[20:], labels[20:], 1, "a", start=20))
    assert not torch.equal(drawn, candidates.draw(chance, labels, 2, "a"))
    assert not torch.equal(drawn, candidates.draw(chance, labels, 1, "b"))


# noise


def test_noise_puts_a_wrong_label_in_the_place_of_the_true_one() -> None:
    labels = torch.arange(20_000) % 10
    clean = candidates.draw(generators.uniform_probabilities(labels, 10, 0.2), labels, 0, "test")
    noisy = candidates.replace_truth(clean, labels, 0.3, 0, "noise")
    held = noisy.gather(1, labels[:, None])[:, 0]
    assert (~held).double().mean().item() == pytest.approx(0.3, abs=0.01)
    assert torch.equal(noisy.sum(1), clean.sum(1)) and torch.equal(noisy[held], clean[held])
    added = (noisy & ~clean)[~held]
    assert (added.sum(1) == 1).all() and (added.double().mean(0) - 0.1).abs().max() < 0.01  # no class is preferred


def test_the_rows_of_a_higher_noise_contain_those_of_a_lower_one() -> None:
    labels = torch.arange(500) % 10
    clean = candidates.draw(generators.uniform_probabilities(labels, 10, 0.2), labels, 0, "a")
    low, high = (candidates.replace_truth(clean, labels, noise, 1, "b") for noise in (0.1, 0.3))
    changed = (low != clean).any(1)
    assert 0 < changed.sum() < (high != clean).any(1).sum() and torch.equal(high[changed], low[changed])
    assert torch.equal(high[200:], candidates.replace_truth(clean[200:], labels[200:], 0.3, 1, "b", start=200))
    assert not torch.equal(high, candidates.replace_truth(clean, labels, 0.3, 2, "b"))


@pytest.mark.parametrize("generator", ["uniform", "hierarchical", "instance"])
def test_noisy_sets_of_any_generator_are_stored_like_others(dataset: Dataset, tmp_path: Path, generator: str) -> None:
    def build(noise: float) -> candidates.CandidateSet:
        annotator = ANNOTATOR if generator == "instance" else None
        return candidates.build(dataset, generator, 0.3, 0, tmp_path, annotator, noise=noise)

    clean, noisy = build(0.0), build(0.2)
    assert "noise" not in clean.meta and noisy.meta["noise"] == 0.2
    assert torch.equal(noisy.matrix, build(0.2).matrix) and noisy.sha256 != clean.sha256
    assert len(list(tmp_path.rglob(f"{generator}-rate0.3-noise0.2-seed0-*.npz"))) == 1
    assert len(list(tmp_path.rglob(f"{generator}-rate0.3-seed0-*.npz"))) == 1
    found = candidates.statistics(noisy.matrix, dataset.train.labels)
    assert found.without_truth == pytest.approx(0.2, abs=0.08) and found.average_size == clean.matrix.sum() / 200
    assert candidates.statistics(clean.matrix, dataset.train.labels).without_truth == 0


def test_a_clean_request_takes_no_set_without_the_truth(dataset: Dataset, tmp_path: Path) -> None:
    path = stored_file(dataset, tmp_path)
    noisy = candidates.build(dataset, "uniform", 0.3, 0, tmp_path, noise=0.2)
    candidates.save(path, noisy)
    with pytest.raises(
        DataError, match=r"uniform-rate0\.3-seed0.* rows whose candidates do not contain the true label"
    ):
        candidates.build(dataset, "uniform", 0.3, 0, tmp_path)


def test_the_card_says_which_share_lacks_the_truth(dataset: Dataset, tmp_path: Path) -> None:
    found = candidates.build(dataset, "uniform", 0.1, 0, tmp_path, noise=0.5)
    words = cards.text(dataset, found)
    share = candidates.statistics(found.matrix, dataset.train.labels).without_truth
    assert f"without true label {share:.1%} of the images" in words and "noise 0.5" in words and "[missing: " in words
    clean = cards.text(dataset, candidates.build(dataset, "uniform", 0.1, 0, tmp_path))
    assert "without true label" not in clean and "noise" not in clean and "missing" not in clean


# statistics


def test_statistics_of_a_set_counted_by_hand() -> None:
    matrix = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 1, 1], [1, 1, 1]]).bool()
    found = candidates.statistics(matrix, torch.tensor([0, 0, 1, 1]))
    assert found.average_size == 2.0 and found.histogram == {1: 1, 2: 2, 3: 1} and found.singletons == 0.25
    assert found.ambiguity == 1.0
    assert found.confusions[0] == candidates.Confusion(true=1, wrong=2, count=2, share=1.0)
    assert {(c.true, c.wrong, c.count) for c in found.confusions} == {(1, 2, 2), (0, 1, 1), (1, 0, 1)}


# files


def test_a_stored_set_comes_back_bit_for_bit(dataset: Dataset, tmp_path: Path) -> None:
    first = candidates.build(dataset, "uniform", 0.3, 0, tmp_path)
    (stored,) = tmp_path.rglob("*.npz")
    changed = stored.stat().st_mtime_ns
    second = candidates.build(dataset, "uniform", 0.3, 0, tmp_path)
    assert torch.equal(first.matrix, second.matrix) and first.sha256 == second.sha256 and first.meta == second.meta
    assert stored.stat().st_mtime_ns == changed
    assert first.matrix.dtype == torch.bool and first.matrix.shape == (200, 25)


def test_hierarchical_candidates_stay_inside_the_group(dataset: Dataset, tmp_path: Path) -> None:
    matrix = candidates.build(dataset, "hierarchical", 0.6, 0, tmp_path).matrix
    assert dataset.superclass is not None
    outside = dataset.superclass[dataset.train.labels][:, None] != dataset.superclass
    assert not (matrix & outside).any()
    assert matrix.sum(1).double().mean().item() == pytest.approx(3.4, abs=0.2)


def stored_file(dataset: Dataset, folder: Path) -> Path:
    candidates.build(dataset, "uniform", 0.3, 0, folder)
    return next(folder.rglob("*.npz"))


def flip_a_bit(path: Path) -> None:
    with np.load(path) as stored:
        arrays = {name: stored[name].copy() for name in stored.files}
    arrays["bits"][5, 0] ^= 1
    np.savez(path, allow_pickle=False, **arrays)


def pickled(path: Path) -> None:
    np.savez(path, bits=np.array([{"a": 1}], dtype=object), shape=np.array([1, 1]), meta=np.zeros(1, np.uint8))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (flip_a_bit, "is damaged: its SHA-256"),
        (pickled, "allow_pickle=False"),
        *((partial(Path.write_bytes, data=data), "") for data in (b"", b"not a zip file", b"PK\x03\x04 cut off")),
    ],
)
def test_a_damaged_file_is_named_and_stays(
    dataset: Dataset, tmp_path: Path, damage: Callable[[Path], object], says: str
) -> None:
    path = stored_file(dataset, tmp_path)
    damage(path)
    with pytest.raises(DataError, match=rf"{path.name} .*{says}"):
        candidates.build(dataset, "uniform", 0.3, 0, tmp_path)
    assert path.exists()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda m, y: m[:-1], "shape"),
        (lambda m, y: m & False, "without any candidate"),
        (lambda m, y: m.scatter(1, y[:, None], False) | (torch.arange(25) == (y[:, None] + 1) % 25), "true label"),
    ],
)
def test_sets_that_cannot_be_are_refused(dataset: Dataset, tmp_path: Path, spoil: Any, says: str) -> None:
    good = candidates.build(dataset, "uniform", 0.3, 0, tmp_path)
    matrix = spoil(good.matrix, dataset.train.labels)
    path = tmp_path / "bad.npz"
    candidates.save(path, candidates.CandidateSet(matrix, candidates.checksum(matrix.numpy()), good.meta))
    with pytest.raises(DataError, match=rf"bad\.npz.*{says}"):
        candidates.load(path, dataset.train.labels, 25)


def test_a_file_of_another_request_is_not_taken(dataset: Dataset, tmp_path: Path) -> None:
    other = candidates.build(dataset, "uniform", 0.3, 1, tmp_path)
    candidates.build(dataset, "uniform", 0.3, 0, tmp_path)
    path = next(tmp_path.rglob("*seed0*.npz"))
    candidates.save(path, other)
    with pytest.raises(DataError, match="another seed"):
        candidates.build(dataset, "uniform", 0.3, 0, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "noise", "says"),
    [
        (("unifrom", 0.3, 0), 0.0, "Unknown generator 'unifrom'; there are .*uniform"),
        (("uniform", 1.5, 0), 0.0, "not a probability"),
        (("uniform", float("nan"), 0), 0.0, "not a probability"),
        (("uniform", 0.3, -1), 0.0, "negative"),
        (("instance", 0.3, 0), 0.0, "needs an annotator"),
        (("own", 0.3, 0), 0.0, "has no candidate sets"),
        *((("uniform", 0.3, 0), noise, r"is not in \[0, 1\)") for noise in (1.0, -0.1, float("nan"))),
        (("uniform", 1.0, 0), 0.5, r"Noise 0\.5 meets rows whose candidates are all classes already.*lower the rate"),
    ],
)
def test_wrong_requests_get_one_sentence(
    dataset: Dataset, tmp_path: Path, arguments: tuple[str, float, int], noise: float, says: str
) -> None:
    with pytest.raises(DataError, match=says):
        candidates.build(dataset, *arguments, tmp_path, noise=noise)
    assert not list(tmp_path.rglob("*.npz"))


def test_a_generator_is_one_entry(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def next_class(rows: generators.Rows, rate: float) -> Tensor:
        following = (rows.labels + 1) % rows.num_classes
        return torch.full((len(following), rows.num_classes), 0.0).scatter(1, following[:, None], rate)

    entry = generators.Generator("next", "the class that follows, with probability `rate`", next_class)
    monkeypatch.setitem(generators.GENERATORS, "next", entry)
    matrix = candidates.build(dataset, "next", 1.0, 0, tmp_path).matrix
    labels = dataset.train.labels
    assert (matrix.sum(1) == 2).all() and matrix.gather(1, ((labels + 1) % 25)[:, None]).all()


def test_settings_and_the_list_know_every_generator(capsys: pytest.CaptureFixture[str]) -> None:
    setting = fields_of(Data)["generator"]
    assert all(setting.check(name) == name for name in generators.GENERATORS)
    with pytest.raises(ValueError, match=r"one of instance.*uniform.*Did you mean 'uniform'"):
        setting.check("unifrom")
    assert main(["list", "generators", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == list(generators.GENERATORS)


def test_two_that_build_at_once_draw_one_set(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, calls = candidates.draw, []

    def slow_draw(*arguments: Any) -> Tensor:
        calls.append(arguments)
        time.sleep(0.1)
        return draw(*arguments)

    monkeypatch.setattr(candidates, "draw", slow_draw)
    with ThreadPoolExecutor() as pool:
        sets = [pool.submit(candidates.build, dataset, "uniform", 0.3, 0, tmp_path) for _ in range(2)]
    assert len({each.result().sha256 for each in sets}) == len(calls) == 1


# card


def test_the_card_shows_sizes_pairs_and_images(dataset: Dataset, tmp_path: Path) -> None:
    found = candidates.build(dataset, "hierarchical", 0.6, 0, tmp_path)
    words = cards.text(dataset, found)
    assert found.sha256 in words and "average size" in words and "→" in words and "[ß]" in words
    png, pdf = cards.write(dataset, found, tmp_path / "card-0.6")
    assert png.name == "card-0.6.png" and png.read_bytes()[:4] == b"\x89PNG"
    assert pdf.read_bytes()[:4] == b"%PDF"


@pytest.mark.parametrize("size", [1.2, 4.01, 11.0])
def test_an_average_size_out_of_reach_is_said_before_the_annotator_trains(
    dataset: Dataset, tmp_path: Path, size: float
) -> None:
    def never() -> candidates.Annotation:
        raise AssertionError("trained")

    rate = 0.12  # 25 classes: at most 3 wrong labels
    with pytest.raises(DataError, match=r"between 2\.00 and 4\.00"):
        candidates.build(dataset, "instance", rate, 0, tmp_path, candidates.Annotator("0", never), target_size=size)
    fits = candidates.build(dataset, "instance", rate, 0, tmp_path, ANNOTATOR, target_size=3.5)
    assert abs(fits.meta["expected_size"] - 3.5) < 1e-6 and fits.meta["temperature"] > 0
    assert fits.matrix.sum(1).double().mean().item() == pytest.approx(3.5, abs=0.35)


def test_the_card_says_how_good_the_annotator_is_and_warns_of_one_at_chance(dataset: Dataset, tmp_path: Path) -> None:
    found = candidates.build(dataset, "instance", 0.2, 0, tmp_path, ANNOTATOR)
    assert (found.meta["train_accuracy"], found.meta["test_accuracy"]) == (0.7, 0.6)
    for accuracy, temperature, warnings in (
        (0.5, 1.1, []),
        (0.05, 1.1, ["near chance (5.0 % of the test set right, chance is 4.0 %)"]),
        (0.05, 5e-4, ["near chance", "ran against its bound (temperature 0.0005"]),
        (0.5, 5e3, ["ran against its bound"]),
    ):
        meta = {**found.meta, "test_accuracy": accuracy, "temperature": temperature}
        words = cards.text(dataset, replace(found, meta=meta))
        assert f"{100 * accuracy:.1f} % on the test set, temperature {temperature:.4g}" in words
        assert words.count("Warning: ") == len(warnings) and all(warning in words for warning in warnings)


def test_every_seed_that_is_named_gets_its_set_and_card(
    tiny_benchmark: TinyBenchmark, capsys: pytest.CaptureFixture[str]
) -> None:
    def made(*words: str) -> tuple[list[str], list[str]]:
        assert main(tiny_benchmark.arguments("candidates", *words)[3:]) == 0
        stored = sorted(path.name.split("-")[2] for path in tiny_benchmark.results.rglob("uniform-*.npz"))
        return stored, sorted(path.name for path in tiny_benchmark.results.rglob("cards/*.png"))

    assert made() == (["seed0"], ["digits.png"])  # the first of the profile's two
    seeds = ["seed0", "seed4"]
    assert made("--seeds", "0,4") == (seeds, [*(f"digits-{seed}.png" for seed in seeds), "digits.png"])
    assert "(uniform, rate 0.2, seed 4)" in capsys.readouterr().out
