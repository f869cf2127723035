"""What runs can and cannot show: power, equivalence, P(A > B), aggregates, the model over data sets, test rows.

Numbers come from the literature, from statsmodels 0.15 (named where so) or from a second way to compute them.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from benchmark.analysis import statistics as st
from tests.benchmark.analysis.test_statistics import DEMSAR, SLEEP_1, SLEEP_2

EIGHT_SCHOOLS = ([28, 8, -3, 7, -1, 1, 18, 12], [15, 10, 16, 11, 9, 11, 10, 18])  # Rubin 1981


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


# equivalence ----------------------------------------------------------------------------------------------------------
def test_two_one_sided_tests_are_statsmodels() -> None:
    """ttost_paired on Student's sleep data, ±2.5 hours, and on five close pairs, ±0.5."""
    assert st.equivalence_p(st.paired_t(SLEEP_1, SLEEP_2), 2.5) == pytest.approx(0.021116860246500745)
    close = st.paired_t([90.1, 90.4, 89.9, 90.3, 90.2], [90.0, 90.2, 90.0, 90.1, 90.3])
    assert st.equivalence_p(close, 0.5) == pytest.approx(0.0014554051457073218)


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
    found = st.probability_better([[1.0, 2.0, -1.0, 0.0]])
    assert found.value == (2 + 0.5) / 4 and not found.exact
    assert found.low < found.value < found.high
    both = st.probability_better([[1.0, 2.0, 3.0], [-1.0, 2.0]])
    assert both.value == (1 + 0.5) / 2  # data sets count alike


def test_where_all_seeds_agree_the_interval_is_clopper_and_pearsons() -> None:
    found = st.probability_better([[1.0, 2.0, 3.0]])
    assert found.exact and found.value == found.high == 1
    assert found.low == pytest.approx(0.025 ** (1 / 3))  # 0.29: three wins of three say little
    for won in range(5):
        exact = stats.binomtest(won, 4).proportion_ci(method="exact")
        cells = [[1.0]] * won + [[-1.0]] * (4 - won)
        assert (st.probability_better(cells).low, st.probability_better(cells).high) == pytest.approx(exact)
    copies = st.probability_better([[0.0, 0.0, 0.0]])
    assert copies.value == 0.5 and copies.low == pytest.approx(1 - copies.high)


def test_the_stratified_bootstrap_agrees_with_all_resamples() -> None:
    cells = [[1.0, 4.0, 6.0], [10.0, 11.0, 15.0]]
    resamples = [[np.mean(draw) for draw in itertools.product(cell, repeat=3)] for cell in cells]
    exact = np.quantile([np.mean(pair) for pair in itertools.product(*resamples)], [0.025, 0.975])
    assert st.stratified_bootstrap_mean(cells, resamples=40_000) == pytest.approx(exact, abs=0.12)
    low, high = st.two_level_bootstrap_mean(cells)
    assert low < exact[0] and high > exact[1]  # other data sets add to the doubt


def test_a_bootstrap_without_values_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        st.stratified_bootstrap_mean([[1.0], []])


def test_a_performance_profile_is_the_share_of_runs_within_reach_of_the_best() -> None:
    scores = [[90.0, 80.0, 70.0], [89.0, 82.0, 70.0]]  # two methods, runs on the data sets a, a, b
    behind = st.shortfalls(scores)
    assert behind.tolist() == [[0, 2, 0], [1, 0, 0]]
    profile = st.performance_profiles(behind, ["a", "a", "b"], [0.0, 1.0, 2.0])
    assert profile.tolist() == [[0.75, 0.75, 1], [0.75, 1, 1]]
    low, high = st.profile_bands(behind, ["a", "a", "b"], [0.0, 1.0, 2.0], resamples=99)
    assert (low <= profile).all() and (profile <= high).all()
    assert low[0, 0] == 0.5  # seeds are drawn inside a data set: b stays in every resample


# over data sets -------------------------------------------------------------------------------------------------------
def test_with_six_data_sets_no_signed_rank_test_survives_holm() -> None:
    best = np.arange(6.0)[:, None] + np.array([[50.0] + [40.0] * 12]) - np.arange(6)[:, None] * 0.1 * np.arange(13)
    found = st.signed_ranks(best)
    assert found.p == pytest.approx([0.03125] * 12) and found.least == 0.03125
    assert found.p_holm == pytest.approx([0.375] * 12) and found.least_holm == 0.375


