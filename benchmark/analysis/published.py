"""Published numbers, from results/published: see the README there for where they were seen and for their slips."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd

from benchmark.files import ROOT

FOLDER = ROOT / "results" / "published"
COLUMNS = (
    "source", "table", "method", "type", "dataset", "model", "split", "metric", "mean", "std", "n", "spread", "values",
    "seen", "profile", "ours", "accuracy", "caveat",
)  # fmt: skip
SOURCES = ("cel", "p20", "l21", "v21", "x23", "f25", "k25")  # one file each


def numbers(source: str, folder: Path = FOLDER) -> pd.DataFrame:
    """The accuracies of one source, a row per printed number; text columns are never missing."""
    text = dict.fromkeys(set(COLUMNS) - {"mean", "std", "n"}, str)
    empty = {"mean": [""], "std": [""], "n": [""]}
    return pd.read_csv(folder / f"{source}.csv", dtype=text, keep_default_na=False, na_values=empty)


def load(name: str, folder: Path = FOLDER) -> pd.DataFrame:
    """The CEL paper's table1, table2, table3, table4, in_text as it prints them."""
    if name in ("table2", "table4"):
        printed = numbers("cel", folder)
        printed = printed[printed["table"] == name.replace("table", "Table ")].reset_index(drop=True)
        if name == "table2":
            return printed[["method", "type", "dataset", "mean", "std", "n"]].astype({"n": int})
        return printed.rename(columns={"method": "row"})[["row", "dataset", "mean", "std", "n"]]
    return pd.read_csv(folder / f"cel-{name}.csv")


def accuracies(folder: Path = FOLDER) -> dict[tuple[str, str], tuple[float, float, int]]:
    """(method in lower case, data set as printed) -> mean, std, runs."""
    records = load("table2", folder).to_dict("records")
    return {(r["method"].lower(), r["dataset"]): (r["mean"], r["std"], r["n"]) for r in records}


def beside(profile: str, folder: Path = FOLDER) -> dict[tuple[str, str], tuple[float, float, int]]:
    """What stands beside the runs of a profile: the numbers that it regenerates, by method here, else the paper's Table 2."""
    own = [number for number in of_profile(profile, folder) if number["metric"] == "test" and number["ours"]]
    own = [number for number in own if not math.isnan(number["mean"])]
    if profile == "paper" or not own:
        return accuracies(folder)
    return {(number["ours"], number["dataset"]): (number["mean"], number["std"], number["n"]) for number in own}


def ablation(folder: Path = FOLDER) -> dict[tuple[str, str], tuple[float, float]]:
    """(row as printed, data set or "AVERAGE") -> mean, std."""
    return {(r["row"], r["dataset"]): (r["mean"], r["std"]) for r in load("table4", folder).to_dict("records")}


def win_tie_loss(folder: Path = FOLDER) -> dict[tuple[str, str], tuple[int, int, int]]:
    """(group or "Total", method as printed or "Total") -> wins, ties, losses."""
    records = load("table3", folder).to_dict("records")
    return {(r["group"], r["method"]): (r["win"], r["tie"], r["loss"]) for r in records}


def of_profile(profile: str, folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The numbers that a profile regenerates, in the order of their files."""
    frames = [numbers(source, folder) for source in SOURCES]
    records = pd.concat(frames, ignore_index=True).to_dict("records")
    return [{str(key): value for key, value in record.items()} for record in records if record["profile"] == profile]
