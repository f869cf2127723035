"""The candidate sets of a selection, one after the other; annotators have been trained before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmark.config.selection import Selection
from benchmark.config.spec import RunSpec
from benchmark.runner.log import silenced
from benchmark.runner.options import RunOptions
from datasets.base import DataError
from methods.registry import MethodError

if TYPE_CHECKING:
    from datasets.base import Dataset
    from datasets.candidates.candidate_sets import CandidateSet


def set_specs(selection: Selection, every_seed: bool = False) -> list[RunSpec]:
    """Return a run for every candidate set of a selection, of the first seed or of all."""
    specs = selection.specs(selection.methods[:1])
    return [spec for spec in specs if every_seed or spec.seed == selection.seeds[0]]


def selected_sets(
    selection: Selection, options: RunOptions, every_seed: bool = False
) -> Iterator[tuple[RunSpec, tuple[Dataset, CandidateSet] | str]]:
    """Yield a run, and its data with their candidate set or the reason why there is none; of the first seed or of all."""
    from benchmark.trainer.candidates import candidate_set
    from benchmark.trainer.loading import dataset_of

    for spec in set_specs(selection, every_seed):
        try:
            dataset = dataset_of(spec, options.data)
            with silenced():  # libraries print every attempt of a download
                candidates = candidate_set(spec, dataset, options.results)
        except (DataError, MethodError) as error:
            yield spec, str(error)
        else:
            yield spec, (dataset, candidates)
