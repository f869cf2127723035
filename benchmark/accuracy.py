"""The accuracies of a run: the epoch that each one reads, and its words everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Accuracy:
    """One rule for the epoch whose test accuracy is reported."""

    key: str  # in run.json's summary and in frames of runs
    word: str  # of `--accuracy`
    caption: str  # "Test accuracy (%) …"
    chosen_by: str = ""  # metric on held-out candidate labels whose best epoch it takes
    warning: str = ""  # that a caption begins with, and a blank


COVERING_RATE = "the share of rows whose predicted label is among their candidates"  # its definition for users
LAST = Accuracy("accuracy", "last", "after the last epoch")
ACCURACIES = (
    LAST,
    Accuracy("accuracy_last10", "last10", "as the mean of the last 10 epochs"),
    Accuracy(
        "accuracy_covering",
        "covering",
        "at the epoch chosen by covering rate, without true labels",
        chosen_by="covering_rate",
    ),
    Accuracy(
        "accuracy_approximated",
        "approximated",
        "at the epoch chosen by approximated accuracy, without true labels",
        chosen_by="approximated_accuracy",
    ),
    Accuracy(
        "accuracy_oracle",
        "oracle",
        "at the best test epoch",
        warning="ORACLE: best test epoch, chosen with test labels; not a result. ",
    ),
)
WORDS = tuple(accuracy.word for accuracy in ACCURACIES)
SELECTING = {accuracy.word: accuracy.chosen_by for accuracy in ACCURACIES if accuracy.chosen_by}


def in_words(values: Mapping[str, Any]) -> str:
    """Return the test accuracy of a result or summary as text, or without true labels the metrics in its place."""
    for key in ("test_accuracy", "accuracy"):
        if values.get(key) is not None:
            return f"test {values[key]:.1f} %"
    texts = [
        f"{metric.replace('_', ' ')} {values[metric]:.1f} %"
        for metric in SELECTING.values()
        if values.get(metric) is not None
    ]
    return ", ".join(texts)


def by_word(word: str) -> Accuracy:
    return next(accuracy for accuracy in ACCURACIES if accuracy.word == word)
