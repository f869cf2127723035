"""Cells and comparisons from a frame of runs: accuracies by seed, one method against the others, all pairs, ranks.

Needs pandas and SciPy, not torch.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from benchmark.accuracy import LAST, Accuracy
from benchmark.analysis import statistics as st
from benchmark.analysis.contents import LEAST_DATASETS, MARGIN, Contents, MethodInfo
from benchmark.analysis.selection import COVERING, HELD_OUT, score
from benchmark.errors import MissingRuns
from benchmark.store import THEN
from datasets.base import plural

if TYPE_CHECKING:
    from benchmark.config.spec import RunSpec

ALPHA = 0.05
WHY_NONE = {
    LAST.key: ": its test rows have no true labels",
    COVERING: ": its test rows have no true labels, and train.holdout is 0",
}


@dataclass(frozen=True)
class Measured:
    """Accuracies of one cell by seed, and why the other runs have none."""

    values: Mapping[int, float]
    expected: int
    problems: tuple[str, ...] = ()
    covering: bool = False  # the values are covering rates on held-out rows
    standard_error: float = math.nan  # of a covering rate, over the held-out rows of all seeds

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def complete(self) -> bool:
        return self.n == self.expected > 0

    @property
    def mean(self) -> float:
        return st.mean(list(self.values.values()))

    @property
    def std(self) -> float:
        return st.sample_std(list(self.values.values()))

    @property
    def interval(self) -> tuple[float, float]:
        return st.t_interval(list(self.values.values()))


def relevant(runs: pd.DataFrame, contents: Contents) -> pd.DataFrame:
    """Return the runs of the contents' profile, datasets and seeds."""
    of_profile = runs[(runs["profile"] == contents.profile) & runs["seed"].isin(contents.seeds)]
    return of_profile[of_profile["dataset"].isin([d.name for d in contents.datasets])]


def measure(runs: pd.DataFrame, contents: Contents, dataset: str, label: str, key: str = LAST.key) -> Measured:
    """Return one cell, matched on the run's label. Of several finished runs of a seed the last in the frame counts.

    `key` is the column of the accuracies.
    """
    rows = runs[(runs["dataset"] == dataset) & (runs["label"] == label)]
    by_seed: dict[int, float] = {}
    problems: dict[int, str] = {}
    # Plain tuples: a filter of the frame per seed would be most of the time of a large table.
    columns = (rows[name] for name in ("seed", "status", key, "reason"))
    for seed, status, value, reason in zip(*columns, strict=True):
        if status == "done" and not pd.isna(value):
            by_seed[seed] = float(value)
        elif status == "done":
            problems[seed] = f"seed {seed} has no {key}{WHY_NONE.get(key, '')}"
        else:
            problems[seed] = f"seed {seed} {status}" + (
                f": {reason.rstrip('.')}" if isinstance(reason, str) and reason else ""
            )
    values = {seed: by_seed[seed] for seed in contents.seeds if seed in by_seed}
    unsolved = [problems[seed] for seed in contents.seeds if seed in problems and seed not in by_seed]
    return Measured(values, len(contents.seeds), tuple(unsolved))


def unscored_datasets(runs: pd.DataFrame) -> set[str]:
    """Return the datasets whose finished runs have no accuracy, because no test row has a true label."""
    done = runs[runs["status"] == "done"]
    return set(done["dataset"]) - set(done[done[LAST.key].notna()]["dataset"])


def measure_covering(runs: pd.DataFrame, contents: Contents, dataset: str, label: str) -> Measured:
    """Return one cell of a dataset without true labels: the covering rates of the finished runs on held-out rows."""
    cell = replace(measure(runs, contents, dataset, label, COVERING), covering=True)
    rows = runs[(runs["dataset"] == dataset) & (runs["label"] == label) & runs["seed"].isin(cell.values)]
    results = rows[rows[HELD_OUT] > 0].drop_duplicates("seed", keep="last").to_dict("records")
    return replace(cell, standard_error=score(results).standard_error) if results else cell


def unregistered(runs: pd.DataFrame, contents: Contents) -> tuple[MethodInfo, ...]:
    """Return the methods that have runs and that no file defines any more."""
    registered = {m.name for m in contents.methods} | (contents.registered or frozenset())
    methods = set(runs[runs["label"] == runs["method"]]["method"])
    return tuple(MethodInfo(name, name, "unregistered") for name in sorted(methods - registered))


