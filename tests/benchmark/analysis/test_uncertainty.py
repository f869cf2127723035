"""What runs can and cannot show: power, equivalence, P(A > B), bootstrap intervals, signed ranks.

Numbers come from the literature, from statsmodels 0.15 (named where so) or from a second way to compute them.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from benchmark.analysis import statistics as st
from tests.benchmark.analysis.test_statistics import SLEEP_1, SLEEP_2


# power ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("n", "spreads"), [(3, 3.264044), (5, 1.681997), (10, 0.996002)])
def test_the_detectable_difference_is_statsmodels(n: int, spreads: float) -> None:
    """TTestPower().solve_power(nobs=n, alpha=.05, power=.8)."""
    assert st.detectable_shift(n - 1) / math.sqrt(n) == pytest.approx(spreads, rel=1e-5)


def test_after_holm_over_72_tests_three_seeds_see_almost_nothing() -> None:
    """Against a simulation: the noncentral t is hard to compute so far out."""
    spreads = st.detectable_shift(2, 0.05 / 72) / math.sqrt(3)
    assert spreads == pytest.approx(27.79, abs=0.01)
    x = np.random.default_rng(0).standard_normal((200_000, 3)) + spreads
    t = x.mean(axis=1) / x.std(axis=1, ddof=1) * math.sqrt(3)
    assert (t > st.critical_t(3, 0.05 / 72)).mean() == pytest.approx(0.8, abs=0.004)


def test_the_detectable_difference_of_a_comparison_is_in_its_own_points() -> None:
    c = st.paired_t(SLEEP_1, SLEEP_2)
    spread = st.sample_std(np.subtract(SLEEP_1, SLEEP_2))
    assert st.detectable_difference(c) == pytest.approx(0.996002 * spread, rel=1e-5)
    assert st.detectable_difference(c, tests=72) > 1.9 * st.detectable_difference(c)
    student = st.compare(dict(enumerate(SLEEP_1)), dict(enumerate(SLEEP_2)), "student")
    pooled = math.sqrt((st.sample_std(SLEEP_1) ** 2 + st.sample_std(SLEEP_2) ** 2) / 2)
    # statsmodels: TTestIndPower().solve_power(nobs1=10, alpha=.05, power=.8)
    assert st.detectable_difference(student) == pytest.approx(1.324947 * pooled, rel=1e-5)


def test_without_a_spread_there_is_no_detectable_difference() -> None:
    for values in ({0: 1.0}, {0: 1.0, 1: 2.0}):
        assert math.isnan(st.detectable_difference(st.compare({s: v + 1 for s, v in values.items()}, values)))
    wilcoxon = st.compare(dict(enumerate(SLEEP_1)), dict(enumerate(SLEEP_2)), "wilcoxon")
    assert math.isnan(st.detectable_difference(wilcoxon))


def test_a_tie_is_equal_or_undecided_and_a_win_stays_one() -> None:
    def verdict(a: list[float], b: list[float]) -> str:
        c = st.paired_t(a, b)
        return st.verdict_of(c, st.equivalence_p(c, 0.5))

    assert verdict([90.1, 90.4, 89.9, 90.3, 90.2], [90.0, 90.2, 90.0, 90.1, 90.3]) == "equal"
    assert verdict([90.1, 94.4, 85.9], [90.0, 90.2, 90.0]) == "undecided"
    assert verdict([91.1, 91.2, 91.0], [90.0, 90.2, 90.0]) == "better"
    assert verdict([90.0, 90.2, 90.0], [91.1, 91.2, 91.0]) == "worse"
    assert verdict([90.0], [91.1]) == "missing"
    assert verdict([90.0, 91.0], [90.0, 91.0]) == "equal"  # copies


@pytest.mark.parametrize("margin", [0.0, -1.0, math.nan, math.inf])
def test_a_margin_that_says_nothing_is_refused(margin: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        st.equivalence_p(st.paired_t(SLEEP_1, SLEEP_2), margin)


# P(A > B) and aggregates ----------------------------------------------------------------------------------------------
def test_the_probability_of_being_better_counts_seeds_and_halves_ties() -> None:
    value, low, high = st.probability_better([[1.0, 2.0, -1.0, 0.0]])
    assert value == (2 + 0.5) / 4 and low < value < high
    assert st.probability_better([[1.0, 2.0, 3.0], [-1.0, 2.0]])[0] == (1 + 0.5) / 2  # data sets count alike


def test_where_all_seeds_agree_the_interval_is_clopper_and_pearsons() -> None:
    # 0.29 to 1: three wins of three say little
    assert st.probability_better([[1.0, 2.0, 3.0]]) == pytest.approx((1, 0.025 ** (1 / 3), 1))
    for won in range(5):
        exact = stats.binomtest(won, 4).proportion_ci(method="exact")
        cells = [[1.0]] * won + [[-1.0]] * (4 - won)
        assert st.probability_better(cells)[1:] == pytest.approx(exact)
    value, low, high = st.probability_better([[0.0, 0.0, 0.0]])  # copies
    assert value == 0.5 and low == pytest.approx(1 - high)


def test_the_stratified_bootstrap_agrees_with_all_resamples() -> None:
    cells = [[1.0, 4.0, 6.0], [10.0, 11.0, 15.0]]
    resamples = [[np.mean(draw) for draw in itertools.product(cell, repeat=3)] for cell in cells]
    exact = np.quantile([np.mean(pair) for pair in itertools.product(*resamples)], [0.025, 0.975])
    assert st.stratified_bootstrap_mean(cells, resamples=40_000) == pytest.approx(exact, abs=0.12)


def test_a_bootstrap_without_values_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        st.stratified_bootstrap_mean([[1.0], []])
