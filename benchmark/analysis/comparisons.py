"""From the frame of runs to cells and comparisons: which runs count, accuracies by seed, tests of one method against others.

Needs pandas and SciPy, not torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from benchmark.analysis import statistics as st

MAIN_KINDS = ("IDPLL", "PLL")

# What may stand in a table, and how the caption calls it. The best test epoch is not among them: it peeks at test labels.
ACCURACIES = {
    "accuracy": "after the last epoch",
    "accuracy_last10": "as the mean of the last 10 epochs",
    "accuracy_covering": "at the epoch chosen by covering rate, without true labels",
    "accuracy_approximated": "at the epoch chosen by approximated accuracy, without true labels",
}


@dataclass(frozen=True)
class MethodInfo:
    """A method as tables show it; kind is IDPLL, PLL, control or reference."""

    name: str
    title: str
    kind: str


@dataclass(frozen=True)
class DatasetInfo:
    """A data set as tables show it; `published_name` is its name in the paper, None if it is not there."""

    name: str
    title: str
    group: str
    published_name: str | None = None


@dataclass(frozen=True)
class Plan:
    """What a table is to contain. `registered`: all known method names; None means the plan's methods are all there are."""

    profile: str
    methods: tuple[MethodInfo, ...]
    datasets: tuple[DatasetInfo, ...]
    seeds: tuple[int, ...]
    device: str
    identities: frozenset[str] | None = None  # if given, only these runs count
    registered: frozenset[str] | None = None

    @property
    def main_methods(self) -> tuple[MethodInfo, ...]:
        return tuple(m for m in self.methods if m.kind in MAIN_KINDS)

    @property
    def other_methods(self) -> tuple[MethodInfo, ...]:
        return tuple(m for m in self.methods if m.kind not in MAIN_KINDS)


@dataclass(frozen=True)
class Measured:
    """The runs of one cell: accuracies of finished runs by seed, and why the others have none."""

    values: Mapping[int, float]
    expected: int
    problems: tuple[str, ...] = ()

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


def check_accuracy(name: str) -> None:
    """Refuse an accuracy that may not stand in a table."""
    if name not in ACCURACIES:
        raise ValueError(f"Tables cannot show '{name}'; choose one of {', '.join(ACCURACIES)}.")


def relevant(runs: pd.DataFrame, plan: Plan) -> pd.DataFrame:
    """The runs of the plan's profile, data sets and seeds."""
    kept = runs[(runs["profile"] == plan.profile) & runs["seed"].isin(plan.seeds)]
    kept = kept[kept["dataset"].isin([d.name for d in plan.datasets])]
    return kept if plan.identities is None else kept[kept["identity"].isin(plan.identities)]


def measure(runs: pd.DataFrame, plan: Plan, dataset: str, label: str, accuracy: str = "accuracy") -> Measured:
    """One cell, matched on the run's label. Of several finished runs of a seed the last in the frame counts."""
    rows = runs[(runs["dataset"] == dataset) & (runs["label"] == label)]
    found: dict[int, float] = {}
    problems: dict[int, str] = {}
    # Plain tuples: a filter of the frame per seed would be most of the time of a large table.
    for seed, status, value, reason in zip(rows["seed"], rows["status"], rows[accuracy], rows["reason"], strict=True):
        if status == "done" and not pd.isna(value):
            found[seed] = float(value)
        else:
            problems[seed] = _problem(seed, status, reason, accuracy)
    values = {seed: found[seed] for seed in plan.seeds if seed in found}
    unsolved = [problems[seed] for seed in plan.seeds if seed in problems and seed not in found]
    return Measured(values, len(plan.seeds), tuple(unsolved))


def _problem(seed: int, status: str, reason: object, accuracy: str) -> str:
    if status == "done":
        return f"seed {seed} has no {accuracy}"
    return f"seed {seed} {status}" + (f": {reason}" if isinstance(reason, str) and reason else "")


def unregistered(runs: pd.DataFrame, plan: Plan) -> tuple[MethodInfo, ...]:
    """Methods with runs of their own label that no file defines any more."""
    known = {m.name for m in plan.methods} | (plan.registered or frozenset())
    own = runs[runs["label"] == runs["method"]]
    return tuple(MethodInfo(name, name, "unregistered") for name in sorted(set(own["method"]) - known))


def mixture_notes(runs: pd.DataFrame) -> list[str]:
    """Warnings where finished runs that differ in what they are stand side by side."""
    done, notes = runs[runs["status"] == "done"], []
    names = {"commit": "commits", "code_version": "code versions", "schema": "versions of the results schema"}
    for column, plural in {**names, "epochs": "numbers of epochs"}.items():
        counts = done[column].fillna("unknown").value_counts().sort_index(key=lambda i: i.astype(str))
        if len(counts) > 1:
            listed = ", ".join(
                f"{str(value)[:12]} ({count} run{'s' if count > 1 else ''})" for value, count in counts.items()
            )
            notes.append(f"Warning: runs of {len(counts)} {plural} are mixed in this table: {listed}.")
    twice = done.duplicated(["dataset", "label", "seed"], keep=False)
    if twice.any():
        cells = sorted({f"{r.label} on {r.dataset} seed {r.seed}" for r in done[twice].itertuples()})
        notes.append(
            f"Warning: several finished runs with different configurations for {_first(cells)}; the last one listed is used."
        )
    return notes


