"""Decode images once: RGB, short side resized, one after the other in a memory-mapped file.

A store is two files, `<part>-<side>px-<hash>.pixels` and `.npz` (sizes), the hash being that of the recipe and of the
file list. The index is written last, by rename, so a store with an index is complete whatever was killed before. One
process builds under a lock while others wait; all map the same pages.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from datasets.base import DataError, Split
from datasets.storage.files import atomic, atomic_write, locked

if TYPE_CHECKING:
    import numpy as np

SHORT_SIDE = 256  # what the test view resizes to before its centre crop of 224
FORMAT = 1  # raise when the layout of the files or the decoding below changes
ENVIRONMENT = "CANDID_CACHE"  # another folder for the stores, e.g. when the data folder is read-only


def folder(root: Path, name: str) -> Path:
    """Return the folder of one dataset's stores."""
    return Path(os.environ.get(ENVIRONMENT) or Path(root) / "cache") / name


def decode(path: Path, short_side: int) -> np.ndarray:
    """Decode one image to (3, h, w) uint8: RGB, short side resized (bilinear, antialiased) as torchvision does."""
    import numpy as np
    from PIL import Image

    try:
        with Image.open(path) as file:
            image = file.convert("RGB")
    except FileNotFoundError:
        raise DataError(f"The image {path} is missing.") from None
    except Exception as error:
        raise DataError(f"The image {path} cannot be decoded: {error}.") from None
    width, height = image.size
    short = min(width, height)
    size = (int(short_side * width / short), int(short_side * height / short))
    small_image = image.resize(size, Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(small_image).transpose(2, 0, 1))


def recipe_hash(files: Sequence[Path], base: Path, short_side: int) -> str:
    """Hash what a store depends on. File sizes represent contents; times are left out, so copies have the same hash."""
    import PIL

    recipe = {"format": FORMAT, "short_side": short_side, "resize": "bilinear", "pillow": PIL.__version__}
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode())
    for file in files:
        try:
            digest.update(f"{os.path.relpath(file, base)}\0{file.stat().st_size}\n".encode())
        except OSError:
            raise DataError(f"The image {file} is missing.") from None
    return digest.hexdigest()[:16]


def open_images(
    files: Sequence[Path], labels: Sequence[int], base: Path, store: Path, part: str, short_side: int = SHORT_SIDE
) -> Split:
    """Open the images `files` as a split from the store in folder `store`; it is built first if it does not exist.

    `base` is the folder that the file names in the hash are relative to, so that a moved data folder keeps its store.
    """
    import torch

    if not files:
        raise DataError(f"{base}: the part '{part}' has no images.")
    stem = f"{part}-{short_side}px"
    pixels = store / f"{stem}-{recipe_hash(files, base, short_side)}.pixels"
    sizes = _read_sizes(pixels, len(files))
    if sizes is None:
        try:
            with locked(store / f"{part}.lock"):
                sizes = _read_sizes(pixels, len(files))  # another process may have built it while this one waited
                if sizes is None:
                    _build(files, pixels, short_side)
                    _remove_stale(store, stem, keep=pixels)
                    sizes = _read_sizes(pixels, len(files))
        except OSError as error:
            reason = error.strerror or error
            raise DataError(
                f"{store} cannot be written ({reason}); {ENVIRONMENT} names another folder for it."
            ) from None
    if sizes is None:
        raise DataError(f"The image store {pixels} cannot be read back; check the disk.")
    sizes_tensor = torch.from_numpy(sizes)
    lengths = 3 * sizes_tensor.prod(1)
    flat = torch.from_file(str(pixels), shared=False, size=int(lengths.sum()), dtype=torch.uint8)
    return Split(flat, torch.as_tensor(labels, dtype=torch.int64), sizes_tensor, lengths.cumsum(0) - lengths)


def _read_sizes(pixels: Path, count: int) -> np.ndarray | None:
    """Return the sizes (N, 2) of a complete store; None if it does not exist or is damaged."""
    import numpy as np

    try:
        with np.load(pixels.with_suffix(".npz"), allow_pickle=False) as index:
            sizes = index["sizes"]
        whole = sizes.shape == (count, 2) and pixels.stat().st_size == 3 * int(sizes.prod(1).sum())
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    return sizes if whole else None


def _build(files: Sequence[Path], pixels: Path, short_side: int) -> None:
    import numpy as np

    for leftover in pixels.parent.glob(f".{pixels.name.split('-')[0]}-*.partial"):
        leftover.unlink(missing_ok=True)  # of a killed build: this process has the lock
    sizes: list[tuple[int, int]] = []
    queue = iter(files)
    # Pillow decodes and resizes outside the interpreter lock. In pieces, so that memory stays small.
    with atomic(pixels) as stream, ThreadPoolExecutor(os.cpu_count()) as pool:
        while piece := list(itertools.islice(queue, 256)):
            for image in pool.map(decode, piece, itertools.repeat(short_side)):
                sizes.append(image.shape[1:])
                stream.write(image.data)
    buffer = io.BytesIO()
    np.savez(buffer, sizes=np.array(sizes, dtype=np.int64).reshape(-1, 2))
    atomic_write(pixels.with_suffix(".npz"), buffer.getvalue())


def _remove_stale(store: Path, stem: str, keep: Path) -> None:
    """Remove stores of the same part and size from an older list or recipe; open maps of them stay valid."""
    for path in store.glob(f"{stem}-*"):
        if path.stem != keep.stem:
            path.unlink(missing_ok=True)
