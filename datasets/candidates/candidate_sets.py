"""Draw candidate sets by a generator's rule, describe them, and store them for all methods.

A matrix depends on (dataset, generator, rate, seed, noise) and on nothing else; it is drawn once and stored with its
SHA-256.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datasets.base import UNKNOWN, DataError, Dataset, check_candidates, plural, rows_without_truth
from datasets.candidates import generators
from datasets.candidates.generators import Generator, Rows, Rule
from datasets.storage.files import atomic_write, file_name, locked
from datasets.views import counter

FORMAT = 1
ROWS = 4096  # processed at a time, so that memory does not grow with the dataset
BISECTION_ROUNDS = 50
DELETE = "delete it to draw it again"  # how errors about stored files end
TEMPERATURES = (1e-4, 1e4)  # from one wrong label to a uniform distribution
NEAR_BOUND = 10.0  # factor: closer to these, the calibrated temperature is meaningless
NEAR_CHANCE = 0.05  # of the way from chance to perfect accuracy


# Calibration and draw -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calibration:
    """One softmax temperature, the mean expected size that it gives, and the size without it."""

    temperature: float
    expected_size: float
    uncalibrated_size: float


def expected_size(probabilities: Tensor) -> Tensor:
    """Return the expected number of candidates (N,), the true label included."""
    return 1 + probabilities.sum(1)


def mean_size(rule: Rule, rows: Rows, rate: float, temperature: float = 1.0) -> float:
    """Return the mean of the expected set sizes under a rule with tempered logits."""
    parts = _parts(rows, temperature)
    return sum(expected_size(rule(part, rate)).sum().item() for _, part in parts) / len(rows.labels)


def calibrate_temperature(rule: Rule, rows: Rows, rate: float, target: float) -> Calibration:
    """Find the temperature at which the mean expected size is `target`, by bisection.

    For a rule whose sizes do not fall as the temperature rises. VALEN's do not: a hotter softmax is flatter, and
    Σ min(1, κ r_j) grows with flatness.
    """
    low, high = (math.log(temperature) for temperature in TEMPERATURES)
    smallest, largest = (mean_size(rule, rows, rate, temperature) for temperature in TEMPERATURES)
    if not smallest - 1e-6 <= target <= largest + 1e-6:
        raise DataError(
            f"An average of {target:g} candidates cannot be reached at rate {rate:g}: with these annotator outputs "
            f"temperatures give between {smallest:.2f} and {largest:.2f}; change the rate or the target."
        )
    for _ in range(BISECTION_ROUNDS):
        middle = (low + high) / 2
        if mean_size(rule, rows, rate, math.exp(middle)) < target:
            low = middle
        else:
            high = middle
    temperature = math.exp((low + high) / 2)
    return Calibration(temperature, mean_size(rule, rows, rate, temperature), mean_size(rule, rows, rate))


def reachable(rule: Rule, classes: int, rate: float) -> tuple[float, float]:
    """Return the smallest and largest mean size for any annotator: certain of one wrong label, or of none."""
    logits = torch.zeros(2, classes, dtype=torch.float64)
    logits[0, -1] = 1e6
    rows = Rows(torch.zeros(2, dtype=torch.int64), classes, logits=logits)
    smallest, largest = expected_size(rule(rows, rate)).tolist()
    return smallest, largest


def draw(probabilities: Tensor, labels: Tensor, seed: int, stream: str, start: int = 0) -> Tensor:
    """Draw candidate sets (N, C) bool; every label is drawn independently and the true one is always included.

    The draw of row i is a function of (seed, stream, start + i): sets of a higher rate contain those of a lower one.
    """
    index = torch.arange(start, start + len(labels), device=probabilities.device)
    chance = counter.uniforms(seed, 0, stream, index, probabilities.shape[1])
    return (chance < probabilities).scatter(1, labels[:, None], True)


def replace_truth(matrix: Tensor, labels: Tensor, noise: float, seed: int, stream: str, start: int = 0) -> Tensor:
    """Replace the true label by a wrong one with probability `noise`; sizes of the sets (N, C) stay.

    The wrong label is one from outside the set. The draw of row i is a function of (seed, stream, start + i): the rows
    of a higher noise contain those of a lower one.
    """
    index = torch.arange(start, start + len(labels), device=matrix.device)
    chance = counter.uniforms(seed, 0, stream, index, 1 + matrix.shape[1])
    noisy = chance[:, 0] < noise
    if (noisy & matrix.all(1)).any():
        raise DataError(
            f"Noise {noise:g} meets rows whose candidates are all classes already, so that no wrong label can "
            f"replace the true one; lower the rate."
        )
    wrong_labels = chance[:, 1:].masked_fill(matrix, -1.0).argmax(1, keepdim=True)
    noisy_sets = matrix.scatter(1, labels[:, None], False).scatter(1, wrong_labels, True)
    return torch.where(noisy[:, None], noisy_sets, matrix)


def _parts(rows: Rows, temperature: float) -> Iterator[tuple[int, Rows]]:
    """Yield first row and rows of every block, logits tempered."""
    for block in _row_slices(len(rows.labels)):
        logits = None if rows.logits is None else rows.logits[block].double() / temperature
        yield block.start, replace(rows, labels=rows.labels[block], logits=logits)


def _row_slices(count: int) -> Iterator[slice]:
    return (slice(start, min(start + ROWS, count)) for start in range(0, count, ROWS))


# Candidate sets and their statistics -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CandidateSet:
    """The candidate matrix (N, C) bool of a training set, its checksum, and how it was made."""

    matrix: Tensor
    sha256: str
    meta: Mapping[str, Any]


@dataclass(frozen=True)
class Annotation:
    """Outputs of an annotator, a network trained on the true labels, for the training images."""

    logits: Tensor  # (N, C) float32
    train_accuracy: float
    test_accuracy: float | None  # None without labelled test images
    environment: Mapping[str, Any]  # device and versions of its training


@dataclass(frozen=True)
class Annotator:
    """The identity of an annotator, and a function that returns its outputs, training it if need be."""

    identity: str
    annotate: Callable[[], Annotation]


@dataclass(frozen=True)
class Confusion:
    """Frequency of a wrong label beside a true one."""

    true: int
    wrong: int
    count: int
    share: float  # of the images of the true class


@dataclass(frozen=True)
class Statistics:
    """Statistics of the candidate sets of a training set."""

    average_size: float
    histogram: dict[int, int]  # set size -> images
    singletons: float  # share of images with one candidate
    without_truth: float  # share of the images with a known true label whose set does not hold it
    ambiguity: float  # largest share of images of one class that have the same wrong label
    confusions: tuple[Confusion, ...]  # most frequent first


def statistics(matrix: Tensor, labels: Tensor, most: int = 20) -> Statistics:
    """Return sizes of candidate sets (N, C), and confusions where the true labels (N,) are known."""
    sizes, has_label = matrix.sum(1), labels != UNKNOWN
    counts, share = _confusion_counts(matrix[has_label], labels[has_label])
    pairs = counts.flatten().argsort(descending=True, stable=True)[:most]
    classes = matrix.shape[1]
    confusions = tuple(
        Confusion(pair // classes, pair % classes, int(counts.view(-1)[pair]), float(share.view(-1)[pair]))
        for pair in pairs.tolist()
        if counts.view(-1)[pair] > 0
    )
    values, rows = sizes.unique(return_counts=True)
    return Statistics(
        average_size=sizes.double().mean().item(),
        histogram=dict(zip(values.tolist(), rows.tolist(), strict=True)),
        singletons=(sizes == 1).double().mean().item(),
        without_truth=len(rows_without_truth(matrix.numpy(), labels.numpy())) / max(1, int(has_label.sum())),
        ambiguity=share.max().item(),
        confusions=confusions,
    )


def annotator_in_words(candidates: CandidateSet) -> str:
    """Return accuracy and temperature of the annotator as text; empty without one."""
    meta = candidates.meta
    words = []
    if meta.get("test_accuracy") is not None:
        train, test = 100 * meta["train_accuracy"], 100 * meta["test_accuracy"]
        words.append(f"{train:.1f} % accuracy in training, {test:.1f} % on the test set")
    if "temperature" in meta:
        words.append(f"temperature {meta['temperature']:.4g}")
    return ", ".join(words)


def quality_warnings(candidates: CandidateSet) -> list[str]:
    """Return a warning for each sign that the sets are not instance-dependent although their sizes are as requested."""
    meta, chance = candidates.meta, 1 / candidates.matrix.shape[1]
    warnings = []
    accuracy = meta.get("test_accuracy")
    if accuracy is not None and accuracy < chance + NEAR_CHANCE * (1 - chance):
        warnings.append(
            f"the annotator is near chance ({100 * accuracy:.1f} % of the test set right, chance is "
            f"{100 * chance:.1f} %): its candidate labels do not follow the samples; train it longer or from other weights."
        )
    low, high = TEMPERATURES
    if not low * NEAR_BOUND < meta.get("temperature", 1.0) < high / NEAR_BOUND:
        warnings.append(
            f"calibration ran against its bound (temperature {meta['temperature']:.2g} of {low:g} to {high:g}): "
            "the annotator's outputs do not fit the rate and the target size."
        )
    return warnings


def _confusion_counts(matrix: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return (C, C) images of class y (row) whose set contains j ≠ y (column), and their share of class y."""
    classes = matrix.shape[1]
    counts = torch.zeros(classes, classes, dtype=torch.float64)
    for rows in _row_slices(len(labels)):
        counts.index_add_(0, labels[rows], matrix[rows].double())
    counts.fill_diagonal_(0)
    per_class = torch.bincount(labels, minlength=classes).clamp(min=1)
    return counts, counts / per_class[:, None]


