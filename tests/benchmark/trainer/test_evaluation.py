"""The criteria for choosing settings on held-out rows, and the rows that they read."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from benchmark.config.selection import select
from benchmark.store import is_result
from benchmark.trainer.candidates import candidate_set
from benchmark.trainer.evaluation import candidate_log_likelihood, first_per_class
from benchmark.trainer.loading import dataset_of, entry_of
from benchmark.trainer.trainer import Trainer
from datasets.base import UNKNOWN, DataError
from methods.registry import load
from tests.conftest import TinyBenchmark


def test_the_log_likelihood_is_the_mean_log_probability_of_the_candidate_sets() -> None:
    probabilities = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.2, 0.2, 0.6]])
    candidates = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]], dtype=torch.bool)
    expected = (math.log(0.8) + math.log(0.1) + 0.0) / 3
    value = candidate_log_likelihood(probabilities.log() + 7, candidates)
    assert value == pytest.approx(expected, abs=1e-6) and is_result("candidate_log_likelihood", value)
    confident = torch.tensor([[0.0, 1000.0]])  # its probability is 0 in any float
    assert candidate_log_likelihood(confident, torch.tensor([[True, False]])) == -1000.0


def test_a_class_with_fewer_rows_gives_those_that_it_has() -> None:
    labels = torch.tensor([2, 0, 0, UNKNOWN, 2, 0, 2, 0])
    assert first_per_class(labels, 4, 2).tolist() == [0, 1, 2, 4]
    assert first_per_class(labels, 4, 9).tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert first_per_class(labels[:0], 4, 2).tolist() == []


def trainer_of(bench: TinyBenchmark, method: str, *settings: str) -> Trainer:
    (spec,) = select(str(bench.profile), methods=method, seeds="0", settings=settings).specs()
    dataset = dataset_of(spec, Path())
    candidates = candidate_set(spec, dataset, bench.results)
    return Trainer(spec, load(entry_of(spec)), dataset, candidates.matrix, torch.device("cpu"))


def test_few_rows_per_class_are_trained_on_and_the_other_held_out_rows_score(tiny_benchmark: TinyBenchmark) -> None:
    usual = trainer_of(tiny_benchmark, "supervised", "train.holdout=0.5")
    few = trainer_of(tiny_benchmark, "supervised", "train.holdout=0.5", "train.few=3")
    held_out = set(usual.evaluator.held_out.tolist())
    assert len(few.rows) == 30 and set(few.rows.tolist()) < held_out
    assert set(few.evaluator.held_out.tolist()) == held_out - set(few.rows.tolist())
    assert torch.bincount(few.evaluator.train_labels).tolist() == [3] * 10
    assert few.spec.digest != usual.spec.digest

    result = few.train_epoch()["result"]
    assert result["held_out_rows"] == len(held_out) - 30 and result["candidate_log_likelihood"] < 0
    assert result["true_label_rows"] <= 50 and 0 <= result["true_label_accuracy"] <= 100


@pytest.mark.parametrize(
    ("method", "holdout", "sentence"),
    [("proden", "0.5", "must not see"), ("supervised", "0", "raise train.holdout")],
)
def test_few_rows_need_held_out_rows_and_a_method_that_may_see_true_labels(tiny_benchmark, method, holdout, sentence):
    with pytest.raises(DataError, match=sentence):
        trainer_of(tiny_benchmark, method, f"train.holdout={holdout}", "train.few=3")