def mixture_notes(runs: pd.DataFrame) -> list[str]:
    """Warn where finished runs of different code, or of different lengths on one dataset, are mixed."""
    done, notes = runs[runs["status"] == "done"], []
    names = {"commit": "commits", "code_version": "code versions", "epochs": "numbers of epochs"}
    for column, many in names.items():
        counts = done[column].fillna("unknown").value_counts().sort_index(key=lambda i: i.astype(str))
        # Epochs are compared within a dataset: a profile may train small sets for longer.
        mixed = done.groupby("dataset")[column].nunique().max() > 1 if column == "epochs" else len(counts) > 1
        if mixed:
            listed = ", ".join(f"{str(value)[:12]} ({plural(count, 'run')})" for value, count in counts.items())
            notes.append(f"Warning: runs of {len(counts)} {many} are mixed in this table: {listed}.")
    twice = done.duplicated(["dataset", "label", "seed"], keep=False)
    if twice.any():
        cells = first_few(sorted({f"{r.label} on {r.dataset} seed {r.seed}" for r in done[twice].itertuples()}))
        notes.append(
            f"Warning: several finished runs with different configurations for {cells}; the last one listed is used."
        )
    return notes


def first_few(items: Sequence[str], limit: int = 5) -> str:
    """List the first items and say how many more there are."""
    return ", ".join(items[:limit]) + (f" and {len(items) - limit} more" if len(items) > limit else "")


def device_notes(runs: pd.DataFrame) -> list[str]:
    """Warn of runs that changed their GPU or CPU between two sessions."""
    names = (str(name or "") for name in runs.loc[runs["status"] == "done", "device_name"])
    return [
        f"Warning: {plural(count, 'run')} went from {name.replace(THEN, ' to ')} between two sessions; results may differ in the "
        f"last bits from those of one device."
        for name, count in Counter(name for name in names if THEN in name).items()
    ]


def candidate_notes(runs: pd.DataFrame, specs: Sequence[RunSpec]) -> list[str]:
    """Warn where runs of one dataset and seed were trained on different candidate sets: they cannot be paired."""
    by_key: dict[tuple[Any, ...], set[str]] = {}
    sections = {
        s.digest: (
            *(s.dataset, s.seed, repr(s.dataset_settings), s.data, s.annotator),
            *(s.backbone.pretrained, s.backbone.weights),  # an annotator may start as the run's encoder does
        )
        for s in specs
    }
    for row in runs[runs["status"] == "done"].to_dict("records"):
        by_key.setdefault(sections[row["config_digest"]], set()).add(row["candidates_sha256"])
    return [
        f"Warning: runs on {dataset}, seed {seed}, were trained on {len(seen)} different candidate sets "
        f"(made on different machines); their rows are not paired."
        for (dataset, seed, *_), seen in by_key.items()
        if len(seen) > 1
    ]


def compare_runs(
    runs: pd.DataFrame, contents: Contents, test: str = "paired", accuracy: Accuracy = LAST
) -> list[dict[str, Any]]:
    """Compare the reference with every other main method on every dataset; Holm's correction covers all of these tests."""
    runs, reference = relevant(runs, contents), contents.reference
    records, tests = [], []
    for method in contents.main_methods:
        for dataset in contents.datasets if method.name != reference else ():
            a = measure(runs, contents, dataset.name, reference, accuracy.key)
            b = measure(runs, contents, dataset.name, method.name, accuracy.key)
            c = st.compare(a.values, b.values, test, ALPHA, expected=len(contents.seeds))
            tests.append(c)
            records.append(
                {
                    "reference": reference,
                    "method": method.name,
                    "dataset": dataset.name,
                    "group": dataset.group,
                    "n": c.n,
                    "expected": len(contents.seeds),
                    "seeds": c.seeds,
                    "reference_values": a.values,
                    "method_values": b.values,
                    **vars(c),
                }
            )
    add_holm(records)
    family = sum(c.outcome != st.MISSING for c in tests)
    for record, c in zip(records, tests, strict=True):
        record |= practical_meaning(c, record, family)
    return records


def practical_meaning(c: st.Comparison, record: Mapping[str, Any], family: int) -> dict[str, Any]:
    """Return practical equality, the minimum detectable difference, and P(reference > method) on a new seed."""
    ours, theirs = record["reference_values"], record["method_values"]
    paired = [ours[seed] - theirs[seed] for seed in st.common_seeds(ours, theirs)]
    better, low, high = st.probability_better([paired], ALPHA) if len(paired) > 1 else (math.nan,) * 3
    p_equal = st.equivalence_p(c, ALPHA)
    return {
        "margin": MARGIN,
        "p_equal": p_equal,
        "verdict": st.verdict_of(c, p_equal, ALPHA),
        "detectable": st.detectable_difference(c, ALPHA),
        "detectable_holm": st.detectable_difference(c, ALPHA, max(1, family)),
        "p_better": better,
        "p_better_low": low,
        "p_better_high": high,
    }


def add_holm(records: list[dict[str, Any]]) -> None:
    """Add the Holm-adjusted p and outcome to records that have p, mean_difference and outcome."""
    for record, p in zip(records, st.holm([r["p"] for r in records]), strict=True):
        record["p_holm"] = float(p)
        # Holm rejects at p <= alpha, whereas a single test needs p < alpha.
        rejected = not math.isnan(p) and p <= ALPHA
        record["outcome_holm"] = record["outcome"] if rejected or math.isnan(p) else st.TIE