# Files ----------------------------------------------------------------------------------------------------------------


def checksum(matrix: np.ndarray) -> str:
    """Return the SHA-256 of a boolean matrix: its shape and its bits."""
    digest = hashlib.sha256(f"{matrix.shape[0]}x{matrix.shape[1]}:".encode())
    digest.update(np.packbits(matrix, axis=1).tobytes())
    return digest.hexdigest()


def digest_of(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the canonical JSON form of a description."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def fingerprint(dataset: Dataset) -> str:
    """Return the SHA-256 of what candidate labels depend on: all labels, and a sample of the training images.

    At most 2,000 images are read, because a set may have many gigabytes.
    """
    superclass = None if dataset.superclass is None else dataset.superclass.tolist()
    digest = hashlib.sha256(json.dumps([dataset.num_classes, superclass, len(dataset.test)]).encode())
    digest.update(dataset.train.labels.numpy().tobytes() + dataset.test.labels.numpy().tobytes())
    rows = torch.linspace(0, len(dataset.train) - 1, min(len(dataset.train), 2000), dtype=torch.float64).long()
    for part in rows.split(200):
        images, _ = dataset.train.batch(part)
        digest.update(images.contiguous().numpy().tobytes())
    return digest.hexdigest()


def write_arrays(path: Path, **arrays: np.ndarray) -> None:
    """Write an `.npz` file atomically."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    try:
        atomic_write(path, buffer.getvalue())
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}.") from None


def read_arrays(path: Path, what: str, *names: str) -> list[np.ndarray]:
    """Read the named arrays of an `.npz` file, without pickle."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return [arrays[name] for name in names]
    except Exception as error:  # for a damaged file zlib, zipfile and NumPy raise errors of many kinds
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"The {what} file {path} is damaged or has another format ({reason}); {DELETE}.") from None


