"""Published numbers beside ours: intervals, verdicts, counts."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest
from scipy import stats

from benchmark.analysis import published
from benchmark.config.profile import load_profile
from benchmark.exhibits.realworld import SOURCES
from datasets import registry
from methods.registry import discover


def printed(**changes: Any) -> dict[str, Any]:
    row = {"mean": 75.0, "std": 2.0, "n": 5, "spread": "folds", "values": "", "ours": "proden", "caveat": ""}
    return {**row, "dataset": "Lost", "metric": "test", "accuracy": "last", **changes}


def test_shared_splits_are_compared_pair_by_pair_and_others_never() -> None:
    theirs, ours = [70.0, 80.0, 75.0, 72.0, 78.0], [71.0, 80.5, 76.5, 72.5, 79.0]
    text = " ".join(map(str, theirs))
    one = published.agreement(printed(values=text), dict(enumerate(ours)), range(5))
    reference = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (one.low, one.high) == pytest.approx((reference.low, reference.high))
    assert one.verdict == "differs" and one.how == "paired over 5 splits"  # half a point, but on every split
    assert published.agreement(printed(), dict(enumerate(ours)), range(5)).verdict == "agrees"
    other = published.agreement(printed(values=text), dict(zip(range(5, 10), ours, strict=True)), range(5, 10))
    assert other.how == "two-sample, 5 and 5" and other.verdict == "agrees"


def test_without_any_spread_nothing_is_judged() -> None:
    one = published.agreement(printed(std=math.nan), dict.fromkeys(range(5), 20.0), range(5))
    assert (one.verdict, one.why) == ("not comparable", "neither side has a spread")


def test_a_failed_run_says_why() -> None:
    (number,) = (row for row in published.of_profile("realworld-p20") if row["dataset"] == "Lost")
    failed = {"dataset": "lost", "label": "proden", "seed": 0, "status": "failed", "reason": "/x/lost.mat has 7 rows."}
    runs = pd.DataFrame([failed | {"accuracy": math.nan, "accuracy_last10": math.nan}])
    (one,) = published.agreements([number], runs, {"Lost": "lost"}, range(5))
    assert (one.verdict, one.why) == ("incomplete", "0 of 5 runs are done, seed 0 failed: lost.mat has 7 rows")


def test_without_shared_splits_the_printed_spread_decides_or_ours_stands_for_both() -> None:
    ours = [74.0, 79.0, 75.5, 77.0, 73.0]
    low, high, how = published.interval(printed(), ours)
    welch = stats.ttest_ind_from_stats(pd.Series(ours).mean(), pd.Series(ours).std(), 5, 75.0, 2.0, 5, equal_var=False)
    inside = low <= 0 <= high
    assert inside == (welch.pvalue > 0.05) and how == "two-sample, 5 and 5"
    # A deviation with divisor n is smaller than the one that the formula wants.
    wider = published.interval(printed(spread="folds, divisor n"), ours)
    assert wider[1] - wider[0] > high - low
    own = float(pd.Series(ours).std())
    without = published.interval(printed(std=math.nan), ours)
    assert without[:2] == pytest.approx(published.interval(printed(std=own), ours)[:2])


def test_what_cannot_be_judged_is_not_counted() -> None:
    full = dict.fromkeys(range(5), 75.0) | {0: 76.0}
    cases = {
        "incomplete": published.agreement(printed(), {0: 75.0}, range(5)),
        "agrees": published.agreement(printed(), full, range(5)),
        "differs": published.agreement(printed(mean=60.0), full, range(5)),
    }
    assert {name: one.verdict for name, one in cases.items()} == {name: name for name in cases}
    others = [
        published.agreement(printed(caveat="not published"), full, range(5)),
        published.agreement(printed(ours=""), {}, range(5)),
        published.agreement(printed(mean=math.nan, std=math.nan), full, range(5)),
    ]
    assert {one.verdict for one in others} == {"not comparable"} and all(one.why for one in others)
    assert published.count([*cases.values(), *others]) == "1 of 2 comparable cells agree"


@pytest.mark.parametrize("profile", [f"realworld-{source}" for source in SOURCES])
def test_every_published_number_has_a_run_that_regenerates_it(profile: str) -> None:
    plan, rows = load_profile(profile), published.of_profile(profile)
    assert rows and plan.seeds
    titles = {registry.get(name).title for name in plan.datasets}
    for row in rows:
        assert row["dataset"] in titles, row
        assert not row["ours"] or row["ours"] in plan.all_methods or row["caveat"], row
        assert not row["values"] or len(row["values"].split()) == row["n"] == len(plan.seeds)
    assert set(plan.all_methods) <= set(discover().entries)


def test_printed_means_follow_from_the_values_per_split() -> None:
    for source in ("f25", "k25"):
        for row in published.numbers(source).to_dict("records"):
            if row["values"]:
                values = [float(word) for word in row["values"].split()]
                ddof = 0 if row["spread"].endswith("divisor n") else 1
                assert pd.Series(values).mean() == pytest.approx(row["mean"], abs=0.011)
                assert pd.Series(values).std(ddof=ddof) == pytest.approx(row["std"], abs=0.011)
