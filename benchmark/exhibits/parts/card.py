"""Data card of a candidate set: sizes, most confused pairs and examples as text, example images as PNG and PDF."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import torch

from benchmark.exhibits.parts.style import save
from datasets.base import UNKNOWN, Dataset, plural
from datasets.candidates.candidate_sets import (
    CandidateSet,
    Statistics,
    annotator_in_words,
    quality_warnings,
    statistics,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BAR = 40  # characters of the longest bar in the text form
PAIRS = 12  # most confused pairs shown
COLUMNS, EXAMPLE_ROWS = 6, 3
LINE_LENGTH, LINES = 26, 3  # characters of a line beside an example, and its lines
WORDS_SHOWN = 12  # candidates of an example in the text form


def text(dataset: Dataset, candidates: CandidateSet) -> str:
    """Return the card as text."""
    numbers = statistics(candidates.matrix, dataset.train.labels, PAIRS)
    names = dataset.class_names
    lines = [headline(dataset, candidates), *_origin(candidates), *_facts(dataset, numbers), "", "Set sizes"]
    most = max(numbers.histogram.values())
    lines += [
        f"  {size:>4}  {count:>7,}  {'█' * max(1, round(BAR * count / most))}"
        for size, count in numbers.histogram.items()
    ]
    if numbers.confusions:
        lines += ["", f"Most confused (true label, wrong candidate, share of the true label's {noun(dataset)}s)"]
    lines += [f"  {names[c.true]} → {names[c.wrong]}  {c.share:6.1%}  ({c.count:,})" for c in numbers.confusions]
    lines += ["", "Examples (true label in brackets)"]
    lines += [
        f"  {noun(dataset)} {row:>6}: {_set_in_words(dataset, candidates, row)}" for row in example_rows(candidates, 8)
    ]
    return "\n".join(lines)


def write(dataset: Dataset, candidates: CandidateSet, stem: Path) -> list[Path]:
    """Write the example images as `stem`.png and `stem`.pdf; rows that are no images have the text alone."""
    drawing = figure(dataset, candidates)
    return [] if drawing is None else save(drawing, stem.parent, stem.name, dpi=130)


def noun(dataset: Dataset) -> str:
    """Return the noun for one sample."""
    return "row" if dataset.recipe is None else "image"


def headline(dataset: Dataset, candidates: CandidateSet) -> str:
    meta = candidates.meta
    noise = f", noise {meta['noise']:g}" if "noise" in meta else ""
    how = f"{meta['generator']}, rate {meta['rate']:g}{noise}, seed {meta['seed']}" if "rate" in meta else "its own"
    samples = plural(len(dataset.train), noun(dataset))
    return f"{dataset.name}: candidate sets of {samples}, {dataset.num_classes} classes ({how})"


def _origin(candidates: CandidateSet) -> list[str]:
    meta, annotator = candidates.meta, annotator_in_words(candidates)
    lines = [f"  SHA-256            {candidates.sha256}"]
    if annotator:
        sizes = f"(expected size {meta['expected_size']:.2f}; {meta['uncalibrated_size']:.2f} at temperature 1)"
        lines.append(f"  annotator          {annotator} {sizes}")
    if isinstance(meta.get("environment"), dict):
        here = meta["environment"]
        lines.append(f"  annotator ran on   {here.get('device_name', '?')}, torch {here.get('torch', '?')}")
    return lines + [f"  Warning: {doubt}" for doubt in quality_warnings(candidates)]


def _facts(dataset: Dataset, numbers: Statistics) -> list[str]:
    lines = [
        f"  average size       {numbers.average_size:.2f}",
        f"  one candidate      {numbers.singletons:.1%} of the {noun(dataset)}s",
    ]
    unknown = int((dataset.train.labels == UNKNOWN).sum())
    if unknown:
        lines.append(
            f"  no true label      {unknown / len(dataset.train):.1%} of the {noun(dataset)}s; what needs one is over the others"
        )
    if unknown < len(dataset.train):
        lines.append(f"  ambiguity degree   {numbers.ambiguity:.2f}")
    if numbers.without_truth:
        lines.append(f"  without true label {numbers.without_truth:.1%} of the {noun(dataset)}s")
    return lines


def example_rows(candidates: CandidateSet, count: int) -> list[int]:
    """Return rows from the smallest to the largest set, evenly spread over the order of sizes."""
    order = candidates.matrix.sum(1).argsort(stable=True)
    places = torch.linspace(0, len(order) - 1, min(count, len(order))).round().long()
    return order[places].tolist()


def _set_of(dataset: Dataset, candidates: CandidateSet, row: int) -> tuple[str, list[str]]:
    """Return the true label of a row, marked where it is missing in the set or unknown, and the other candidates."""
    true = int(dataset.train.labels[row])
    members = candidates.matrix[row].nonzero().flatten().tolist()
    if true == UNKNOWN:
        return "?", [dataset.class_names[label] for label in members]
    name = dataset.class_names[true] if true in members else f"missing: {dataset.class_names[true]}"
    return name, [dataset.class_names[label] for label in members if label != true]


def _set_in_words(dataset: Dataset, candidates: CandidateSet, row: int) -> str:
    true, wrong = _set_of(dataset, candidates, row)
    more = [f"+{len(wrong) - WORDS_SHOWN}"] if len(wrong) > WORDS_SHOWN else []
    return "  ".join([f"[{true}]", *wrong[:WORDS_SHOWN], *more])


def figure(dataset: Dataset, candidates: CandidateSet) -> Figure | None:
    """Draw example images with the true label above and the other candidates below; None where rows are no images."""
    from matplotlib.figure import Figure  # not pyplot: no window system, no global state

    if dataset.train.images.dtype != torch.uint8:
        return None
    drawing = Figure(figsize=(10, 6), layout="constrained")
    drawing.suptitle(headline(dataset, candidates), fontsize=11)
    grid = drawing.subplots(EXAMPLE_ROWS, COLUMNS).flatten()
    for axes in grid:
        axes.set_axis_off()
    for axes, row in zip(grid, example_rows(candidates, len(grid)), strict=False):
        images, sizes = dataset.train.batch(torch.tensor([row]))
        height, width = images.shape[2:] if sizes is None else sizes[0].tolist()
        axes.imshow(images[0, :, :height, :width].permute(1, 2, 0).numpy(), interpolation="nearest")
        true, wrong = _set_of(dataset, candidates, row)
        axes.set_title(true[:LINE_LENGTH], fontsize=8, fontweight="bold", color="#1a7f37", pad=3, parse_math=False)
        # Broken here: one long line would make its column wider than the others.
        others = fill(", ".join(wrong) or "(alone)", LINE_LENGTH, max_lines=LINES, placeholder=" …")
        axes.text(0.5, -0.04, others, transform=axes.transAxes, ha="center", va="top", fontsize=7, parse_math=False)
    return drawing