def as_bytes(meta: Mapping[str, Any]) -> np.ndarray:
    return np.frombuffer(json.dumps(meta, sort_keys=True).encode(), dtype=np.uint8)


def save(path: Path, candidates: CandidateSet) -> None:
    """Store candidate sets, one bit per label."""
    matrix = candidates.matrix.numpy()
    meta = dict(candidates.meta, format=FORMAT, sha256=candidates.sha256)
    write_arrays(path, bits=np.packbits(matrix, axis=1), shape=np.array(matrix.shape), meta=as_bytes(meta))


def load(path: Path, labels: Tensor, classes: int, may_lack_truth: bool = False) -> CandidateSet:
    """Read candidate sets back; a file that does not fit the training labels (N,) or its checksum is refused."""
    candidates = read(path)
    check_candidates(str(path), candidates.matrix.numpy(), labels.numpy(), classes, may_lack_truth=may_lack_truth)
    return candidates


def read(path: Path) -> CandidateSet:
    """Read stored candidate sets without their data; a damaged file, or one of another checksum, is refused."""
    bits, shape, raw = read_arrays(path, "candidate", "bits", "shape", "meta")
    try:
        meta = json.loads(raw.tobytes())
        rows, columns = (int(size) for size in shape)
        if bits.shape != (rows, -(-columns // 8)):  # `unpackbits` would pad them to any shape
            raise ValueError
        matrix = np.unpackbits(bits, axis=1, count=columns).astype(bool)
        sha256, version = meta.pop("sha256"), meta.pop("format")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise DataError(f"The candidate file {path} is damaged or has another format; {DELETE}.") from None
    if version != FORMAT:
        raise DataError(f"The candidate file {path} has format {version}, not {FORMAT}; {DELETE}.")
    if checksum(matrix) != sha256:
        raise DataError(f"The candidate file {path} is damaged: its SHA-256 does not match; {DELETE}.")
    return CandidateSet(torch.from_numpy(matrix), sha256, meta)


# Drawing or loading ----------------------------------------------------------------------------------------------------


def build(
    dataset: Dataset,
    generator: str,
    rate: float,
    seed: int,
    folder: Path,
    annotator: Annotator | None = None,
    target_size: float | None = None,
    noise: float = 0.0,
) -> CandidateSet:
    """Return the candidate sets of a training set: those stored in `folder`, or new ones, which are stored there.

    `annotator` and `target_size` are for generators that need one; `noise` is the probability that the true label is
    replaced by a wrong one. Concurrent processes get the same file.
    """
    entry = generators.get(generator)
    if entry.rule is None:
        return _own(dataset, noise)
    _check_request(dataset, entry, rate, seed, annotator, target_size, noise)
    request: dict[str, Any] = {
        "dataset": dataset.name,
        "fingerprint": fingerprint(dataset),
        "generator": generator,
        "rate": rate,
        "seed": seed,
        "target_size": target_size,
        "annotator": annotator.identity if entry.annotator and annotator is not None else None,
    }
    if noise:  # sets without noise keep the names of earlier versions
        request["noise"] = noise
    setting = f"{generator}-rate{rate:g}" + (f"-noise{noise:g}" if noise else "")
    path = Path(folder) / file_name(dataset.name) / f"{setting}-seed{seed}-{digest_of(request)[:8]}.npz"
    if not path.exists():
        # The annotator takes a lock of its own; locks must not be nested.
        annotation = annotator.annotate() if entry.annotator and annotator is not None else None
        with locked(path.with_suffix(".lock")):
            if not path.exists():  # another process may have drawn it while this one waited
                matrix, details = _make(dataset, entry.rule, request, annotation)
                save(path, CandidateSet(matrix, checksum(matrix.numpy()), request | details))
    candidates = load(path, dataset.train.labels, dataset.num_classes, noise > 0)
    foreign = [key for key, value in request.items() if candidates.meta.get(key) != value]
    if foreign:
        raise DataError(f"The candidate file {path} was made for another {foreign[0]}; {DELETE}.")
    return candidates


def _check_request(
    dataset: Dataset,
    generator: Generator,
    rate: float,
    seed: int,
    annotator: Annotator | None,
    target_size: float | None,
    noise: float,
) -> None:
    if not 0 <= rate <= 1:
        raise DataError(f"{dataset.name}: the rate {rate:g} is not a probability.")
    count = int((dataset.train.labels == UNKNOWN).sum())
    if count:
        raise DataError(
            f"{dataset.name}: the generator '{generator.name}' makes candidates from true labels, which "
            f"{plural(count, 'training row')} {'lack' if count > 1 else 'lacks'}; leave data.generator as it is."
        )
    if not 0 <= noise < 1:
        raise DataError(f"{dataset.name}: the noise {noise:g} is not in [0, 1).")
    if seed < 0:
        raise DataError(f"{dataset.name}: the candidate seed {seed} must not be negative.")
    if generator.superclasses and dataset.superclass is None:
        raise DataError(f"{dataset.name} has no superclasses, so the generator '{generator.name}' cannot be used.")
    if generator.annotator and annotator is None:
        raise DataError(f"{dataset.name}: the generator '{generator.name}' needs an annotator network.")
    if target_size is not None and not generator.annotator:
        raise DataError(f"{dataset.name}: the generator '{generator.name}' has no annotator, so no target size.")
    if target_size is not None and generator.rule is not None:
        smallest, largest = reachable(generator.rule, dataset.num_classes, rate)
        if not smallest - 1e-6 <= target_size <= largest + 1e-6:
            raise DataError(
                f"{dataset.name}: an average of {target_size:g} candidates cannot be reached at rate {rate:g} with "
                f"{dataset.num_classes} classes: whatever the annotator, it is between {smallest:.2f} and {largest:.2f}; "
                f"change data.rate or data.target_size."
            )


def _make(
    dataset: Dataset, rule: Rule, request: Mapping[str, Any], annotation: Annotation | None
) -> tuple[Tensor, dict[str, Any]]:
    """Return the matrix (N, C), and what is stored beside the request: annotator and temperature."""
    labels, rate, target = dataset.train.labels, request["rate"], request["target_size"]
    rows = Rows(labels, dataset.num_classes, dataset.superclass, None if annotation is None else annotation.logits)
    details: dict[str, Any] = {}
    if annotation is not None:
        details["environment"] = dict(annotation.environment)  # outputs differ in the last digits on other machines
        details |= {"train_accuracy": annotation.train_accuracy, "test_accuracy": annotation.test_accuracy}
    if target is not None:
        details |= asdict(calibrate_temperature(rule, rows, rate, target))
    elif annotation is not None:
        size = mean_size(rule, rows, rate)
        details |= asdict(Calibration(1.0, size, size))
    seed, noise, stream = request["seed"], request.get("noise", 0.0), f"{dataset.name}/{request['generator']}"
    parts = []
    for start, part in _parts(rows, details.get("temperature", 1.0)):
        sets = draw(rule(part, rate), part.labels, seed, f"candidates/{stream}", start)
        parts.append(replace_truth(sets, part.labels, noise, seed, f"noise/{stream}", start) if noise else sets)
    return torch.cat(parts), details


def _own(dataset: Dataset, noise: float) -> CandidateSet:
    if dataset.candidates is None:
        others = ", ".join(name for name, entry in generators.GENERATORS.items() if entry.rule is not None)
        raise DataError(
            f"{dataset.name} has no candidate sets; add them, or generate them with --set data.generator=NAME ({others})."
        )
    if noise:
        raise DataError(f"{dataset.name}: noise is for generated candidate sets; these are part of the data.")
    matrix, labels = dataset.candidates.bool(), dataset.train.labels
    check_candidates(
        dataset.name, matrix.numpy(), labels.numpy(), dataset.num_classes, may_lack_truth=dataset.may_lack_truth
    )
    return CandidateSet(matrix, checksum(matrix.numpy()), {"dataset": dataset.name, "generator": "own"})