# Over all datasets -----------------------------------------------------------------------------------------------------
def complete_scores(
    runs: pd.DataFrame, contents: Contents, accuracy: Accuracy
) -> tuple[dict[str, st.Array], tuple[str, ...], tuple[str, ...]]:
    """Return the accuracies (datasets, seeds) of each main method on complete datasets, and the names of both kinds."""
    runs, methods = relevant(runs, contents), [m.name for m in contents.main_methods]
    cells = {(m, d.name): measure(runs, contents, d.name, m, accuracy.key) for m in methods for d in contents.datasets}
    complete = tuple(d.name for d in contents.datasets if all(cells[m, d.name].complete for m in methods))
    incomplete = tuple(d.name for d in contents.datasets if d.name not in complete)
    if len(methods) < 2 or not complete:
        raise MissingRuns(
            f"The methods of profile {contents.profile} cannot be compared over datasets: this needs two methods and a "
            f"dataset on which all methods have all seeds (incomplete: {', '.join(incomplete) or 'none'})."
        )
    return {m: np.array([[*cells[m, d].values.values()] for d in complete]) for m in methods}, complete, incomplete


@dataclass(frozen=True)
class RankAnalysis:
    """Friedman's test over datasets with what a critical-difference diagram needs."""

    titles: tuple[str, ...]
    names: tuple[str, ...]
    datasets: tuple[str, ...]
    incomplete: tuple[str, ...]  # datasets on which a method lacks seeds
    friedman: Mapping[str, Any]  # of `statistics.friedman`
    reference: str


def rank_analysis(runs: pd.DataFrame, contents: Contents) -> RankAnalysis:
    """Rank the main methods by mean over seeds on the datasets on which all of them are complete."""
    scores, complete, incomplete = complete_scores(runs, contents, LAST)
    result = st.friedman(np.stack([values.mean(axis=1) for values in scores.values()], axis=1), ALPHA)
    titles = tuple(contents.titles[name] for name in scores)
    return RankAnalysis(titles, tuple(scores), complete, incomplete, result, contents.reference)


def compare_pairs(
    runs: pd.DataFrame, contents: Contents, accuracy: Accuracy = LAST, reference: str | None = None
) -> tuple[list[dict[str, Any]], tuple[str, ...], tuple[str, ...]]:
    """Compare every two main methods, or the reference with each of the others; Holm's correction covers all pairs.

    Returns a record per pair, the better average first unless it is the reference's, the datasets where all methods have
    all seeds, and those that are left out.
    """
    scores, complete, incomplete = complete_scores(runs, contents, accuracy)
    names = sorted(scores, key=lambda name: -float(scores[name].mean()))
    if reference is None:
        pairs = list(itertools.combinations(names, 2))
    else:
        pairs = [(reference, name) for name in names if name != reference]
    shared = {"profile": contents.profile, "accuracy": accuracy.key, "datasets": list(complete), "n": len(complete)}
    records = [{"method": a, "other": b, **shared, **compare_pair(scores[a], scores[b])} for a, b in pairs]
    for record, p in zip(records, st.holm([r["p"] for r in records]), strict=True):
        record["p_holm"] = float(p)
    return records, complete, incomplete


def compare_pair(first: st.Array, second: st.Array) -> dict[str, Any]:
    """Compare two methods by their accuracies (datasets, seeds); what cannot be computed is NaN.

    The t interval is of the difference averaged over datasets, with one value per seed. The bootstrap draws seeds anew
    inside each dataset. Wilcoxon's signed-rank test takes the mean over seeds of each dataset.
    """
    differences = first - second
    by_dataset = differences.mean(axis=1)
    low, high = st.t_interval(differences.mean(axis=0))
    several_seeds = differences.shape[1] > 1
    bootstrap = st.stratified_bootstrap_mean(list(differences)) if several_seeds else (math.nan, math.nan)
    better, better_low, better_high = st.probability_better(list(differences))
    enough = len(differences) >= LEAST_DATASETS
    return {
        "mean_difference": float(by_dataset.mean()),
        "ci_low": low,
        "ci_high": high,
        "bootstrap_low": bootstrap[0],
        "bootstrap_high": bootstrap[1],
        "p_better": better,
        "p_better_low": better_low,
        "p_better_high": better_high,
        "ahead": int((by_dataset > st.ZERO_TOLERANCE).sum()),
        "equal": int((np.abs(by_dataset) <= st.ZERO_TOLERANCE).sum()),
        "behind": int((by_dataset < -st.ZERO_TOLERANCE).sum()),
        "p": st.wilcoxon(first.mean(axis=1), second.mean(axis=1))[1] if enough else math.nan,
    }