def _first(items: Sequence[str], limit: int = 5) -> str:
    return ", ".join(items[:limit]) + (f" and {len(items) - limit} more" if len(items) > limit else "")


def compare_runs(
    runs: pd.DataFrame,
    plan: Plan,
    reference: str = "cel",
    test: str = "paired",
    alpha: float = 0.05,
    accuracy: str = "accuracy",
) -> list[dict[str, Any]]:
    """The reference against every other main method on every data set, method by method; Holm over those made."""
    runs = relevant(runs, plan)
    records = []
    for method in plan.main_methods:
        if method.name == reference:
            continue
        for dataset in plan.datasets:
            a = measure(runs, plan, dataset.name, reference, accuracy)
            b = measure(runs, plan, dataset.name, method.name, accuracy)
            c = st.compare(a.values, b.values, test, alpha, expected=len(plan.seeds))
            records.append(
                {
                    "reference": reference,
                    "method": method.name,
                    "dataset": dataset.name,
                    "group": dataset.group,
                    "n": c.n,
                    "expected": len(plan.seeds),
                    "seeds": list(c.seeds),
                    "reference_values": dict(a.values),
                    "method_values": dict(b.values),
                    "mean_difference": c.mean_difference,
                    "ci_low": c.ci_low,
                    "ci_high": c.ci_high,
                    "statistic": c.t,
                    "df": c.df,
                    "p": c.p,
                    "effect": c.effect,
                    "outcome": c.outcome,
                    "flags": list(c.flags),
                }
            )
    add_holm(records, alpha)
    return records


def add_holm(records: list[dict[str, Any]], alpha: float) -> None:
    """Add the Holm-adjusted p and outcome to records that have p, mean_difference and outcome."""
    for record, p in zip(records, st.holm([r["p"] for r in records]), strict=True):
        record["p_holm"] = float(p)
        # Holm rejects at p <= alpha, whereas a single test needs p < alpha.
        rejected = not math.isnan(p) and p <= alpha
        record["outcome_holm"] = record["outcome"] if rejected or math.isnan(p) else st.TIE


@dataclass(frozen=True)
class RankAnalysis:
    """Friedman's test over data sets with what a critical-difference diagram needs."""

    titles: tuple[str, ...]
    names: tuple[str, ...]
    datasets: tuple[str, ...]
    dropped: tuple[str, ...]  # data sets on which a method has not all its seeds
    friedman: st.Friedman
    groups: Any  # (bars, k)
    control: st.ControlComparison | None
    reference: str
    alpha: float


def rank_methods(
    scores: pd.DataFrame, titles: Mapping[str, str], reference: str, alpha: float, dropped: Sequence[str] = ()
) -> RankAnalysis:
    """Rank the columns (methods) of a frame of scores, one row per data set."""
    names = tuple(scores.columns)
    result = st.friedman(scores.to_numpy(), alpha)
    control = None
    if reference in names:
        control = st.control_comparison(result.average_ranks, len(scores), names.index(reference), alpha)
    return RankAnalysis(
        titles=tuple(titles.get(n, n) for n in names),
        names=names,
        datasets=tuple(scores.index),
        dropped=tuple(dropped),
        friedman=result,
        groups=st.nemenyi_groups(result.average_ranks, result.critical_difference),
        control=control,
        reference=reference,
        alpha=alpha,
    )


def rank_analysis(
    runs: pd.DataFrame, plan: Plan, reference: str = "cel", alpha: float = 0.05, accuracy: str = "accuracy"
) -> RankAnalysis:
    """Ranks of the main methods over the data sets on which all of them are complete; mean over seeds is the score."""
    check_accuracy(accuracy)
    runs = relevant(runs, plan)
    methods = plan.main_methods
    scores, dropped = {}, []
    for dataset in plan.datasets:
        cells = {m.name: measure(runs, plan, dataset.name, m.name, accuracy) for m in methods}
        if all(c.complete for c in cells.values()):
            scores[dataset.name] = {name: c.mean for name, c in cells.items()}
        else:
            dropped.append(dataset.name)
    if len(methods) < 2 or not scores:
        raise ValueError(
            f"No ranks for profile {plan.profile}: they need two methods and a data set on which all methods have all "
            f"seeds (incomplete: {', '.join(dropped) or 'none'})."
        )
    frame = pd.DataFrame.from_dict(scores, orient="index")
    return rank_methods(frame, {m.name: m.title for m in methods}, reference, alpha, dropped)
