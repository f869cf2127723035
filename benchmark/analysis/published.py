"""The numbers that the CEL paper prints, from results/paper: see the README there for its slips."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmark.files import ROOT

FOLDER = ROOT / "results" / "paper"


def load(name: str, folder: Path = FOLDER) -> pd.DataFrame:
    """One of table1, table2, table3, table4, in_text."""
    return pd.read_csv(folder / f"{name}.csv")


def accuracies(folder: Path = FOLDER) -> dict[tuple[str, str], tuple[float, float, int]]:
    """(method in lower case, data set as printed) -> mean, std, runs."""
    records = load("table2", folder).to_dict("records")
    return {(r["method"].lower(), r["dataset"]): (r["mean"], r["std"], r["n"]) for r in records}


def ablation(folder: Path = FOLDER) -> dict[tuple[str, str], tuple[float, float]]:
    """(row as printed, data set or "AVERAGE") -> mean, std."""
    return {(r["row"], r["dataset"]): (r["mean"], r["std"]) for r in load("table4", folder).to_dict("records")}


def win_tie_loss(folder: Path = FOLDER) -> dict[tuple[str, str], tuple[int, int, int]]:
    """(group or "Total", method as printed or "Total") -> wins, ties, losses."""
    records = load("table3", folder).to_dict("records")
    return {(r["group"], r["method"]): (r["win"], r["tie"], r["loss"]) for r in records}
