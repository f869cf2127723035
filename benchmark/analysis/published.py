"""Published numbers from results/published, and how our runs agree with them: difference, 95 % interval, verdict.

The README of that folder gives the origin of the numbers and lists known errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
from scipy import special

from benchmark.accuracy import by_word
from benchmark.analysis.statistics import mean, sample_std, t_interval
from benchmark.files import ROOT, without_paths

FOLDER = ROOT / "results" / "published"
COLUMNS = (
    "source", "table", "method", "type", "dataset", "model", "split", "metric", "mean", "std", "n", "spread", "values",
    "seen", "profile", "ours", "accuracy", "caveat",
)  # fmt: skip
SOURCES = ("cel", "p20", "l21", "v21", "x23", "f25", "k25")  # one file each


def numbers(source: str) -> pd.DataFrame:
    """Return the accuracies of one source, a row per printed number; text columns are never missing."""
    text = dict.fromkeys(set(COLUMNS) - {"mean", "std", "n"}, str)
    empty = {"mean": [""], "std": [""], "n": [""]}
    return pd.read_csv(FOLDER / f"{source}.csv", dtype=text, keep_default_na=False, na_values=empty)


def load(name: str) -> pd.DataFrame:
    """Return table1, table2, table3, table4 or in_text of the CEL paper as it prints them."""
    if name in ("table2", "table4"):
        printed = numbers("cel")
        printed = printed[printed["table"] == name.replace("table", "Table ")].reset_index(drop=True)
        if name == "table2":
            return printed[["method", "type", "dataset", "mean", "std", "n"]].astype({"n": int})
        return printed.rename(columns={"method": "row"})[["row", "dataset", "mean", "std", "n"]]
    return pd.read_csv(FOLDER / f"cel-{name}.csv")


def accuracies() -> dict[tuple[str, str], tuple[float, float, int]]:
    """Return (method in lower case, dataset as printed) -> mean, std, runs."""
    records = load("table2").to_dict("records")
    return {(r["method"].lower(), r["dataset"]): (r["mean"], r["std"], r["n"]) for r in records}


def comparison_numbers(profile: str) -> dict[tuple[str, str], tuple[float, float, int]]:
    """Return the numbers to compare a profile's runs with: those that it regenerates, or the paper's Table 2."""
    rows = [number for number in of_profile(profile) if number["metric"] == "test" and number["ours"]]
    rows = [number for number in rows if not math.isnan(number["mean"])]
    if profile == "paper" or not rows:
        return accuracies()
    return {(number["ours"], number["dataset"]): (number["mean"], number["std"], number["n"]) for number in rows}


def of_profile(profile: str) -> list[dict[str, Any]]:
    """Return the numbers that a profile regenerates, in the order of their files."""
    frames = [numbers(source) for source in SOURCES]
    records = pd.concat(frames, ignore_index=True).to_dict("records")
    return [{str(key): value for key, value in record.items()} for record in records if record["profile"] == profile]


# Our runs beside a published number -----------------------------------------------------------------------------------
Verdict = Literal["agrees", "differs", "not comparable", "incomplete"]


@dataclass(frozen=True)
class Agreement:
    """Published number with our accuracies and the verdict."""

    number: Mapping[str, Any]  # its row of results/published
    values: tuple[float, ...]  # ours, one per split
    expected: int
    low: float = math.nan  # 95 % interval of ours − theirs
    high: float = math.nan
    how: str = ""
    verdict: Verdict = "incomplete"
    why: str = ""

    @property
    def mean(self) -> float:
        return mean(self.values)

    @property
    def std(self) -> float:
        return sample_std(self.values)

    @property
    def difference(self) -> float:
        return self.mean - self.number["mean"]


def interval(number: Mapping[str, Any], ours: Sequence[float], same_splits: bool = True) -> tuple[float, float, str]:
    """Return the 95 % interval of our mean minus theirs and how it was computed.

    Differences are taken split by split where both sides have the same splits. Elsewhere the two means are compared with
    the published spread, or with ours twice where none is published (Welch).
    """
    theirs = [float(word) for word in number["values"].split()]
    if same_splits and len(theirs) == len(ours) > 1:
        low, high = t_interval([a - b for a, b in zip(ours, theirs, strict=True)])
        return low, high, f"paired over {len(ours)} splits"
    n = int(number["n"])
    spread = number["std"] * (math.sqrt(n / (n - 1)) if number["spread"].endswith("divisor n") else 1.0)
    if math.isnan(spread):
        spread = sample_std(ours)
    squares = [spread**2 / n, sample_std(ours) ** 2 / len(ours)]
    if not sum(squares):
        return math.nan, math.nan, ""
    freedom = sum(squares) ** 2 / (squares[0] ** 2 / (n - 1) + squares[1] ** 2 / (len(ours) - 1))
    bound = float(special.stdtrit(freedom, 0.975)) * math.sqrt(sum(squares))
    difference = mean(ours) - number["mean"]
    return difference - bound, difference + bound, f"two-sample, {n} and {len(ours)}"


def agreement(
    number: Mapping[str, Any], ours: Mapping[int, float], seeds: Sequence[int], problem: str = ""
) -> Agreement:
    """Compare one number. `ours`: accuracies of finished runs by seed; `problem`: why another run failed."""
    values = tuple(ours[seed] for seed in seeds if seed in ours)

    def without_interval(why: str, verdict: Verdict = "not comparable") -> Agreement:
        return Agreement(number, values, len(seeds), verdict=verdict, why=why)

    if not number["ours"] or (number["caveat"] and not values):
        return without_interval(number["caveat"] or "nothing here regenerates it")
    if len(values) == len(seeds) == 1:
        return without_interval("one split has no spread")
    if len(values) < max(2, len(seeds)):
        state = f"{len(values)} of {len(seeds)} runs are done"
        return without_interval(f"{state}, {problem}" if problem else state, "incomplete")
    if math.isnan(number["mean"]):
        return without_interval("their number is not in results/published")
    low, high, how = interval(number, values, [*seeds] == [*range(len(seeds))])  # theirs are seeds 0, 1, …
    if math.isnan(low) and not number["caveat"]:
        return without_interval("neither side has a spread")
    verdict: Verdict = "agrees" if low <= 0 <= high else "differs"
    if number["caveat"]:
        verdict = "not comparable"
    return Agreement(number, values, len(seeds), low, high, how, verdict, number["caveat"])


def agreements(
    numbers: Iterable[Mapping[str, Any]], runs: pd.DataFrame, names: Mapping[str, str], seeds: Sequence[int]
) -> list[Agreement]:
    """Compare published numbers with our runs on the datasets of `names` (title -> name).

    `runs` has a row per run with its label (the method), dataset, seed, status, reason and accuracies.
    """
    result = []
    for number in numbers:
        column = "train_accuracy" if number["metric"] == "train" else by_word(number["accuracy"]).key
        here = runs[(runs["dataset"] == names[number["dataset"]]) & (runs["label"] == number["ours"])]
        done = here[(here["status"] == "done") & here[column].notna()]
        ours = {int(seed): float(value) for seed, value in zip(done["seed"], done[column], strict=True)}
        failed = here[here["status"].isin(("failed", "diverged"))].to_dict("records")
        problem = (
            f"seed {failed[0]['seed']} {failed[0]['status']}: {without_paths(failed[0]['reason'])}" if failed else ""
        )
        result.append(agreement(number, ours, seeds, problem.rstrip(".")))
    return result


def count(cells: Iterable[Agreement]) -> str:
    """Return how many of the comparable cells agree: "11 of 12 comparable cells agree"."""
    verdicts = [cell.verdict for cell in cells if cell.verdict in ("agrees", "differs")]
    return f"{verdicts.count('agrees')} of {len(verdicts)} comparable cells agree"
