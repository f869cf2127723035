"""The sources of the spread over seeds: which runs are varied, and what the table makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmark.analysis import statistics as st
from benchmark.analysis.contents import contents_of
from benchmark.analysis.table import to_text
from benchmark.errors import MissingRuns, UsageError
from benchmark.exhibits import variance
from benchmark.plan.selection import Choice, Selection, select


def chosen(datasets: str = "digits", seeds: str = "0,1,2,3", profile: str = "quick") -> Selection:
    return select(profile, Choice("proden", datasets, seeds))


def test_one_source_varies_at_a_time_around_one_run() -> None:
    parts = {part.source: part.specs for part in variance.plan(chosen())}
    assert list(parts) == list(variance.SOURCES)
    assert {specs[0].digest for specs in parts.values()} == {parts["together"][0].digest}
    assert [(s.seed, s.data_seed) for s in parts["candidates"]] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert [(s.seed, s.data_seed) for s in parts["training"]] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert [(s.seed, s.data_seed) for s in parts["together"]] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert [s.config.dataset_settings.get("shuffle", 0) for s in parts["split"]] == [0, 1, 2, 3]
    assert {(s.seed, s.data_seed) for s in parts["split"]} == {(0, 0)}
    assert len({s.digest for specs in parts.values() for s in specs}) == 1 + 4 * 3


def test_varied_runs_are_kept_apart_and_plain_ones_are_the_profile_s() -> None:
    specs = [spec for part in variance.plan(chosen()) for spec in part.specs]
    plain = {spec.digest for spec in chosen().specs()}
    assert {spec.profile for spec in specs if spec.digest in plain} == {"quick"}
    assert {spec.profile for spec in specs if spec.digest not in plain} == {"quick-variance"}


def test_a_set_that_is_split_by_seed_keeps_its_split_while_candidates_vary() -> None:
    parts = {part.source: part.specs for part in variance.plan(chosen("lost", profile="realworld-l21"))}
    assert "candidates" not in parts  # it brings its own, and nothing is held out
    assert [spec.data.split for spec in parts["split"]] == [-1, 1, 2, 3]
    assert {(s.data_seed, s.data.split) for s in parts["training"]} == {(0, -1)}
    fixed = {part.source for part in variance.plan(chosen("fashion"))}
    assert "split" not in fixed


def test_shares_are_of_the_three_variances_and_nothing_is_nan() -> None:
    selection = chosen()
    parts = variance.plan(selection)
    spreads = {"candidates": 1.0, "training": 2.0, "split": 3.0, "together": 4.0}
    accuracy: dict[str, float] = {}
    for part in parts:
        for k, spec in enumerate(part.specs[1:], start=1):
            accuracy[spec.digest] = 90 + spreads[part.source] * k
    accuracy[parts[0].specs[0].digest] = 90.0
    table = variance.table(parts, accuracy, contents_of(selection, "cpu"))
    found = {record["source"]: record for record in table.data}
    unit = st.sample_std([0, 1, 2, 3])
    assert found["split"]["std"] == pytest.approx(3 * unit)
    assert [found[s]["share"] for s in variance.APART] == pytest.approx([1 / 14, 4 / 14, 9 / 14])
    assert table.complete and "nan" not in to_text(table)
    some = {spec.digest: 90.0 for spec in parts[0].specs[:2]}
    partly = variance.table(parts, some, contents_of(selection, "cpu"))
    assert not partly.complete and "nan" not in to_text(partly) and "2/4" in to_text(partly)
    with pytest.raises(MissingRuns, match="no source with two"):
        variance.table(parts, {}, contents_of(selection, "cpu"))


def test_two_draws_are_too_few() -> None:
    with pytest.raises(UsageError, match="three draws"):
        variance.plan(chosen(seeds="0,1"))


def test_a_pooled_deviation_weighs_groups_by_their_freedom() -> None:
    rng = np.random.default_rng(0)
    groups = [rng.normal(5 * k, 2.0, size) for k, size in enumerate((4, 40, 200))]
    spread, low, high = st.pooled_std(groups)
    expected = np.sqrt(sum((len(g) - 1) * np.var(g, ddof=1) for g in groups) / sum(len(g) - 1 for g in groups))
    assert spread == pytest.approx(expected) and low < 2.0 < high
