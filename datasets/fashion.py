"""`fashion`: 7,000 images of Fashion-MNIST that ship with Candid; `fashion-mnist`: all 70,000, from their own files.

Xiao, Rasul and Vollgraf, 2017, MIT licence (datasets/embedded/LICENSE-fashion-mnist.txt). Grey 28×28 images of clothes in
ten classes. People also confuse shirt, coat and pullover, so wrong candidates are plausible. The embedded rows
are the first 600 and 100 per class of a fixed shuffle of the official parts, the classes in turn, so that any smaller
`train` or `test` is balanced too; the file names the rows.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from datasets.base import Availability, DataError, Dataset, Source, Split, first_folder, how_to_get, permutation
from datasets.views.recipes import Recipe

EMBEDDED = Path(__file__).parent / "embedded" / "fashion.npz"
EMBEDDED_SHA256 = (
    "4f5e9a1e3676d6c7403f51d4294427ce000d5dc12694ff6147a997b756ac0302"  # of the arrays below, in this order
)
ARRAYS = ("train_images", "train_labels", "train_rows", "test_images", "test_labels", "test_rows")
DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # of its package dataset-fashion-mnist
SIDE, CLASSES, TRAIN, TEST = 28, 10, 6_000, 1_000
NAMES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
FILES = {  # SHA-256 of the unpacked content: publishers pack the same bytes differently
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}

# No flips, because every shoe of the set points to the left. Crops of half the area still show the object.
FASHION = Recipe(
    size=SIDE,
    scale=(0.5, 1.0),
    flip=False,
    mean=(0.286,) * 3,  # of the training images
    std=(0.353,) * 3,
    jitter_probability=0.5,
    distill="strong",
)
Arrays = tuple[np.ndarray, np.ndarray]  # images (N, 28, 28) uint8, labels (N,)


def load_embedded(
    root: Path,
    seed: int = 0,
    *,
    train: int = TRAIN,
    test: int = TEST,
    side: int = SIDE,
    form: Literal["images", "features"] = "images",
    mean: float = 0.0,
    std: float = 1.0,
) -> Dataset:
    """Load the first `train` and `test` embedded images; data folder and seed have no effect."""
    for what, count, most in (("train", train, TRAIN), ("test", test, TEST)):
        if not CLASSES <= count <= most:
            raise DataError(f"fashion: {what}={count} is not possible; take {CLASSES} to {most:,}.")
    content = load_arrays()
    parts = [
        (content[f"{part}_images"][:n], content[f"{part}_labels"][:n]) for part, n in (("train", train), ("test", test))
    ]
    return _dataset("fashion", parts, side, form, mean, std)


def load_full(
    root: Path,
    seed: int = 0,
    *,
    side: int = SIDE,
    form: Literal["images", "features"] = "images",
    mean: float = 0.0,
    std: float = 1.0,
) -> Dataset:
    """Load the official 60,000 and 10,000. `form="features"`: rows of 784 numbers, (pixel/255 − mean)/std, for an MLP."""
    folder = _folder(Path(root))
    if folder is None:
        raise DataError(
            f"fashion-mnist: nothing found in {Path(root) / 'fashion-mnist'}; {how_to_get('fashion-mnist')}, or install "
            f"the Debian package dataset-fashion-mnist."
        )
    images, labels, test_images, test_labels = (_content(folder, file) for file in FILES)
    return _dataset("fashion-mnist", [(images, labels), (test_images, test_labels)], side, form, mean, std)


def _dataset(name: str, parts: list[Arrays], side: int, form: str, mean: float, std: float) -> Dataset:
    import torch

    if side not in (SIDE, SIDE // 2):
        raise DataError(f"{name}: side={side} is not possible; take {SIDE} or {SIDE // 2}.")
    if std <= 0:
        raise DataError(f"{name}: std={std} is not possible; take a positive number.")
    if form == "images" and (mean, std) != (0.0, 1.0):
        raise DataError(f'{name}: mean and std scale the rows of form="features"; the views of images have their own.')
    splits = []
    for images, labels in parts:
        if side < SIDE:  # each pixel the mean of four, rounded
            images = (images.reshape(-1, side, 2, side, 2).sum((2, 4), dtype=np.uint16) + 2) // 4
        if form == "features":
            rows = (images.reshape(len(images), -1).astype(np.float32) / 255 - mean) / std
            pixels = torch.from_numpy(rows.astype(np.float32))
        else:
            pixels = torch.from_numpy(np.repeat(images.astype(np.uint8)[:, None], 3, axis=1))
        splits.append(Split(pixels, torch.from_numpy(labels.astype(np.int64))))
    return Dataset(
        name=name,
        num_classes=CLASSES,
        class_names=NAMES,
        train=splits[0],
        test=splits[1],
        recipe=replace(FASHION, size=side) if form == "images" else None,
        backbone="small-cnn" if form == "images" else "mlp",
    )


# The embedded file --------------------------------------------------------------------------------------------------


def load_arrays() -> dict[str, np.ndarray]:
    """Return the arrays of the embedded file after checking their SHA-256."""
    advice = "restore it, for example by `git checkout datasets/embedded/fashion.npz`"
    try:
        with np.load(EMBEDDED, allow_pickle=False) as file:
            content = {key: file[key] for key in ARRAYS}
    except Exception as error:  # a damaged archive raises errors of many kinds
        raise DataError(f"fashion: {EMBEDDED} is missing or damaged ({error}); {advice}.") from None
    if digest_of(content) != EMBEDDED_SHA256:
        raise DataError(f"fashion: {EMBEDDED} does not hold the known images (its SHA-256 differs); {advice}.")
    return content


def digest_of(content: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for key in ARRAYS:
        digest.update(np.ascontiguousarray(content[key]).tobytes())
    return digest.hexdigest()


def balanced_rows(labels: np.ndarray, per_class: int) -> np.ndarray:
    """Return the rows of the fixed list: `per_class` of every class, the classes in turn."""
    order = permutation(len(labels), 0)
    return np.stack([order[labels[order] == c][:per_class] for c in range(CLASSES)], axis=1).reshape(-1)


# The publisher's files ----------------------------------------------------------------------------------------------


def _folder(root: Path) -> Path | None:
    places = [root / "fashion-mnist", root / "fashion-mnist" / "raw", root / "FashionMNIST" / "raw", DEBIAN]
    return first_folder(places, *FILES, *(f"{file}.gz" for file in FILES))


def _content(folder: Path, file: str) -> np.ndarray:
    """Read one idx file, plain or gzipped; anything but the official content is refused."""
    plain_path, gzip_path = folder / file, folder / f"{file}.gz"
    path = plain_path if plain_path.is_file() else gzip_path
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path == gzip_path else content
    except FileNotFoundError:
        raise DataError(f"{path} is missing; {how_to_get('fashion-mnist')}.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}.") from None
    if hashlib.sha256(content).hexdigest() != FILES[file]:
        raise DataError(f"{path} is damaged or not Fashion-MNIST's: its SHA-256 differs; remove it and fetch it again.")
    return idx(content)


def idx(content: bytes) -> np.ndarray:
    """Decode the idx format: 0, 0, 8 (uint8), number of axes, their lengths as big-endian int32, the data."""
    axes = content[3]
    shape = np.frombuffer(content, ">i4", axes, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def find_embedded(root: Path) -> Availability:
    if not EMBEDDED.is_file():
        return Availability("missing", f"{EMBEDDED} is missing", "restore the checkout")
    return Availability("found", "ships with Candid", "")


def find_full(root: Path) -> Availability:
    folder = _folder(Path(root))
    if folder is None:
        how = f"{how_to_get('fashion-mnist')}, or the Debian package dataset-fashion-mnist"
        return Availability("missing", f"nothing in {Path(root) / 'fashion-mnist'}", how)
    absent_files = [file for file in FILES if not any((folder / name).is_file() for name in (file, f"{file}.gz"))]
    if absent_files:
        return Availability("incomplete", f"{folder} lacks {', '.join(absent_files)}", how_to_get("fashion-mnist"))
    return Availability("found", str(folder), "")


SOURCES = (
    Source("fashion", "Fashion", "Embedded", TRAIN, TEST, CLASSES, load_embedded, find_embedded),
    Source("fashion-mnist", "Fashion-MNIST", "Common", 60_000, 10_000, CLASSES, load_full, find_full),
)
