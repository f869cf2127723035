"""Define datasets: images or features with labels, their sources, and checks of what they hold.

Nothing here imports torch when the file is imported, so that listing datasets stays instant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from datasets.storage.archives import ARCHIVES

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from datasets.views.recipes import Noise, Recipe

Group = Literal["Embedded", "Common", "Fine-Grained", "Tabular", "Own"]
GROUPS: tuple[str, ...] = get_args(Group)  # in the order of a list
UNKNOWN = -1  # the label of a row whose true class is not known


class DataError(Exception):
    """Data that cannot be used; the text is one sentence for the user."""


@dataclass(frozen=True)
class Split:
    """Training or test part of a dataset; read it through `batch`.

    Three storages: images of one size (N, 3, H, W) uint8; features (N, d) float32; images of many sizes, one
    after the other in one flat memory-mapped uint8 tensor, image i at `offsets[i]` with (h, w) = `sizes[i]`.
    """

    images: Tensor
    labels: Tensor  # (N,) int64, UNKNOWN where there is none
    sizes: Tensor | None = None  # (N, 2) int64, valid height and width
    offsets: Tensor | None = None  # (N,) int64

    def __len__(self) -> int:
        return self.labels.shape[0]

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return rows `index` (B,): images (B, 3, H, W) uint8 or features (B, d), and the valid sizes (B, 2) when padded.

        Images of many sizes are padded with 0 at the bottom and right to the largest of the batch.
        """
        index = index.to(self.images.device)
        if self.sizes is None:
            return self.images[index], None
        sizes = self.sizes[index]
        if self.offsets is None:
            return self.images[index], sizes
        height, width = sizes.amax(0).tolist() if len(index) else (0, 0)
        images = self.images.new_zeros(len(index), 3, height, width)
        # One slice copy per image: a gather over single pixels would read the same bytes several times slower.
        for row, start, (h, w) in zip(images, self.offsets[index].tolist(), sizes.tolist(), strict=True):
            row[:, :h, :w] = self.images[start : start + 3 * h * w].view(3, h, w)
        return images, sizes

    def rows(self, index: Tensor) -> Split:
        """Return the same storage, restricted to the rows `index`."""
        if self.offsets is not None and self.sizes is not None:
            return Split(self.images, self.labels[index], self.sizes[index], self.offsets[index])
        return Split(self.images[index], self.labels[index], None if self.sizes is None else self.sizes[index])


@dataclass(frozen=True)
class Dataset:
    """One loaded dataset."""

    name: str
    num_classes: int
    class_names: tuple[str, ...]
    train: Split
    test: Split
    recipe: Recipe | None  # how its images are augmented; None for feature rows
    superclass: Tensor | None = None  # (C,) int64
    candidates: Tensor | None = None  # (N, C) bool, if the dataset has its own
    may_lack_truth: bool = False  # whether those sets may lack the true label
    backbone: str = "resnet18-cifar"
    annotator: str = ""  # network of its annotator; empty: the backbone
    notes: tuple[str, ...] = ()  # what a reader of the results should know, e.g. rows left out
    noise: Noise | None = None  # of the strong view of feature rows; None: the views' own
    root: Path = Path("data")  # data folder of the set, where files derived from it may be stored
    scaling: Scaling | None = None  # of the user's own features, for new rows
    columns: tuple[str, ...] = ()  # names of the user's features, if any
    train_names: tuple[str, ...] = ()  # of the user's training rows

    def with_training_rows(self, rows: Tensor) -> Dataset:
        """Return the dataset with some of its training rows."""
        return replace(
            self,
            train=self.train.rows(rows),
            candidates=None if self.candidates is None else self.candidates[rows],
            train_names=tuple(self.train_names[row] for row in rows.tolist()) if self.train_names else (),
        )


@dataclass(frozen=True)
class Scaling:
    """Mean 0 and deviation 1 of the columns of a training part."""

    mean: np.ndarray  # (d,) float64
    scale: np.ndarray  # (d,); 0 for a constant column

    @classmethod
    def of(cls, train: np.ndarray) -> Scaling:
        import numpy as np

        mean, deviation = train.mean(0), train.std(0)
        # The deviation of a constant column of large values is a rounding error, which must not be amplified.
        constant = deviation <= 1e-10 * np.maximum(np.abs(mean), 1.0)
        return cls(mean, np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, deviation)))

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        import numpy as np

        return ((rows - self.mean) * self.scale).astype(np.float32)


@dataclass(frozen=True)
class Availability:
    """State of a dataset on this machine."""

    status: Literal["found", "missing", "incomplete"]
    detail: str
    how: str  # what to do about it, empty when found