def test_all_pairs_give_the_published_p_and_every_sign_counted() -> None:
    """Hollander and Wolfe 1973, table 3.1 (depression scores): T+ = 40, p = 0.0195 to one side; Demšar 2006, table 6."""
    before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
    assert st.wilcoxon(before, after) == pytest.approx((45 - 40, 2 * 0.01953125))
    scores = np.array(DEMSAR)
    pairs = list(itertools.combinations(range(4), 2))
    found = st.signed_ranks(scores, pairs)
    assert found.p == pytest.approx([every_sign(scores[:, a] - scores[:, b]) for a, b in pairs])
    steps = np.maximum.accumulate(np.sort(found.p) * np.arange(6, 0, -1))  # Holm by his own words
    assert np.sort(found.p_holm) == pytest.approx(np.minimum(1, steps))
    with pytest.raises(ValueError, match="on every data set"):
        st.signed_ranks([[1.0, math.nan]])


def every_sign(differences: np.ndarray) -> float:
    """Two-sided p of the signed ranks by listing the signs that zero would give alike."""
    d = np.round(differences[np.abs(differences) > 1e-9], 9)
    ranks = stats.rankdata(np.abs(d))
    sums = np.array(list(itertools.product([0, 1], repeat=len(d)))) @ ranks
    smaller = min(ranks[d > 0].sum(), ranks[d < 0].sum())
    return min(1.0, 2 * float(np.mean(sums <= smaller + 1e-9)))


def test_eight_schools_come_out_as_published() -> None:
    """Gelman et al., Bayesian Data Analysis, table 5.3: medians, to a point, and the common mean's 8 ± 5."""
    centres, errors = EIGHT_SCHOOLS
    found = st.sample(centres, errors, [math.inf] * 8, scale=1e4)  # their prior is flat
    assert np.median(found.means, axis=0) == pytest.approx([10, 8, 7, 8, 5, 6, 10, 8], abs=1.0)
    assert np.quantile(found.means[:, 0], [0.025, 0.975]) == pytest.approx([-2, 31], abs=1.5)
    assert found.common_mean.mean() == pytest.approx(8, abs=0.5)


def test_the_sampler_agrees_with_integration() -> None:
    """The same posterior on a grid of common mean and spread, each data set's mean integrated out."""
    cells = [[1.0, 2.5, 1.6], [0.2, -0.6, 0.1, 0.4], [3.0, 2.0, 4.4], [0.9, 1.2, 0.5]]
    centres, errors = [np.mean(c) for c in cells], [st.sample_std(c) / math.sqrt(len(c)) for c in cells]
    m, t = np.meshgrid(np.linspace(-9, 12, 141), np.geomspace(0.03, 100, 90), indexing="ij")
    x = np.linspace(-30, 30, 3001)
    weight = t / (1 + (t / 5.0) ** 2)  # half-Cauchy times the width of a step in log t
    for cell, centre, error in zip(cells, centres, errors, strict=True):
        likelihood = stats.t.pdf(x, len(cell) - 1, centre, error)
        density = np.array([[np.exp(-(((x - a) / b) ** 2) / 2) @ likelihood for b in t[0]] for a in m[:, 0]])
        weight = weight * density / t
    weight /= weight.sum()
    found = st.hierarchical(cells)
    assert found.common_mean.mean() == pytest.approx((weight * m).sum(), abs=0.05)
    spread = weight.sum(axis=0)
    assert np.median(found.between) == pytest.approx(np.interp(0.5, np.cumsum(spread) - spread / 2, t[0]), rel=0.02)
    better = (weight * stats.norm.sf(0.5, m, t)).sum()
    worse = (weight * stats.norm.cdf(-0.5, m, t)).sum()
    assert found.shares(0.5) == pytest.approx((better, 1 - better - worse, worse), abs=0.01)


