"""Statistics beyond the golden vectors: degenerate data, agreement with SciPy and with statsmodels 0.15."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy import stats

from benchmark.analysis import published
from benchmark.analysis import statistics as st
from benchmark.analysis.contents import TEST_NAMES

SLEEP_1 = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SLEEP_2 = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
accuracies = some.floats(0, 100, allow_nan=False).map(lambda x: round(x, 2))


def published_comparisons(spread: float = 1, **options: Any) -> dict[str, np.ndarray]:
    """Compare CEL with each of the 72 other cells, method by method; the printed deviations times `spread`."""
    table = published.load("table2")
    table["std"] *= spread
    others = table[table.method != "CEL"]
    cel = table[table.method == "CEL"].set_index("dataset").loc[others.dataset]
    return st.unpaired_t(*(side[c].to_numpy() for side in (cel, others) for c in ("mean", "std", "n")), **options)


def test_a_constant_difference_is_flagged_although_rounding_makes_it_vary() -> None:
    a, b = [70.1, 70.2, 70.4], [69.8, 69.9, 70.1]
    assert len({x - y for x, y in zip(a, b, strict=True)}) > 1
    c = st.paired_t(a, b)
    assert (c.outcome, c.p) == (st.WIN, 0.0)
    assert "zero_variance" in c.flags
    assert st.paired_t([69.1, 69.2], [70.1, 70.2]).outcome == st.LOSS


@pytest.mark.parametrize("test", TEST_NAMES)
def test_a_missing_seed_is_never_a_tie(test: str) -> None:
    for other in ({}, {0: 71.0}, {0: 71.0, 1: math.nan, 2: math.nan}):
        c = st.compare({0: 70.0, 1: 70.0, 2: 71.0}, other, test)
        assert c.outcome == st.MISSING
        assert math.isnan(c.p)
    counts, missing = st.win_tie_loss([[st.MISSING, st.WIN]], [0, 0])
    assert counts[-1, -1].tolist() == [1, 0, 0]
    assert missing[-1, -1] == 1


def test_a_diverged_seed_leaves_the_pair_out_and_says_so() -> None:
    c = st.compare({0: 75.0, 1: 76.0, 2: 77.5}, {0: 72.1, 1: 73.0, 2: math.nan}, expected=3)
    assert c.seeds == (0, 1)
    assert set(c.flags) == {"missing_seeds", "n_below_3"}


def test_seeds_that_do_not_overlap_cannot_be_paired_but_can_be_compared_unpaired() -> None:
    a, b = {0: 75.0, 1: 75.5, 2: 75.2}, {3: 70.0, 4: 70.6, 5: 70.1}
    assert st.compare(a, b, "paired").outcome == st.MISSING
    assert st.compare(a, b, "student").outcome == st.WIN


def test_three_seeds_can_never_be_significant_by_signed_ranks() -> None:
    c = st.compare({0: 90.0, 1: 91.0, 2: 92.5}, {0: 10.0, 1: 12.0, 2: 11.0}, "wilcoxon")
    assert c.p == 0.25
    assert c.outcome == st.TIE


@settings(deadline=None)
@given(some.lists(some.tuples(accuracies, accuracies), min_size=2, max_size=8))
def test_swapping_the_methods_swaps_win_and_loss(pairs: list[tuple[float, float]]) -> None:
    a, b = ({i: pair[k] for i, pair in enumerate(pairs)} for k in (0, 1))
    for test in TEST_NAMES:
        one, other = st.compare(a, b, test), st.compare(b, a, test)
        assert one.outcome == -other.outcome
        assert one.p == pytest.approx(other.p)
        assert one.ci_low == pytest.approx(-other.ci_high)


@pytest.mark.parametrize(
    ("equal_var", "population", "common", "fine"),
    [
        (True, False, (21, 3), (46, 2)),
        (False, False, (20, 4), (43, 5)),
        (True, True, (21, 3), (42, 6)),
        (False, True, (20, 4), (42, 6)),
    ],
)
def test_published_table_3_follows_from_no_unpaired_reading_of_table_2(
    equal_var: bool, population: bool, common: tuple[int, int], fine: tuple[int, int]
) -> None:
    result = published_comparisons(math.sqrt(3 / 2) if population else 1, equal_var=equal_var)
    outcomes = result["outcome"].reshape(12, 6)
    counts, missing = st.win_tie_loss(outcomes, [0, 0, 1, 1, 1, 1])
    assert counts[0, -1].tolist() == [*common, 0]
    assert counts[1, -1].tolist() == [*fine, 0]
    assert missing.sum() == 0


@given(some.lists(some.one_of(some.floats(0, 1), some.just(math.nan)), max_size=20))
def test_holm_never_lowers_p_keeps_the_order_and_leaves_missing_out(p: list[float]) -> None:
    adjusted = st.holm(p)
    raw = np.array(p, dtype=float)
    made = ~np.isnan(raw)
    assert (np.isnan(adjusted) == ~made).all()
    assert (adjusted[made] >= raw[made]).all() and (adjusted[made] <= 1).all()
    assert (np.diff(adjusted[made][np.argsort(raw[made], kind="stable")]) >= 0).all()
    np.testing.assert_array_equal(adjusted[made], st.holm(raw[made]))


def test_spearmans_rho_of_a_worked_example_and_its_interval() -> None:
    iq = [106, 86, 100, 101, 99, 103, 97, 113, 112, 110]
    hours = [7, 0, 27, 50, 28, 29, 20, 12, 6, 17]
    rho, low, high = st.rank_correlation(iq, hours)
    assert rho == pytest.approx(-29 / 165)  # the example of Wikipedia's page on the coefficient
    assert (math.atanh(rho) - math.atanh(low)) == pytest.approx(1.959964 * math.sqrt(1.06 / 7), rel=1e-6)
    assert math.atanh(high) - math.atanh(rho) == pytest.approx(math.atanh(rho) - math.atanh(low))
    assert st.rank_correlation(iq, iq) == (1, 1, 1)


# Power ----------------------------------------------------------------------------------------------------------------
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
        return st.verdict_of(c, st.equivalence_p(c))

    assert verdict([90.1, 90.4, 89.9, 90.3, 90.2], [90.0, 90.2, 90.0, 90.1, 90.3]) == "equal"
    assert verdict([90.1, 94.4, 85.9], [90.0, 90.2, 90.0]) == "undecided"
    assert verdict([91.1, 91.2, 91.0], [90.0, 90.2, 90.0]) == "better"
    assert verdict([90.0, 90.2, 90.0], [91.1, 91.2, 91.0]) == "worse"
    assert verdict([90.0], [91.1]) == "missing"
    assert verdict([90.0, 91.0], [90.0, 91.0]) == "equal"  # copies


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
