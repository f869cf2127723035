"""Candidate sets that lack the true label, from the command line to the page."""

from __future__ import annotations

import pytest
import torch

from benchmark.cli.main import main
from benchmark.config.selection import select
from benchmark.runner.options import RunOptions
from benchmark.runner.worker import execute
from benchmark.trainer.evaluation import Evaluator
from benchmark.trainer.loading import dataset_of
from tests.conftest import TinyBenchmark


def test_runs_on_noisy_sets_say_so_and_clean_runs_keep_their_identity(
    tiny_benchmark: TinyBenchmark, capsys: pytest.CaptureFixture[str]
) -> None:
    bench, noise = tiny_benchmark, ("data.noise=0.3",)
    place = RunOptions(bench.results, bench.folder / "data")
    (clean,) = select(str(bench.profile), methods="proden", seeds="0").specs()
    assert not {"noise", "missing_truth"} & clean.to_json()["dataset"].keys()
    specs = [*select(str(bench.profile), methods="proden,pop,supervised", seeds="0", settings=noise).specs(), clean]
    for spec in specs:
        outcome = execute(spec, place)
        assert outcome.status == "done", outcome.reason
    documents = {document["label"]: document for document in bench.documents()}
    noisy = {document["method"]: document for label, document in documents.items() if "data.noise=0.3" in label}
    assert len(noisy) == 3 and len({document["candidates_sha256"] for document in documents.values()}) == 2
    shares = {document["summary"]["true_labels_missing"] for document in noisy.values()}
    assert len(shares) == 1 and 20 < (share := shares.pop()) < 40
    assert "true_labels_missing" not in documents["proden"]["summary"]
    assert noisy["proden"]["summary"]["train_accuracy"] <= 100 - share  # PRODEN believes in candidates only
    assert noisy["pop"]["summary"]["true_labels_lost"] <= 100 - share

    words = ("--seeds", "0", "--set", *noise)
    assert main(bench.arguments("table1", *words)[3:]) == 0
    assert f"{share:.1f} % of the training rows" in capsys.readouterr().out
    assert main(bench.arguments("candidates", *words)[3:]) == 0
    assert f"without true label {share:.1f}% of the images" in capsys.readouterr().out


def test_a_true_label_that_was_never_there_is_not_lost(tiny_benchmark: TinyBenchmark) -> None:
    (spec,) = select(str(tiny_benchmark.profile), methods="proden", seeds="0").specs()
    dataset = dataset_of(spec, tiny_benchmark.folder / "data")
    labels = dataset.train.labels
    start = torch.nn.functional.one_hot(labels, dataset.num_classes).bool()
    start[:10] = start[:10].roll(1, 1)
    end = start.clone()
    end[10:15] = end[10:15].roll(1, 1)

    class Inputs:
        device = torch.device("cpu")

    class Shrunk:
        def confidence(self) -> torch.Tensor:
            return end.double()

        def candidate_sets(self) -> torch.Tensor:
            return end

    evaluator = Evaluator(dataset, Inputs(), start, torch.arange(len(labels)), torch.arange(0))  # type: ignore[arg-type]
    found = evaluator._disambiguation(Shrunk())  # type: ignore[arg-type]
    assert found["true_labels_missing"] == pytest.approx(1000 / len(labels))
    assert found["true_labels_lost"] == pytest.approx(500 / len(labels))
    assert found["train_accuracy"] == pytest.approx(100 - 1500 / len(labels))
