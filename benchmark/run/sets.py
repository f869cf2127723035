"""The candidate sets of a selection, made on first use, one data set after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmark.plan.selection import Selection
from benchmark.run.capture import silenced
from benchmark.run.options import RunOptions
from datasets.base import DataError
from methods.registry import MethodError

if TYPE_CHECKING:
    from datasets.base import Dataset
    from datasets.labels.candidates import CandidateSet


def selected_sets(
    selection: Selection, options: RunOptions
) -> Iterator[tuple[str, tuple[Dataset, CandidateSet] | str]]:
    """Name, and data with the candidate set of the first seed, or a sentence why they cannot be had."""
    from benchmark.train.candidates import candidate_set
    from benchmark.train.loading import dataset_of
    from datasets.labels.annotator import with_accuracy

    for name in selection.datasets:
        spec = selection.specs(selection.methods[:1], [name])[0]
        try:
            dataset = dataset_of(spec, options.data)
            with silenced():  # a library that tries a download ten times would say so ten times
                found = candidate_set(spec, dataset, options.results, options.device)
        except (DataError, MethodError) as error:
            yield spec.dataset, str(error)
        else:
            yield spec.dataset, (dataset, with_accuracy(found, options.results / "candidates"))
