"""The fine-grained sets: FGVC Aircraft variants, Stanford Dogs, Stanford Cars, CUB-200-2011, official splits, no box crop.

Each set has one function that reads its official index files into a `Listing`; checks, cache and the rest are common.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets.base import (
    Availability,
    DataError,
    Dataset,
    Source,
    check_labels,
    check_size,
    first_folder,
    how_to_get,
    plural,
    read_mat,
)
from datasets.storage import cache
from datasets.views.recipes import FINE_GRAINED

if TYPE_CHECKING:
    import numpy as np

BACKBONE = "resnet34-imagenet"


@dataclass
class Part:
    """Images and labels from 0 of one split, and the index file that they come from."""

    index: Path
    files: list[Path]
    labels: list[int]


@dataclass
class Listing:
    class_names: list[str]
    train: Part
    test: Part


# Reading index files ------------------------------------------------------------------------------------------------


def read_lines(path: Path) -> list[str]:
    """Return the non-empty lines of a text index."""
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except FileNotFoundError:
        raise DataError(f"{path} is missing.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}.") from None


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Return the lines of two fields; the second may contain blanks and slashes ("F/A-18", "DC-9-30")."""
    pairs = []
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split(maxsplit=1)
        if len(fields) != 2:
            raise DataError(f"{path}: line {number} ({line!r}) does not have two fields.")
        pairs.append((fields[0], fields[1]))
    return pairs


def to_int(text: Any, path: Path) -> int:
    try:
        return int(text)
    except (TypeError, ValueError):
        raise DataError(f"{path}: {str(text)[:40]!r} is not an integer.") from None


def texts(cells: np.ndarray, path: Path) -> list[str]:
    """Return the strings of a MATLAB cell array; anything else in a cell is refused."""
    values = cells.reshape(-1)
    if not all(isinstance(value, str) for value in values.tolist()):
        raise DataError(f"{path}: a cell that should contain text contains something else.")
    return values.tolist()


# One function per set -----------------------------------------------------------------------------------------------


def list_aircraft(base: Path) -> Listing:
    names = read_lines(base / "variants.txt")
    label_of = {name: label for label, name in enumerate(names)}

    def part(split: str) -> Part:
        index = base / f"images_variant_{split}.txt"
        pairs = read_pairs(index)
        unknown_name = next((name for _, name in pairs if name not in label_of), None)
        if unknown_name is not None:
            raise DataError(f"{index} names the variant '{unknown_name}', which variants.txt does not.")
        files = [base / "images" / f"{image}.jpg" for image, _ in pairs]
        return Part(index, files, [label_of[name] for _, name in pairs])

    return Listing(names, part("trainval"), part("test"))


def list_dogs(base: Path) -> Listing:
    images = base / ("images" if (base / "images").is_dir() else "Images")

    def part(split: str) -> tuple[Part, list[str]]:
        index = first_folder([base, base / "lists"], f"{split}_list.mat")
        path = (index or base) / f"{split}_list.mat"
        files, labels = read_mat(path, "file_list", "labels", squeeze=True)
        names, labels = texts(files, path), labels.reshape(-1)
        if len(names) != len(labels):
            raise DataError(f"{path} lists {len(names):,} images and {len(labels):,} labels.")
        return Part(path, [images / name for name in names], [to_int(label, path) - 1 for label in labels]), names

    (train, train_names), (test, test_names) = part("train"), part("test")
    # A breed's name is its folder without the ImageNet number: n02085620-Chihuahua.
    folder_of = dict(zip(train.labels + test.labels, train_names + test_names, strict=True))
    breeds = [name.split("/")[0].split("-", 1)[-1] for _, name in sorted(folder_of.items())]
    return Listing(breeds, train, test)


def list_cars(base: Path) -> Listing:
    devkit = base / "devkit"
    meta = devkit / "cars_meta.mat"
    names = texts(read_mat(meta, "class_names", squeeze=True)[0], meta)

    def part(split: str, index: Path) -> Part:
        annotations = read_mat(index, "annotations", squeeze=True)[0].reshape(-1)
        if annotations.dtype.names is None or not {"class", "fname"} <= set(annotations.dtype.names):
            raise DataError(f"{index} has no classes; cars_test_annos_withlabels.mat has them, see docs/data.md.")
        folder = base / f"cars_{split}"
        if (folder / f"cars_{split}").is_dir():  # the layout of the copy on Kaggle
            folder = folder / f"cars_{split}"
        files = [folder / name for name in texts(annotations["fname"], index)]
        return Part(index, files, [to_int(label, index) - 1 for label in annotations["class"]])

    annotation_folder = first_folder([base, devkit], "cars_test_annos_withlabels.mat")
    if annotation_folder is None:
        raise DataError(
            f"cars_test_annos_withlabels.mat is missing in {base}; Stanford's server no longer provides it, "
            f"put the file there, see docs/data.md."
        )
    return Listing(
        names,
        part("train", devkit / "cars_train_annos.mat"),
        part("test", annotation_folder / "cars_test_annos_withlabels.mat"),
    )