@dataclass(frozen=True)
class Source:
    """A dataset that can be named on the command line.

    `load(root, seed=0, **settings)` reads it from the data folder; where the split is official, the seed has no effect.
    """

    name: str
    title: str
    group: Group
    train_size: int | None
    test_size: int | None
    num_classes: int | None
    load: Callable[..., Dataset]
    find: Callable[[Path], Availability]
    own_candidates: bool = False  # has its own candidate sets, used unless another generator is set
    split_by_seed: bool = False  # has no official split: every seed draws another
    backbone: str = ""  # of the loaded set, if it has published weights: a plan says whether they are on this machine


def with_name(load: Callable[..., Dataset], name: str) -> Callable[..., Dataset]:
    """Return a loader of the same data under another name; `wraps` keeps the signature, which states the settings."""

    @wraps(load)
    def load_renamed(*arguments: Any, **settings: Any) -> Dataset:
        return replace(load(*arguments, **settings), name=name)

    return load_renamed


def how_to_get(name: str) -> str:
    """Return what to do about a dataset that is not complete."""
    if all(archive.urls for archive in ARCHIVES.get(name, ())):
        return f"`./reproduce.sh fetch {name}`, or by hand as in docs/data.md"
    return f"it cannot be downloaded; put its files into data/{name} as described in docs/data.md"


def first_folder(places: Sequence[Path], *entries: str) -> Path | None:
    """Return the first folder that holds one of the entries: archives and tools differ in their top folder."""
    return next((place for place in places if any((place / entry).exists() for entry in entries)), None)


def read_mat(path: Path, *keys: str, squeeze: bool = False) -> list[Any]:
    """Read variables of a MATLAB file, dense, sparse or cell arrays; no code of the file is run."""
    from scipy.io import loadmat

    if not path.is_file():
        raise DataError(f"{path} is missing.")
    try:
        content = loadmat(path, squeeze_me=squeeze, variable_names=keys)
    except NotImplementedError:
        raise DataError(f"{path} is a MATLAB 7.3 file; save it again with `save(…, '-v7')`.") from None
    except Exception as error:
        raise DataError(f"{path} is not a readable MATLAB file: {error}.") from None
    absent_keys = [key for key in keys if key not in content]
    if absent_keys:
        raise DataError(f"{path} has no variable `{absent_keys[0]}`; {', '.join(keys)} are needed.")
    return [content[key] for key in keys]


def row_name(row: int, names: Sequence[str] = ()) -> str:
    """Return how messages name a row: its number from 1, as a table counts below its header, and its own name if any."""
    number = str(row + 1)
    return f"row {number}" if not names or names[row] == number else f"row {number} ({names[row]})"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def check_size(where: str, what: str, count: int, expected: int | None) -> None:
    """Refuse a split or class list that is not as long as the official one."""
    if expected is not None and count != expected:
        raise DataError(f"{where} has {count:,} {what} where the official set has {expected:,}.")


def check_labels(where: str, labels: Sequence[int] | np.ndarray, num_classes: int) -> None:
    """Refuse labels outside 0 … num_classes − 1."""
    if len(labels) and not 0 <= min(labels) <= max(labels) < num_classes:
        raise DataError(
            f"{where}: labels run from {min(labels)} to {max(labels)}, outside 0 … {num_classes - 1} "
            f"for {num_classes} classes."
        )


