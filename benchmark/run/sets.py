"""The candidate sets of a selection, made on first use, one data set after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmark.plan.selection import Selection
from benchmark.plan.spec import RunSpec
from benchmark.run.capture import silenced
from benchmark.run.options import RunOptions
from datasets.base import DataError
from methods.registry import MethodError

if TYPE_CHECKING:
    from datasets.base import Dataset
    from datasets.labels.candidates import CandidateSet


def selected_sets(
    selection: Selection, options: RunOptions, every_seed: bool = False
) -> Iterator[tuple[RunSpec, tuple[Dataset, CandidateSet] | str]]:
    """A run, and its data with their candidate set, or a sentence why they cannot be had; of the first seed or of all."""
    from benchmark.train.candidates import candidate_set
    from benchmark.train.loading import dataset_of
    from datasets.labels.annotator import with_accuracy

    for spec in selection.specs(selection.methods[:1]):
        if spec.seed != selection.seeds[0] and not every_seed:
            continue
        try:
            dataset = dataset_of(spec, options.data)
            with silenced():  # a library that tries a download ten times would say so ten times
                found = candidate_set(spec, dataset, options.results, options.device)
        except (DataError, MethodError) as error:
            yield spec, str(error)
        else:
            yield spec, (dataset, with_accuracy(found, options.results / "candidates"))
