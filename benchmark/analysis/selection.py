"""Choose settings without true labels, and measure how good such choices are.

A cell is one method on one dataset; a setting is one point of its grid, trained with several seeds. All criteria are read
after the last epoch on held-out training rows; docs/statistics.md defines them. `tune` and the exhibit `selection` share
the rules of this file, which imports NumPy and pandas only where they are needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

HELD_OUT, COVERING, APPROXIMATED = "held_out_rows", "covering_rate", "approximated_accuracy"
HOLDOUT = 0.1  # of the training set that `tune` holds out where the profile keeps nothing out
ONE_SE = "one-se"  # the rule of `tune`
CRITERIA = {  # the rules that take the highest value of one field of Score
    "covering": "covering_rate",
    "approximated": "approximated_accuracy",
    "likelihood": "log_likelihood",
    "true-labels": "true_labels",
}
TITLES = {
    ONE_SE: "AA within one SE of the best CR",
    "covering": "CR",
    "approximated": "AA",
    "likelihood": "Log-likelihood",
    "true-labels": "True labels (5 per class)",
}
REFERENCE = "proden"  # of the choice between methods
TUNING_SEEDS = (100, 101, 102)  # reported by no profile of the project


def unreported_seeds(reported: Sequence[int]) -> tuple[int, ...]:
    """Return three seeds that a profile does not report."""
    first = max(TUNING_SEEDS[0], max(reported) + 1)
    return tuple(range(first, first + len(TUNING_SEEDS)))


@dataclass(frozen=True)
class Score:
    """The criteria of one setting: the covering rate over the held-out rows of all seeds, the others as means over seeds."""

    covering_rate: float  # percent
    standard_error: float  # of the covering rate, in points
    approximated_accuracy: float  # percent
    log_likelihood: float = math.nan
    true_labels: float = math.nan  # percent


def score(results: Sequence[Mapping[Any, Any]]) -> Score:
    """Return the score of a setting from the last-epoch results of its runs.

    The standard error is binomial with p = (hits + 1)/(n + 2), so that it is not 0 where every prediction is covered.
    """
    rows = sum(result[HELD_OUT] for result in results)
    hits = sum(round(result[HELD_OUT] * result[COVERING] / 100) for result in results)
    p = (hits + 1) / (rows + 2)

    def mean(key: str) -> float:
        values = [result[key] for result in results if result.get(key) is not None]
        return sum(values) / len(values) if len(values) == len(results) else math.nan

    return Score(
        100 * hits / rows,
        100 * math.sqrt(p * (1 - p) / rows),
        mean(APPROXIMATED),
        mean("candidate_log_likelihood"),
        mean("true_label_accuracy"),
    )


def pick(rule: str, scores: Sequence[Score]) -> int:
    """Return the position of the setting that a rule takes; of equal ones the first."""
    places = list(range(len(scores)))
    if rule == ONE_SE:
        best = max(scores, key=lambda s: s.covering_rate)
        places = [k for k in places if scores[k].covering_rate >= best.covering_rate - best.standard_error]
    criterion = CRITERIA.get(rule, "approximated_accuracy")
    values = {k: getattr(scores[k], criterion) for k in places}
    return max(places, key=lambda k: -math.inf if math.isnan(values[k]) else values[k])


# The study ------------------------------------------------------------------------------------------------------------


def scored_settings(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row per dataset, method and setting with `score` and mean test `accuracy`.

    `runs` has a row per finished run: dataset, method, setting, accuracy, and its last-epoch criteria. Settings keep their
    order; one counts if it has as many runs as the others of its dataset.
    """
    import pandas

    rows = [
        {
            "dataset": dataset,
            "method": method,
            "setting": setting,
            "seeds": len(group),
            "score": score([dict(record) for record in group.to_dict("records")]),
            "accuracy": group["accuracy"].mean(),
        }
        for (dataset, method, setting), group in runs.groupby(["dataset", "method", "setting"], sort=False)
    ]
    frame = pandas.DataFrame(rows)
    return frame[frame["seeds"] == frame.groupby("dataset")["seeds"].transform("max")]


def choices(settings: pd.DataFrame) -> pd.DataFrame:
    """Return a row per cell and rule: the setting that it takes, its test accuracy and its regret in points.

    Regret is the test accuracy of the best setting of the cell minus that of the chosen one. `spearman` correlates the
    criterion with test accuracy over the settings of the cell.
    """
    import pandas
    from scipy.stats import spearmanr

    rows = []
    for (dataset, method), cell in settings.groupby(["dataset", "method"], sort=False):
        scores, accuracy = list(cell["score"]), list(cell["accuracy"])
        for rule in TITLES:
            place = pick(rule, scores)
            values = [getattr(s, CRITERIA[rule]) for s in scores] if rule in CRITERIA else []
            varies = len(set(values)) > 1 and len(set(accuracy)) > 1 and not any(map(math.isnan, values))
            rows.append(
                {
                    "dataset": dataset,
                    "method": method,
                    "rule": rule,
                    "setting": cell["setting"].iloc[place],
                    "score": scores[place],
                    "accuracy": accuracy[place],
                    "best": max(accuracy),
                    "regret": max(accuracy) - accuracy[place],
                    "spearman": float(spearmanr(values, accuracy).statistic) if varies else math.nan,
                    "settings": len(cell),
                }
            )
    return pandas.DataFrame(rows)


def regrets(picks: pd.DataFrame) -> pd.DataFrame:
    """Return, per rule, the mean regret over cells with a 95 % bootstrap interval, the largest, and the mean correlation."""
    import pandas

    from benchmark.analysis.statistics import stratified_bootstrap_mean

    rows = []
    for rule, group in picks.groupby("rule", sort=False):
        regret = group["regret"]
        several = len(regret) > 1
        low, high = stratified_bootstrap_mean([regret.to_numpy()]) if several else (math.nan, math.nan)
        rows.append(
            {
                "rule": rule,
                "cells": len(regret),
                "regret": regret.mean(),
                "low": low,
                "high": high,
                "largest": regret.max(),
                "spearman": group["spearman"].mean(),
            }
        )
    return pandas.DataFrame(rows)


def between_methods(picks: pd.DataFrame, development: Sequence[str]) -> pd.DataFrame:
    """Return, per dataset and way of choosing between methods, the method and its test accuracy and regret.

    Every method has the setting that the rule of `tune` takes. The ways: each rule on these settings; always PRODEN; always
    the method with the best mean accuracy on the development datasets; and the mean over methods, as of a random one.
    """
    import pandas

    tuned = picks[picks["rule"] == ONE_SE]
    table = tuned.pivot(index="dataset", columns="method", values="accuracy").dropna(axis="columns")
    tuned = tuned[tuned["method"].isin(table.columns)]
    fixed = {"always PRODEN": REFERENCE} if REFERENCE in table else {}
    names = [name for name in development if name in table.index]
    if names and len(table.columns):
        fixed["always the best of the development sets"] = str(table.loc[names].mean().idxmax())
    rows = []
    for dataset, group in tuned.groupby("dataset", sort=False):
        accuracy = dict(zip(group["method"], group["accuracy"], strict=True))
        methods = list(accuracy)
        ways = {title: methods[pick(rule, list(group["score"]))] for rule, title in TITLES.items()} | fixed
        values = [(way, method, accuracy[method]) for way, method in ways.items()]
        values.append(("a random method", "", sum(accuracy.values()) / len(accuracy)))
        best = max(accuracy.values())
        rows += [
            {"dataset": dataset, "way": way, "method": method, "accuracy": value, "regret": best - value}
            for way, method, value in values
        ]
    return pandas.DataFrame(rows)
