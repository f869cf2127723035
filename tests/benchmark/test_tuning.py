"""The rule by which `tune` chooses, and the file that it writes."""

from __future__ import annotations

from benchmark import tuning
from benchmark.analysis.selection import Score


def test_of_equal_scores_the_smaller_learning_rate_wins():
    places = [(lr, decay) for lr in (0.05, 0.1, 0.5) for decay in (1e-4, 1e-3)]
    scores = [Score(90, 1, value) for value in (7, 7, 7, 7, 7, 1)]
    points = [
        tuning.Point({"train.lr": lr, "train.weight_decay": decay}, (), score)
        for (lr, decay), score in zip(places, scores, strict=True)
    ]
    assert tuning.Cell("digits", "cc", 0.1, tuple(points)).best("one-se") is points[0]
    assert tuning.Cell("digits", "cc", 0.1, (tuning.Point({}, ()),)).best("one-se") is None


def test_a_later_tuning_keeps_the_choices_of_other_methods(tmp_path):
    path = tmp_path / "tuned.toml"
    old = [
        {"method": "cc", "dataset": 'a "b" \\ ü', "source": "s", "lr": 0.1, "weight_decay": 1e-4},
        {"method": "rc", "dataset": "a", "source": "s", "lr": 0.1, "weight_decay": 1e-4},
    ]
    path.write_text(tuning.to_toml("quick", old))
    assert tuning.entries_of(path, "quick") == old
    new = {"method": "rc", "dataset": "a", "source": "t", "lr": 0.5, "weight_decay": 1e-3}
    assert tuning.merge_entries(old, [new]) == [old[0], new]
