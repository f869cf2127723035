"""New rows for a trained model, in the forms of training data without candidates or labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from datasets.base import DataError, Split
from datasets.storage import cache
from datasets.user.images import LIST, files_of, open_images
from datasets.user.npz import arrays_of
from datasets.user.rows import inputs_of
from datasets.user.table import SPECIAL, features_of, ids_of, read_table, read_texts

if TYPE_CHECKING:
    import numpy as np
    import pandas

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")


def new_rows(
    path: Path, width: int | None, columns: tuple[str, ...], root: Path
) -> tuple[np.ndarray | Split, tuple[str, ...]]:
    """Return features (N, d), or images if `width` is None, and the rows' names. Decoded images go to `root`."""
    if path.is_dir():
        if width is not None:
            raise DataError(f"{path} is a folder of images, and the model takes {width} features.")
        return _folder(path, root)
    if path.suffix == ".npz":
        x = inputs_of(f"{path}: `x`", arrays_of(path)["x"])
        check_rows(f"{path}: `x`", x, width)
        return x, tuple(map(str, range(len(x))))
    if path.suffix not in (".csv", ".parquet"):
        forms = "an .npz, .csv or .parquet file, or a folder of images"
        raise DataError(f"{path} is not {forms}." if path.exists() else f"{path} does not exist; name {forms}.")
    frame = read_table(path)
    return frame_rows(str(path), frame, width, columns), ids_of(frame)


def check_rows(where: str, x: np.ndarray, width: int | None) -> None:
    """Refuse images for a model of features, features for a model of images, and rows of another size."""
    if width is None and x.ndim != 4:
        raise DataError(f"{where} holds features, and the model takes images.")
    if width is not None and x.ndim == 4:
        raise DataError(f"{where} holds images, and the model takes {width} features.")
    if width is not None and x.shape[1] != width:
        raise DataError(f"{where} has {x.shape[1]} features in a row, and the model takes {width}.")


def frame_rows(where: str, frame: pandas.DataFrame, width: int | None, columns: tuple[str, ...]) -> np.ndarray:
    """Return the features of a frame in the order of the model's columns, if the model has names for them."""
    if width is None:
        raise DataError(f"{where} is a table, and the model takes images.")
    if columns:
        have = [str(column) for column in frame.columns if str(column).lower() not in SPECIAL]
        lacking = [column for column in columns if column not in have]
        strange = [column for column in have if column not in columns]
        if lacking:
            raise DataError(f"{where} has no column `{lacking[0]}`, which the model was trained on.")
        if strange:
            raise DataError(f"{where} has a column `{strange[0]}` that the model was not trained on; leave it out.")
        frame = frame.rename(columns=str)[list(columns)]
    x, _ = features_of(where, frame)
    check_rows(where, x, width)
    return x


def _folder(path: Path, root: Path) -> tuple[Split, tuple[str, ...]]:
    """Return the images that a candidates.csv lists, or all images of the folder in the order of their names."""
    if (path / LIST).is_file():
        names = read_texts(path / LIST, ["file"])["file"].tolist()
    else:
        files = [file for file in path.rglob("*") if file.suffix.lower() in IMAGES and file.is_file()]
        names = sorted(file.relative_to(path).as_posix() for file in files)
    if not names:
        raise DataError(f"{path} holds no images ({', '.join(IMAGES)}).")
    store = cache.folder(root, f"new-{path.resolve().name}")
    return open_images(files_of(path, names), path, store), tuple(names)