def test_the_model_agrees_with_stan_and_is_close_to_baycomp() -> None:
    """The same model in Stan (pystan 3, 20,000 draws), and baycomp 1.0.3's, whose population is Student's t, without its
    correlation of folds."""
    cells = [
        [1.0, 2.5, 1.6, 1.2], [0.2, -0.6, 0.1, 0.4], [3.0, 2.0, 4.4, 2.2], [0.9, 1.2, 0.5, 0.1], [-0.4, 0.6, 0.2, -0.1],
        [2.2, 1.1, 1.9, 3.0],
    ]  # fmt: skip
    found = st.hierarchical(cells)
    better, _, worse = found.shares(0.5)
    assert found.common_mean.mean() == pytest.approx(1.117, abs=0.03)
    assert np.quantile(found.common_mean, [0.025, 0.975]) == pytest.approx([-0.116, 2.431], abs=0.08)
    assert np.median(found.between) == pytest.approx(1.210, abs=0.03)
    assert (better, worse) == pytest.approx((0.681, 0.121), abs=0.01)
    assert (better, worse) == pytest.approx((0.667, 0.125), abs=0.03)  # baycomp


def test_the_model_over_data_sets_says_what_it_needs() -> None:
    with pytest.raises(ValueError, match="needs 3 of them"):
        st.hierarchical([[1.0, 2.0], [1.0, 2.0]])
    with pytest.raises(ValueError, match="vary"):
        st.hierarchical([[1.0, 2.0], [1.0, 2.0], [1.0, 1.0]])


# test rows ------------------------------------------------------------------------------------------------------------
def test_mcnemar_is_the_exact_one() -> None:
    """statsmodels' mcnemar(exact=True) on Agresti's approval ratings, 86 against 150 changes, and on 6 against 1."""
    ratings = [(1, 1)] * 794 + [(0, 1)] * 86 + [(1, 0)] * 150 + [(0, 0)] * 570
    found = st.mcnemar(*np.array(ratings).T)
    assert (found.first_only, found.second_only) == (150, 86)
    assert found.p == pytest.approx(3.7159361395713866e-05)
    assert st.mcnemar([1] * 6 + [0], [0] * 6 + [1]).p == pytest.approx(0.125)
    assert st.mcnemar([1, 0], [1, 0]).p == 1.0
    with pytest.raises(ValueError, match="same test rows"):
        st.mcnemar([1, 0], [1, 0, 1])


def test_drawing_rows_again_agrees_with_scipys_bootstrap() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.random(400) < 0.8, rng.random(400) < 0.7
    d = a.astype(float) - b
    scipys = stats.bootstrap((d,), np.mean, method="percentile", n_resamples=9999, rng=0).confidence_interval
    assert st.row_bootstrap(d) == pytest.approx([100 * scipys.low, 100 * scipys.high], abs=0.35)


def test_predictions_are_matched_by_row_and_other_rows_are_refused() -> None:
    rows, right = np.arange(4), np.array([True, True, False, True])
    turned = (rows[::-1], np.array([True, False, True, False]))
    found = st.compare_rows({0: (rows, right), 1: (rows, right)}, {0: turned, 2: turned})
    assert list(found.tests) == [0]
    assert (found.tests[0].first_only, found.tests[0].second_only) == (1, 0)
    with pytest.raises(ValueError, match="not the same"):
        st.compare_rows({0: (rows, right)}, {0: (rows + 1, right)})
    with pytest.raises(ValueError, match="no seed"):
        st.compare_rows({0: (rows, right)}, {1: (rows, right)})


def test_seeds_on_the_same_rows_do_not_make_the_test_set_larger() -> None:
    rng = np.random.default_rng(0)
    rows, a, b = np.arange(300), rng.random(300) < 0.8, rng.random(300) < 0.7
    once = st.compare_rows({0: (rows, a)}, {0: (rows, b)})
    copies = st.compare_rows(dict.fromkeys(range(9), (rows, a)), dict.fromkeys(range(9), (rows, b)))
    assert (copies.low, copies.high) == (once.low, once.high)
    others = st.compare_rows({s: (rows + 300 * s, a) for s in range(9)}, {s: (rows + 300 * s, b) for s in range(9)})
    assert others.high - others.low < 0.5 * (once.high - once.low)
