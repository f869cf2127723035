"""The embedded sets: drawn and real, without a download."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter

from datasets import digits, glyphs, registry
from datasets.base import DataError, Dataset, stratified

NOWHERE = Path("nowhere")
SMALL: dict[str, Any] = {"train": 200, "test": 100, "classes": 50}


@pytest.fixture(scope="module")
def small() -> Dataset:
    return glyphs.load(NOWHERE, **SMALL)


def test_a_hundred_different_characters_in_twenty_groups_of_five() -> None:
    assert len(glyphs.GROUPS) == 20
    assert all(len(group) == glyphs.GROUP_SIZE for group in glyphs.GROUPS)
    assert len(set("".join(glyphs.GROUPS))) == 100
    assert len({face for group in glyphs.GROUPS for face in glyphs.faces_of(group)}) == 16


def test_every_character_is_in_every_font_used() -> None:
    from matplotlib.ft2font import FT2Font

    characters: dict[str, set[str]] = {}
    for group in glyphs.GROUPS:
        for face in glyphs.faces_of(group):
            characters.setdefault(face, set()).update(group)
    for face, wanted in characters.items():
        known = FT2Font(str(glyphs._path(face))).get_charmap()
        assert not [character for character in wanted if ord(character) not in known], face


def _softened(image: Image.Image, zoom: float) -> np.ndarray:
    """A stencil about as an image shows it: softened, halved, resized by `zoom`, without its margin."""
    shift, margin = glyphs.CANVAS / 2 * (1 - 1 / zoom), 6
    matrix = (1 / zoom, 0, shift, 0, 1 / zoom, shift)
    resized = image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
    small = resized.filter(ImageFilter.GaussianBlur(1.2)).reduce(glyphs.SUPERSAMPLE)
    return np.asarray(small, dtype=np.int16)[margin:-margin, margin:-margin].ravel()


def _closest(images: list[Image.Image]) -> tuple[float, int, int]:
    """How far apart, at the pixel where they differ most, the two most similar stencils are; and which two."""
    plain = np.stack([_softened(image, 1.0) for image in images])
    best = (1.0, 0, 0)
    for zoom in (0.8, 0.9, 1.0):  # two images may differ in size, so size must not be what tells them apart
        for i, image in enumerate(images):
            apart = np.abs(plain - _softened(image, zoom)).max(axis=1) / 255
            apart[i] = 1.0
            best = min(best, (float(apart.min()), i, int(apart.argmin())))
    return best


def test_no_two_characters_look_the_same_in_any_font() -> None:
    """The most similar pairs in use are 0.36 of black to white apart, those in the families left out 0.23 to 0.28."""
    drawn: dict[str, dict[str, Image.Image]] = {}
    for group in glyphs.GROUPS:
        for character, images in zip(group, glyphs.stencils(group), strict=True):
            for face, image in zip(glyphs.faces_of(group), images, strict=True):
                drawn.setdefault(face, {})[character] = image
    for face, by_character in drawn.items():
        apart, first, second = _closest(list(by_character.values()))
        assert apart > 0.3, (face, list(by_character)[first], list(by_character)[second], apart)


@pytest.mark.parametrize(("group", "face"), [("Il1|!", "DejaVuSans-Bold"), ("Il1|!", "STIXGeneral")])
def test_the_faces_that_are_left_out_would_draw_two_characters_alike(group: str, face: str) -> None:
    assert face not in glyphs.faces_of(group)
    assert _closest([glyphs.stencil(character, glyphs._font(face)) for character in group])[0] < 0.3


def test_a_smaller_set_is_the_beginning_of_a_larger_one(small: Dataset) -> None:
    fewer = glyphs.load(NOWHERE, train=120, test=60, classes=50)
    assert torch.equal(fewer.train.images, small.train.images[:120])
    assert torch.equal(fewer.train.labels, small.train.labels[:120])


def test_training_and_test_images_share_nothing(small: Dataset) -> None:
    seen = {image.tobytes() for image in small.train.images.numpy()}
    assert len(seen) == len(small.train)
    assert not seen & {image.tobytes() for image in small.test.images.numpy()}


def test_the_seed_of_a_run_does_not_change_the_images_and_the_drawing_does(small: Dataset) -> None:
    assert torch.equal(glyphs.load(NOWHERE, 5, **SMALL).train.images, small.train.images)
    assert not torch.equal(glyphs.load(NOWHERE, drawing=1, **SMALL).train.images, small.train.images)


def test_shapes_classes_and_superclasses() -> None:
    dataset = registry.get("glyphs-h").load(NOWHERE, train=60, test=30, classes=25)
    assert dataset.name == "glyphs-h"
    stated = [inspect.signature(source.load).parameters for source in glyphs.SOURCES]
    assert stated[0] == stated[1] and {"train", "side"} <= set(stated[1])  # a setting that it lacks is told at once
    assert dataset.train.images.shape == (60, 3, 32, 32) and dataset.train.images.dtype == torch.uint8
    assert dataset.train.labels.dtype == torch.int64
    assert dataset.class_names[:5] == tuple("O0QØΘ") and len(dataset.class_names) == dataset.num_classes == 25
    assert dataset.superclass is not None and dataset.superclass.bincount().tolist() == [5] * 5
    assert dataset.test.labels.bincount(minlength=25).min() >= 1
    assert torch.equal(dataset.train.images, glyphs.load(NOWHERE, train=60, test=30, classes=25).train.images)


def test_ink_is_visible_on_its_paper() -> None:
    draws = np.random.default_rng(0).random((2000, 6))
    ink, paper = glyphs._colours(draws[:, :3], draws[:, 3:])
    weights = np.array([0.299, 0.587, 0.114])
    assert ((paper - ink) @ weights > glyphs.MIN_CONTRAST - 1e-9).all()
    assert min(ink.min(), paper.min()) > -1e-9 and max(ink.max(), paper.max()) < 1 + 1e-9


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"classes": 12}, "multiple of 5"),
        ({"classes": 105}, "up to 100"),
        ({"classes": 0}, "multiple of 5"),
        ({"classes": 50, "train": 49}, "at least 50"),
        ({"drawing": -1}, "negative"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        glyphs.load(NOWHERE, **settings)


def test_a_missing_font_is_an_error_and_not_another_image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(glyphs, "_path", lambda face: tmp_path / f"{face}.ttf")
    with pytest.raises(DataError, match=r"DejaVuSans\.ttf is missing"):
        glyphs.load(NOWHERE, train=5, test=5, classes=5)
    assert glyphs.find(NOWHERE).status == "incomplete"


def test_digits_are_real_stratified_and_fixed() -> None:
    first, second = digits.load(NOWHERE, 0), digits.load(NOWHERE, 7)
    assert (len(first.train), len(first.test)) == (1297, 500)
    assert first.train.images.shape[1:] == (3, 16, 16) and first.train.images.dtype == torch.uint8
    assert torch.equal(first.test.images, second.test.images)
    counts, held = first.train.labels.bincount() + first.test.labels.bincount(), first.test.labels.bincount()
    assert (held - counts * 500 / 1797).abs().max() <= 1
    assert first.train.images.max() == 255 and first.train.images.min() == 0


def test_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    held = torch.from_numpy(stratified(labels, digits.TEST_SIZE))
    dataset = digits.load(NOWHERE)
    assert dataset.test.labels.tolist() == labels[held.numpy()].tolist()
    corners = torch.from_numpy(pixels.reshape(-1, 8, 8))[held][:, 0, 0]
    assert torch.equal(dataset.test.images[:, 0, 0, 0].double(), (corners * 16).clamp(max=255))


def test_a_damaged_digits_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "digits.csv.gz").write_bytes(b"no gzip")
    monkeypatch.setattr(digits, "_file", lambda: tmp_path / "digits.csv.gz")
    with pytest.raises(DataError, match=r"digits\.csv\.gz is missing or damaged"):
        digits.load(NOWHERE)
    monkeypatch.setattr(digits, "_file", lambda: None)
    with pytest.raises(DataError, match="not installed"):
        digits.load(NOWHERE)


def test_another_shuffle_of_the_digits_holds_out_others_of_every_class() -> None:
    usual, other = digits.load(NOWHERE), digits.load(NOWHERE, shuffle=1)
    assert torch.equal(usual.test.labels.bincount(), other.test.labels.bincount())
    assert not torch.equal(usual.test.images, other.test.images)
    with pytest.raises(DataError, match="must not be negative"):
        digits.load(NOWHERE, shuffle=-1)