def rows_without_truth(candidates: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the rows whose candidates (N, C) lack the true label (N,), where it is known."""
    import numpy as np

    return np.flatnonzero(~candidates[np.arange(len(labels)), labels] & (labels != UNKNOWN))


def check_candidates(
    where: str,
    candidates: np.ndarray,
    labels: np.ndarray,
    num_classes: int,
    numbers: np.ndarray | None = None,
    names: Sequence[str] = (),
    may_lack_truth: bool = False,
) -> None:
    """Refuse a candidate matrix that is not (N, C), has an empty row, or, unless it may, lacks a true label.

    Every candidate set passes this check. `numbers` (N,) are the places of the rows in their file, `names` those of
    all rows of the file.
    """
    import numpy as np

    shape = (len(labels), num_classes)
    if candidates.shape != shape:
        raise DataError(
            f"{where}: candidates have shape {tuple(candidates.shape)}; {shape} is needed (rows × classes)."
        )
    empty = np.flatnonzero(~candidates.any(1))
    without_truth = rows_without_truth(candidates, labels) if not may_lack_truth else empty[:0]
    for rows, problem, advice in (
        (empty, "without any candidate", ""),
        (
            without_truth,
            "whose candidates do not contain the true label",
            "; --set data.missing_truth=keep accepts them",
        ),
    ):
        if len(rows):
            first = int(rows[0] if numbers is None else numbers[rows[0]])
            raise DataError(
                f"{where}: {plural(len(rows), 'row')} {problem}, the first is {row_name(first, names)}{advice}."
            )


def check_finite(where: str, features: np.ndarray, columns: Sequence[str] = ()) -> None:
    """Refuse NaN and infinite features, naming the first of them."""
    import numpy as np

    bad = np.argwhere(~np.isfinite(features))
    if len(bad):
        row, column = bad[0].tolist()
        place = f"{row_name(row)}, column " + (f"`{columns[column]}`" if columns else str(column + 1))
        raise DataError(f"{where}: {plural(len(bad), 'feature value')} NaN or infinite, the first in {place}.")


def permutation(count: int, seed: int) -> np.ndarray:
    """Return a shuffle of 0 … count − 1 as a function of the seed alone: keys by splitmix64, sorted.

    numpy does not promise the same shuffle in later versions; a split must not change with an upgrade.
    """
    import numpy as np

    with np.errstate(over="ignore"):
        key = np.arange(count, dtype=np.uint64) + np.uint64(seed) * np.uint64(0xD1342543DE82EF95)
        for _ in range(2):  # a second round decorrelates neighbouring seeds
            key = (key + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
            key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            key = key ^ (key >> np.uint64(31))
    return np.argsort(key, kind="stable")


def long_tail(labels: np.ndarray, num_classes: int, ratio: float, seed: int) -> np.ndarray:
    """Return the rows, ascending, of an exponential long tail: n·ratio^(−c/(C−1)) of class c, n of the largest class.

    Rounded down, as by Cao et al. (NeurIPS 2019); one row at least, and never more than there are. The rows of a higher
    ratio are among those of a lower one.
    """
    import numpy as np

    counts = np.bincount(labels, minlength=num_classes)
    targets = counts.max() * ratio ** -np.linspace(0, 1, num_classes)
    sizes = np.maximum(1, np.floor(targets + 1e-9))  # 500 must not become 499 by a rounding error
    order = permutation(len(labels), seed)
    order = order[np.argsort(labels[order], kind="stable")]  # class by class, shuffled inside
    place = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[place < sizes[labels[order]]])


def stratified(labels: np.ndarray, count: int, shuffle: int = 0) -> np.ndarray:
    """Return (N,) bool, true for exactly `count` rows, in which every class has its share to within one row.

    Every row gets the middle of its place in its class, shuffled by `shuffle`, as a fraction; the lowest fractions of
    the whole set are taken. So the rows of a smaller count are mostly among those of a larger one.
    """
    import numpy as np

    order = permutation(len(labels), shuffle)
    place = np.empty(len(labels))
    for label in np.unique(labels):
        rows = order[labels[order] == label]
        place[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    mask = np.zeros(len(labels), dtype=bool)
    mask[np.argsort(place, kind="stable")[:count]] = True
    return mask


def cut(dataset: Dataset, train: int | None, test: int | None) -> Dataset:
    """Return a stratified part of so many training and test rows; None: all. It does not depend on a run's seed."""
    import numpy as np
    import torch

    rows = {}
    for part, split, count in (("train", dataset.train, train), ("test", dataset.test, test)):
        if count is not None and not 2 <= count <= len(split):
            raise DataError(f"{dataset.name}: {part}={count} is not possible; take 2 to {len(split):,} rows.")
        rows[part] = torch.from_numpy(np.flatnonzero(stratified(split.labels.numpy(), count or len(split))))
    return replace(dataset.with_training_rows(rows["train"]), test=dataset.test.rows(rows["test"]))


def settings_of(source: Source) -> dict[str, Parameter]:
    """Return the settings of a dataset: the keyword arguments of its `load`, and `train` and `test` to cut it."""
    own = {p.name: p for p in signature(source.load).parameters.values() if p.kind is p.KEYWORD_ONLY}
    cuts = {name: Parameter(name, Parameter.KEYWORD_ONLY, default=0, annotation="int") for name in ("train", "test")}
    return cuts | own


def load(source: Source, root: Path, seed: int = 0, **settings: Any) -> Dataset:
    """Load a dataset with its settings; `train` and `test` cut it if it has no such settings of its own."""
    own = signature(source.load).parameters
    cuts = {name: settings.pop(name) for name in ("train", "test") if name in settings and name not in own}
    dataset = source.load(root, seed, **settings)
    return cut(dataset, cuts.get("train"), cuts.get("test")) if cuts else dataset


def hold_out(count: int, seed: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Return training and test rows, each ascending; `share` of the rows (at least one) is held out."""
    import numpy as np

    order = permutation(count, seed)
    test_count = max(1, round(share * count))
    return np.sort(order[test_count:]), np.sort(order[:test_count])


def z_score(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale both parts with the mean and deviation of the training part; constant columns become 0."""
    scaling = Scaling.of(train)
    return scaling(train), scaling(test)


def min_max(reference: np.ndarray, *parts: np.ndarray) -> list[np.ndarray]:
    """Scale the parts so that the reference rows lie in [0, 1]; constant columns become 0."""
    import numpy as np

    low, span = reference.min(0), np.ptp(reference, axis=0)
    span = np.where(span < 1e-10, 1.0, span)
    return [((part - low) / span).astype(np.float32) for part in parts]
