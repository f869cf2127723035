"""From the frame of runs to cells and comparisons: which runs count, accuracies by seed, tests of one method against others.

Needs pandas and SciPy, not torch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from benchmark.accuracy import LAST, Accuracy
from benchmark.analysis import statistics as st
from benchmark.analysis.contents import MARGIN, Contents, MethodInfo
from benchmark.errors import MissingRuns
from benchmark.store import THEN
from datasets.base import plural

if TYPE_CHECKING:
    from benchmark.config.spec import RunSpec

ALPHA = 0.05


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


def relevant(runs: pd.DataFrame, contents: Contents) -> pd.DataFrame:
    """The runs of the contents' profile, data sets and seeds."""
    of_profile = runs[(runs["profile"] == contents.profile) & runs["seed"].isin(contents.seeds)]
    return of_profile[of_profile["dataset"].isin([d.name for d in contents.datasets])]


def measure(runs: pd.DataFrame, contents: Contents, dataset: str, label: str, accuracy: Accuracy = LAST) -> Measured:
    """One cell, matched on the run's label. Of several finished runs of a seed the last in the frame counts."""
    rows = runs[(runs["dataset"] == dataset) & (runs["label"] == label)]
    found: dict[int, float] = {}
    problems: dict[int, str] = {}
    # Plain tuples: a filter of the frame per seed would be most of the time of a large table.
    for seed, status, value, reason in zip(
        rows["seed"], rows["status"], rows[accuracy.key], rows["reason"], strict=True
    ):
        if status == "done" and not pd.isna(value):
            found[seed] = float(value)
        else:
            problems[seed] = _problem(seed, status, reason, accuracy.key)
    values = {seed: found[seed] for seed in contents.seeds if seed in found}
    unsolved = [problems[seed] for seed in contents.seeds if seed in problems and seed not in found]
    return Measured(values, len(contents.seeds), tuple(unsolved))


def _problem(seed: int, status: str, reason: object, accuracy: str) -> str:
    if status == "done":
        why = ": its test rows have no true labels" if accuracy == LAST.key else ""
        return f"seed {seed} has no {accuracy}{why}"
    return f"seed {seed} {status}" + (f": {reason}" if isinstance(reason, str) and reason else "")


def unregistered(runs: pd.DataFrame, contents: Contents) -> tuple[MethodInfo, ...]:
    """Methods with runs of their own label that no file defines any more."""
    known = {m.name for m in contents.methods} | (contents.registered or frozenset())
    own = runs[runs["label"] == runs["method"]]
    return tuple(MethodInfo(name, name, "unregistered") for name in sorted(set(own["method"]) - known))


def mixture_notes(runs: pd.DataFrame) -> list[str]:
    """Warnings where finished runs that differ in what they are stand side by side."""
    done, notes = runs[runs["status"] == "done"], []
    names = {"commit": "commits", "code_version": "code versions", "schema": "versions of the results schema"}
    for column, many in {**names, "epochs": "numbers of epochs"}.items():
        counts = done[column].fillna("unknown").value_counts().sort_index(key=lambda i: i.astype(str))
        # Epochs are a matter of the data set: a profile may train small sets for longer.
        mixed = done.groupby("dataset")[column].nunique().max() > 1 if column == "epochs" else len(counts) > 1
        if mixed:
            listed = ", ".join(
                f"{str(value)[:12]} ({count} run{'s' if count > 1 else ''})" for value, count in counts.items()
            )
            notes.append(f"Warning: runs of {len(counts)} {many} are mixed in this table: {listed}.")
    twice = done.duplicated(["dataset", "label", "seed"], keep=False)
    if twice.any():
        cells = sorted({f"{r.label} on {r.dataset} seed {r.seed}" for r in done[twice].itertuples()})
        notes.append(
            f"Warning: several finished runs with different configurations for {_first(cells)}; the last one listed is used."
        )
    return notes


def devices_in_words(devices: Iterable[tuple[str, str]]) -> str:
    """What runs were made on, from `store.devices_of` of each: "cpu", "cuda NVIDIA A100", or several with their runs; a
    run that went on elsewhere is "cpu Xeon then cuda A100"."""
    known = Counter(
        THEN.join(f"{d.split(':')[0]} {n}".strip() for d, n in zip(kinds.split(THEN), names.split(THEN), strict=False))
        for kinds, names in devices
        if kinds
    )
    if len(known) > 1:
        return " and ".join(f"{place} ({plural(many, 'run')})" for place, many in known.most_common())
    place = next(iter(known), "unknown")
    return "cpu" if place.startswith("cpu ") and THEN not in place else place