def list_birds(base: Path) -> Listing:
    names = [name.split(".", 1)[-1] for _, name in read_pairs(base / "classes.txt")]
    images = read_pairs(base / "images.txt")
    labels = dict(read_pairs(base / "image_class_labels.txt"))
    flags = dict(read_pairs(base / "train_test_split.txt"))
    parts = {flag: Part(base / "images.txt", [], []) for flag in "10"}
    for number, image in images:
        if number not in labels or flags.get(number) not in parts:
            raise DataError(
                f"{base / 'images.txt'} lists image {number} ({image}), which image_class_labels.txt or "
                f"train_test_split.txt does not."
            )
        parts[flags[number]].files.append(base / "images" / image)
        parts[flags[number]].labels.append(to_int(labels[number], base / "image_class_labels.txt") - 1)
    return Listing(names, parts["1"], parts["0"])


# Common -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Location and required content of one dataset."""

    name: str
    title: str
    sizes: tuple[int, int]
    num_classes: int
    folders: tuple[str, ...]  # below the data folder, first match wins
    entries: tuple[str, ...]  # one of them is in the right folder
    reader: Callable[[Path], Listing]

    def base(self, root: Path) -> Path | None:
        return first_folder([Path(root) / folder for folder in self.folders], *self.entries)


LAYOUTS = (
    Layout(
        "fgvc100",
        "FGVC100",
        (6_667, 3_333),  # the CEL paper prints 6,776, a typo
        100,
        ("fgvc100/fgvc-aircraft-2013b/data", "fgvc100/data", "fgvc100", "fgvc-aircraft-2013b/data"),
        ("variants.txt", "images_variant_trainval.txt", "images"),
        list_aircraft,
    ),
    Layout(
        "dogs120",
        "DOGS120",
        (12_000, 8_580),
        120,
        ("dogs120", "dogs120/stanford_dogs", "stanford_dogs", "dogs120/ImageNetDogs"),
        ("train_list.mat", "lists", "Images", "images"),
        list_dogs,
    ),
    Layout(
        "cars196",
        "CARS196",
        (8_144, 8_041),
        196,
        ("cars196/stanford_cars", "cars196", "stanford_cars"),
        ("devkit", "cars_train", "cars_test"),
        list_cars,
    ),
    Layout(
        "cub200",
        "CUB200",
        (5_994, 5_794),
        200,
        ("cub200/CUB_200_2011", "cub200", "CUB_200_2011"),
        ("images.txt", "images", "classes.txt"),
        list_birds,
    ),
)


def checked_listing(layout: Layout, base: Path, check_sizes: bool = True) -> Listing:
    """Return the index of a set after all checks that need no decoding; an error names the bad file."""
    listing = layout.reader(base)
    check_size(
        f"{layout.name}: {base}", "classes", len(listing.class_names), layout.num_classes if check_sizes else None
    )
    for part, size in zip((listing.train, listing.test), layout.sizes, strict=True):
        check_size(str(part.index), "images in this split", len(part.files), size if check_sizes else None)
        check_labels(str(part.index), part.labels, len(listing.class_names))
    files = listing.train.files + listing.test.files
    absent_files = [file for file in files if not file.is_file()]
    if absent_files:
        raise DataError(
            f"{layout.name}: {plural(len(absent_files), 'image')} of {len(files):,} listed in {listing.train.index.name} "
            f"and {listing.test.index.name} are missing in {base}, the first is {absent_files[0]}."
        )
    return listing


def load(
    layout: Layout,
    root: Path,
    seed: int = 0,
    *,
    check_sizes: bool = True,
    short_side: int = cache.SHORT_SIDE,
    side: int = FINE_GRAINED.size,
    cache_folder: Path | None = None,
) -> Dataset:
    """Load a set from `root/<name>` through the image cache with that short side; views are `side` × `side`.

    `check_sizes=False` accepts a cut set.
    """
    if not 0 < side <= short_side:
        raise DataError(f"{layout.name}: side is {side}; it must be at least 1 and at most short_side, {short_side}.")
    base = layout.base(root)
    if base is None:
        raise DataError(f"{layout.name}: nothing found in {Path(root) / layout.name}; {how_to_get(layout.name)}.")
    listing = checked_listing(layout, base, check_sizes)
    store = cache_folder or cache.folder(root, layout.name)
    train, test = (
        cache.open_images(part.files, part.labels, base, store, split, short_side)
        for split, part in (("train", listing.train), ("test", listing.test))
    )
    return Dataset(
        name=layout.name,
        num_classes=len(listing.class_names),
        class_names=tuple(listing.class_names),
        train=train,
        test=test,
        recipe=replace(FINE_GRAINED, size=side, test_resize=short_side),
        backbone=BACKBONE,
    )


def find(layout: Layout, root: Path) -> Availability:
    """Report the set as found if every listed image exists; nothing is decoded."""
    base = layout.base(root)
    if base is None:
        return Availability("missing", f"nothing in {Path(root) / layout.name}", how_to_get(layout.name))
    try:
        checked_listing(layout, base)
    except DataError as error:
        return Availability("incomplete", str(error), how_to_get(layout.name))
    return Availability("found", str(base), "")


SOURCES = tuple(
    Source(
        layout.name,
        layout.title,
        "Fine-Grained",
        *layout.sizes,
        layout.num_classes,
        partial(load, layout),
        partial(find, layout),
        backbone=BACKBONE,
    )
    for layout in LAYOUTS
)
