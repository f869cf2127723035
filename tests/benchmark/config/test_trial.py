"""The profiles `paper-trial` and `paper-day`: `paper` in short."""

from __future__ import annotations

from benchmark.config.selection import select
from benchmark.trainer.trainer import evaluations


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
