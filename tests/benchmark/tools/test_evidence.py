"""The generated parts of docs/evidence.md hold the numbers of the stored runs and of the files of the selection study."""

from __future__ import annotations

import csv
import io
import itertools
from pathlib import Path

import numpy as np
import pandas as pd

from benchmark.analysis.selection import TITLES as RULES
from benchmark.analysis.selection import Score, choices
from benchmark.analysis.table import Table, write
from benchmark.exhibits.selection import FEW, between_table, settings_table
from benchmark.tools import evidence

DATASETS, METHODS = ("letter", "digits", "fashion", "lost"), ("proden", "cc", "cel", FEW)
TITLES = {name: name for name in (*DATASETS, *METHODS)}


def study(folder: Path) -> tuple[Table, Table]:
    """Write both tables of a study of random numbers as `selection --out` does."""
    random = np.random.default_rng(0)
    settings = pd.DataFrame(
        {
            "dataset": dataset,
            "method": method,
            "setting": f"lr {k}",
            "score": Score(*(100 * random.random(5))),
            "accuracy": 100 * random.random(),
        }
        for dataset, method, k in itertools.product(DATASETS, METHODS, range(5))
    )
    picks = choices(settings)
    rules = settings_table(picks, {}, TITLES, "", [])
    between = between_table(picks[picks["method"] != FEW], ["letter", "digits", "fashion"], TITLES, "", [])
    write(rules, folder, "settings", [".csv"])
    write(between, folder, "between", [".csv"])
    return rules, between


def cells(text: str) -> dict[str, list[str]]:
    """Return the cells of Markdown tables by the first of their line."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {f"{line[0]}/{len(line)}": line[1:] for line in lines}


def test_the_selection_study_is_made_from_its_files(tmp_path: Path) -> None:
    assert evidence.selection_study(tmp_path) == ""
    rules, between = study(tmp_path)
    shown = cells(evidence.selection_study(tmp_path))
    columns = len(evidence.GROUPS) + 3
    for line in rules.summary["rules"]:
        *_, lost, largest, _ = shown[f"{RULES[line['rule']]}/{columns}"]
        assert largest == f"{line['largest']:.1f}"
        on_lost = [r["regret"] for r in rules.data if (r["rule"], r["dataset"]) == (line["rule"], "lost")]
        few = [r["regret"] for r in rules.data if (r["rule"], r["dataset"], r["method"]) == (line["rule"], "lost", FEW)]
        assert lost == f"{(sum(on_lost) - sum(few)) / (len(on_lost) - len(few)):.2f}"
    for row in between.rows[:-1]:
        way, *accuracies, _, _ = (cell.text for cell in row.cells)
        regret = [r["regret"] for r in between.data if (r["way"], r["dataset"]) == (way, "lost")]
        assert shown[f"{way}/{columns - 2}"][-1] == f"{regret[0]:.2f}" and len(accuracies) == len(DATASETS)


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
