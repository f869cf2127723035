"""Statistics of the tables: spreads, tests per cell, win/tie/loss counts, tests over data sets, intervals, effect sizes.

Outcomes are coded from the first method's side: `WIN`, `TIE`, `LOSS`, and `MISSING` where there is too little data for a
test, which is never counted as a tie. Standard deviations are the sample form (divisor n-1) unless a name says otherwise.
docs/statistics.md explains all of it.

References: Demšar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7, 2006; Holm, Scand. J.
Statist. 6, 1979; Hedges, J. Educ. Statist. 6, 1981.
"""

from benchmark.analysis.statistics.bayes import (
    LEAST_DATASETS,
    Posterior,
    hierarchical,
    sample,
)
from benchmark.analysis.statistics.counts import (
    holm,
    win_tie_loss,
)
from benchmark.analysis.statistics.equivalence import (
    MARGIN,
    Verdict,
    equivalence_p,
    verdict_of,
)
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
from benchmark.analysis.statistics.power import (
    POWER,
    detectable_difference,
    detectable_shift,
)
from benchmark.analysis.statistics.predictions import (
    McNemar,
    OverRows,
    compare_rows,
    mcnemar,
    row_bootstrap,
)
from benchmark.analysis.statistics.ranks import (
    ControlComparison,
    Friedman,
    SignedRanks,
    control_comparison,
    friedman,
    nemenyi_groups,
    nemenyi_q,
    rank_correlation,
    signed_ranks,
)
from benchmark.analysis.statistics.resampling import (
    Probability,
    exact_bootstrap_mean,
    performance_profiles,
    probability_better,
    profile_bands,
    shortfalls,
    stratified_bootstrap_mean,
    two_level_bootstrap_mean,
)
from benchmark.analysis.statistics.spread import (
    ZERO_TOLERANCE,
    binomial_se,
    critical_t,
    mean,
    pooled_std,
    population_std,
    sample_std,
    t_interval,
)

__all__ = [
    "LEAST_DATASETS", "LOSS", "MARGIN", "MISSING", "POWER", "TESTS", "TIE", "WIN", "ZERO_TOLERANCE", "Comparison",
    "ControlComparison", "Friedman", "McNemar", "OverRows", "Posterior", "Probability", "SignedRanks", "Summary",
    "Verdict", "binomial_se", "common_seeds", "compare", "compare_rows", "control_comparison", "critical_t",
    "detectable_difference", "detectable_shift", "equivalence_p", "exact_bootstrap_mean", "friedman", "hedges_g",
    "hierarchical", "holm", "mcnemar", "mean", "nemenyi_groups", "nemenyi_q", "outcome_of", "paired_t",
    "paired_t_by_seed", "performance_profiles", "pooled_std", "population_std", "probability_better", "profile_bands",
    "rank_correlation",
    "row_bootstrap", "sample", "sample_std", "shortfalls", "signed_ranks",
    "stratified_bootstrap_mean", "t_interval", "two_level_bootstrap_mean", "unpaired_t", "verdict_of", "wilcoxon",
    "win_tie_loss",
]  # fmt: skip
