"""Published numbers beside ours: the difference, its 95 % interval, and a verdict in words.

Where the rows of every split and the value on each are known, differences are taken split by split; elsewhere the two
means are compared with the spread that is printed, or with ours twice where none is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
from scipy import stats

from benchmark.analysis import published
from benchmark.analysis.statistics import mean, sample_std, t_interval
from benchmark.files import without_paths

KEYS = {"last": "accuracy", "last10": "accuracy_last10", "train": "train_accuracy"}  # of a run's summary

Verdict = Literal["agrees", "differs", "not comparable", "incomplete"]


@dataclass(frozen=True)
class Agreement:
    """One published number and what came out here."""

    printed: Mapping[str, Any]  # its row of results/published
    values: tuple[float, ...]  # ours, one per split
    planned: int
    low: float = math.nan  # 95 % interval of ours − theirs
    high: float = math.nan
    how: str = ""
    verdict: Verdict = "incomplete"
    why: str = ""

    @property
    def mean(self) -> float:
        return mean(self.values) if self.values else math.nan

    @property
    def std(self) -> float:
        return sample_std(self.values) if len(self.values) > 1 else math.nan

    @property
    def difference(self) -> float:
        return self.mean - self.printed["mean"]


def per_split(text: str) -> list[float]:
    return [float(word) for word in text.split()]


def interval(printed: Mapping[str, Any], ours: Sequence[float], same_splits: bool = True) -> tuple[float, float, str]:
    """95 % interval of our mean minus theirs, and how it was had; paired only where ours are of the same splits."""
    theirs = per_split(printed["values"])
    if same_splits and len(theirs) == len(ours) > 1:
        low, high = t_interval([a - b for a, b in zip(ours, theirs, strict=True)])
        return low, high, f"paired over {len(ours)} splits"
    n = int(printed["n"])
    spread = printed["std"] * (math.sqrt(n / (n - 1)) if printed["spread"].endswith("divisor n") else 1.0)
    if math.isnan(spread):
        spread = sample_std(ours)
    squares = [spread**2 / n, sample_std(ours) ** 2 / len(ours)]
    if not sum(squares):
        return math.nan, math.nan, ""
    freedom = sum(squares) ** 2 / (squares[0] ** 2 / (n - 1) + squares[1] ** 2 / (len(ours) - 1))
    bound = float(stats.t.ppf(0.975, freedom)) * math.sqrt(sum(squares))
    difference = mean(ours) - printed["mean"]
    return difference - bound, difference + bound, f"two-sample, {n} and {len(ours)}"


def agreement(
    printed: Mapping[str, Any], ours: Mapping[int, float], seeds: Sequence[int], problem: str = ""
) -> Agreement:
    """The verdict on one number. `ours`: what the finished runs gave, by seed; `problem`: why one has not finished."""
    values = tuple(ours[seed] for seed in seeds if seed in ours)
    if not printed["ours"] or (printed["caveat"] and not values):
        why = printed["caveat"] or "nothing here regenerates it"
        return Agreement(printed, values, len(seeds), verdict="not comparable", why=why)
    if len(values) == len(seeds) == 1:
        return Agreement(printed, values, 1, verdict="not comparable", why="one split has no spread")
    if len(values) < max(2, len(seeds)):
        why = f"{len(values)} of {len(seeds)} runs are done{f', {problem}' if problem else ''}"
        return Agreement(printed, values, len(seeds), why=why)
    if math.isnan(printed["mean"]):
        why = "their number is not in results/published"
        return Agreement(printed, values, len(seeds), verdict="not comparable", why=why)
    low, high, how = interval(printed, values, [*seeds] == [*range(len(seeds))])  # theirs are seeds 0, 1, …
    if printed["caveat"]:
        return Agreement(printed, values, len(seeds), low, high, how, "not comparable", printed["caveat"])
    if math.isnan(low):
        return Agreement(printed, values, len(seeds), verdict="not comparable", why="neither side has a spread")
    return Agreement(printed, values, len(seeds), low, high, how, "agrees" if low <= 0 <= high else "differs")


def agreements(profile: str, runs: pd.DataFrame, titles: Mapping[str, str], seeds: Sequence[int]) -> list[Agreement]:
    """All numbers that a profile regenerates, on the data sets named by `titles` (name -> title).

    `runs` has a row per run with its label (the method), dataset, seed, status, reason and accuracies.
    """
    found = []
    names = {title: name for name, title in titles.items()}
    for printed in published.of_profile(profile):
        if printed["dataset"] not in names:
            continue
        key = KEYS["train" if printed["metric"] == "train" else printed["accuracy"]]
        here = runs[(runs["dataset"] == names[printed["dataset"]]) & (runs["label"] == printed["ours"])]
        done = here[here["status"] == "done"]
        ours = {int(seed): float(value) for seed, value in zip(done["seed"], done[key], strict=True)}
        ours = {seed: value for seed, value in ours.items() if not math.isnan(value)}
        ended = here[here["status"].isin(("failed", "diverged"))].to_dict("records")
        problem = f"seed {ended[0]['seed']} {ended[0]['status']}: {without_paths(ended[0]['reason'])}" if ended else ""
        found.append(agreement(printed, ours, seeds, problem.rstrip(".")))
    return found


def count(found: Iterable[Agreement]) -> str:
    """How many of those that can agree do: "11 of 12 cells agree"."""
    judged = [one.verdict for one in found if one.verdict in ("agrees", "differs")]
    return f"{judged.count('agrees')} of {len(judged)} comparable cells agree"


def count_chosen(found: Iterable[Agreement]) -> str:
    """The same of numbers whose settings the source does not print, so that they were chosen here; "" if there are none."""
    shown = [one for one in found if one.verdict == "not comparable" and not math.isnan(one.low)]
    inside = sum(one.low <= 0 <= one.high for one in shown)
    if not shown:
        return ""
    return f"Of {len(shown)} cells that are not comparable, {inside} hold 0 in their interval all the same"