def device_notes(runs: pd.DataFrame) -> list[str]:
    """Runs that changed their card or CPU between two sittings."""
    names = (str(name or "") for name in runs.loc[runs["status"] == "done", "device_name"])
    return [
        f"Warning: {plural(count, 'run')} went from {name.replace(THEN, ' to ')} between two sittings; bits may differ from "
        f"those of one kind of device."
        for name, count in Counter(name for name in names if THEN in name).items()
    ]


def candidate_notes(runs: pd.DataFrame, specs: Sequence[RunSpec]) -> list[str]:
    """One candidate set for all: runs on other labels in the same cell of the plan are not comparable."""
    by_key: dict[tuple[Any, ...], set[str]] = {}
    sections = {
        s.digest: (
            *(s.dataset, s.seed, repr(s.config.dataset_settings), s.data, s.annotator),
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


def _first(items: Sequence[str], limit: int = 5) -> str:
    return ", ".join(items[:limit]) + (f" and {len(items) - limit} more" if len(items) > limit else "")


def compare_runs(
    runs: pd.DataFrame,
    contents: Contents,
    test: str = "paired",
    accuracy: Accuracy = LAST,
    alpha: float = ALPHA,
    margin: float = MARGIN,
) -> list[dict[str, Any]]:
    """The reference against every other main method on every data set, method by method; Holm over those made."""
    runs, reference = relevant(runs, contents), contents.reference
    records, made = [], []
    for method in contents.main_methods:
        if method.name == reference:
            continue
        for dataset in contents.datasets:
            a = measure(runs, contents, dataset.name, reference, accuracy)
            b = measure(runs, contents, dataset.name, method.name, accuracy)
            c = st.compare(a.values, b.values, test, alpha, expected=len(contents.seeds))
            made.append(c)
            records.append(
                {
                    "reference": reference,
                    "method": method.name,
                    "dataset": dataset.name,
                    "group": dataset.group,
                    "n": c.n,
                    "expected": len(contents.seeds),
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
    family = sum(c.outcome != st.MISSING for c in made)
    for record, c in zip(records, made, strict=True):
        record |= shown_by(c, differences(record), alpha, margin, family)
    return records


def differences(record: Mapping[str, Any]) -> list[float]:
    """Reference minus method, seed by seed, where both have one."""
    seeds = st.common_seeds(record["reference_values"], record["method_values"])
    return [record["reference_values"][seed] - record["method_values"][seed] for seed in seeds]


def shown_by(c: st.Comparison, paired: Sequence[float], alpha: float, margin: float, family: int) -> dict[str, Any]:
    """Beyond win, tie and loss: practical equality, what could have been detected, P(reference > method) on a new seed."""
    p_equal = st.equivalence_p(c, margin, alpha)
    unknown = (math.nan, math.nan, math.nan)
    better, low, high = st.probability_better([paired], alpha) if len(paired) > 1 else unknown
    return {
        "margin": margin,
        "p_equal": p_equal,
        "verdict": st.verdict_of(c, p_equal, alpha),
        "detectable": st.detectable_difference(c, alpha),
        "detectable_holm": st.detectable_difference(c, alpha, max(1, family)),
        "p_better": better,
        "p_better_low": low,
        "p_better_high": high,
    }


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
    reference: str
    alpha: float


def rank_methods(
    scores: pd.DataFrame, titles: Mapping[str, str], reference: str, alpha: float, dropped: Sequence[str] = ()
) -> RankAnalysis:
    """Rank the columns (methods) of a frame of scores, one row per data set."""
    names = tuple(scores.columns)
    result = st.friedman(scores.to_numpy(), alpha)
    return RankAnalysis(
        titles=tuple(titles.get(n, n) for n in names),
        names=names,
        datasets=tuple(scores.index),
        dropped=tuple(dropped),
        friedman=result,
        groups=st.nemenyi_groups(result.average_ranks, result.critical_difference),
        reference=reference,
        alpha=alpha,
    )


def rank_analysis(
    runs: pd.DataFrame, contents: Contents, alpha: float = ALPHA, accuracy: Accuracy = LAST
) -> RankAnalysis:
    """Ranks of the main methods over the data sets on which all of them are complete; mean over seeds is the score."""
    runs = relevant(runs, contents)
    methods = contents.main_methods
    scores, dropped = {}, []
    for dataset in contents.datasets:
        cells = {m.name: measure(runs, contents, dataset.name, m.name, accuracy) for m in methods}
        if all(c.complete for c in cells.values()):
            scores[dataset.name] = {name: c.mean for name, c in cells.items()}
        else:
            dropped.append(dataset.name)
    if len(methods) < 2 or not scores:
        raise MissingRuns(
            f"No ranks for profile {contents.profile}: they need two methods and a data set on which all methods have all "
            f"seeds (incomplete: {', '.join(dropped) or 'none'})."
        )
    frame = pd.DataFrame.from_dict(scores, orient="index")
    return rank_methods(frame, contents.titles, contents.reference, alpha, dropped)
