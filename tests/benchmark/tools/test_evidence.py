"""The generated parts of docs/evidence.md hold the numbers of the stored runs and of the files of the selection study."""

from __future__ import annotations

import csv
import io

import pandas as pd

from benchmark.analysis.selection import TITLES as RULES
from benchmark.exhibits.selection import FEW
from benchmark.tools import evidence


def cells(text: str) -> dict[str, list[str]]:
    """Return the cells of Markdown tables by the first of their line."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {f"{line[0]}/{len(line)}": line[1:] for line in lines}


def test_the_selection_study_is_made_from_its_files() -> None:
    shown, columns = cells(evidence.selection_study()), len(evidence.GROUPS) + 1
    picks, ways = (pd.read_csv(evidence.SELECTION / name) for name in ("settings.csv", "between.csv"))
    for rule, group in picks[picks["method"] != FEW].groupby("rule"):
        *_, lost, largest, _ = shown[f"{RULES[str(rule)]}/{columns + 2}"]
        assert lost.startswith(f"{group[group['dataset'] == 'lost']['regret'].mean():.2f} (")
        assert largest == f"{group['regret'].max():.1f}"
    for way, group in ways.groupby("way"):
        assert shown[f"{way}/{columns}"][-1] == f"{group[group['dataset'] == 'lost']['regret'].iloc[0]:.2f}"


def test_the_files_of_the_page_have_every_number_of_its_summaries() -> None:
    files = {name: list(csv.DictReader(io.StringIO(content()))) for name, content in evidence.FILES.items()}
    verdicts = [line["verdict"] for line in files["realworld.csv"]]
    agree = f"{verdicts.count('agrees')} of {len(verdicts)} comparable cells agree"
    assert agree in evidence.agreement_summary()
    for line in files["realworld-chosen.csv"]:
        assert line["verdict"] == "not comparable" and line["why"]
        difference = float(line["mean"]) - float(line["published_mean"])
        assert abs(difference - float(line["difference"])) < 0.011 and float(line["low"]) < float(line["high"])
    assert {line["n"] for line in files["realworld-all.csv"]} == {"10"}
    lost = {line["method"]: line["mean"] for line in files["realworld-all.csv"] if line["dataset"] == "lost"}
    assert len(lost) == 26 and len(files["realworld-all.csv"]) == 6 * len(lost)
