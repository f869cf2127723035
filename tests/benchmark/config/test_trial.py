"""The profiles `paper-trial` and `paper-day`: `paper` in short."""

from __future__ import annotations

from pathlib import Path

from benchmark.config.selection import select
from benchmark.trainer.trainer import evaluations
from tests.conftest import make_tiny
from tests.datasets.test_datasets import cifar


def test_the_trial_is_paper_with_few_rows_and_steps_of_one_seed() -> None:
    paper, trial = (select(name, methods="all", seeds="0").specs() for name in ("paper", "paper-trial"))
    assert [(s.label, s.dataset) for s in trial] == [(s.label, s.dataset) for s in paper]
    for whole, short in zip(paper, trial, strict=True):
        assert short.dataset_settings == {"train": 256, "test": 256}
        assert (short.train.epochs, short.train.eval_every, short.annotator.epochs) == (4, 4, 1)
        assert short.with_train(epochs=500, eval_every=5).train == whole.train
        assert (short.method_config, short.data, short.backbone) == (
            whole.method_config, whole.data, whole.backbone,
        )  # fmt: skip
    assert select("paper-trial").seeds == (0,)


def test_a_day_is_paper_in_bfloat16_with_fewer_epochs_and_seeds() -> None:
    paper, day = (select(name, methods="all", seeds="0").specs() for name in ("paper-bf16", "paper-day"))
    for whole, short in zip(paper, day, strict=True):
        assert short.with_train(epochs=500, eval_every=5).digest == whole.digest
        # An evaluation is a third of an epoch at most: a forward of a test set that is no larger than the training set.
        assert evaluations(short.train) / 3 < 0.05 * short.train.epochs
    assert select("paper-day").seeds == (0, 1)


def test_a_trial_goes_from_the_files_of_cifar_to_the_table(tmp_path: Path) -> None:
    """A small network and files of a few hundred rows; all else is as in a trial of the real set."""
    bench = make_tiny(tmp_path)
    cifar(tmp_path / "data", train=300, test=260)
    network = ("--set", "backbone.name=small-cnn", "--set", "annotator.network=small-cnn")
    words = ("--methods", "proden,pico", "--datasets", "cifar100,cifar100h", "--set", "dataset.check_sizes=false")
    done = bench.run("table2", "--profile", "paper-trial", *words, *network)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = [run for run in bench.documents() if not run.get("purpose")]  # without the annotator
    assert [run["status"] for run in runs] == ["done"] * 4 and {run["profile"] for run in runs} == {"paper-trial"}
    assert {run["epochs_done"] for run in runs} == {4} and {run["test_rows"] for run in runs} == {256}
    assert list((bench.results / "tables" / "paper-trial").glob("table2*.md"))
