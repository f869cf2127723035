"""Statistics of the tables: spreads, tests per cell, win/tie/loss counts, tests over data sets, intervals, effect sizes.

Outcomes are coded from the first method's side: `WIN`, `TIE`, `LOSS`, and `MISSING` where there is too little data for a
test, which is never counted as a tie. Standard deviations are the sample form (divisor n-1) unless a name says otherwise.
docs/statistics.md explains all of it.

References: Demšar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7, 2006; Holm, Scand. J.
Statist. 6, 1979; Hedges, J. Educ. Statist. 6, 1981.
"""

from benchmark.analysis.statistics.counts import holm, win_tie_loss
from benchmark.analysis.statistics.pairs import (
    LOSS,
    MISSING,
    TESTS,
    TIE,
    WIN,
    Comparison,
    Summary,
    common_seeds,
    compare,
    hedges_g,
    outcome_of,
    paired_t,
    paired_t_by_seed,
    unpaired_t,
    wilcoxon,
)
from benchmark.analysis.statistics.ranks import (
    ControlComparison,
    Friedman,
    control_comparison,
    friedman,
    nemenyi_groups,
    nemenyi_q,
)
from benchmark.analysis.statistics.resampling import exact_bootstrap_mean, two_level_bootstrap_mean
from benchmark.analysis.statistics.spread import (
    ZERO_TOLERANCE,
    binomial_se,
    critical_t,
    mean,
    population_std,
    sample_std,
    t_interval,
)

__all__ = [
    "LOSS", "MISSING", "TESTS", "TIE", "WIN", "ZERO_TOLERANCE", "Comparison", "ControlComparison", "Friedman", "Summary",
    "binomial_se", "common_seeds", "compare", "control_comparison", "critical_t", "exact_bootstrap_mean", "friedman",
    "hedges_g", "holm", "mean", "nemenyi_groups", "nemenyi_q", "outcome_of", "paired_t", "paired_t_by_seed",
    "population_std", "sample_std", "t_interval", "two_level_bootstrap_mean", "unpaired_t", "wilcoxon", "win_tie_loss",
]  # fmt: skip
