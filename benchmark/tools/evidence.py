"""Generated parts of docs/evidence.md and README.md, and the CSV files in docs/tables.

`benchmark.tools.docs` writes them from the runs in results/reference and the tables in results/selection.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from benchmark.analysis.selection import TITLES, regrets
from benchmark.analysis.statistics import stratified_bootstrap_mean
from benchmark.analysis.table import NONE, Table, to_markdown
from benchmark.config.selection import select
from benchmark.exhibits.base import Inputs
from benchmark.exhibits.parts.cells import signed, spread
from benchmark.exhibits.realworld import Realworld
from benchmark.exhibits.selection import DEVELOPMENT, FEW
from benchmark.exhibits.table2 import Table2
from benchmark.files import ROOT
from benchmark.runner.options import RunOptions
from datasets.registry import SOURCES
from methods.registry import discover

REFERENCE_RUNS = RunOptions(ROOT / "results" / "reference", ROOT / "data")
TABLES = ROOT / "docs" / "tables"
SELECTION = ROOT / "results" / "selection"  # written by `selection --out`
GROUPS = {  # of the datasets of the selection study
    "development sets": tuple(DEVELOPMENT.split(",")),
    "confirmation sets": ("msrcv2", "birdsong"),
    "Lost": ("lost",),
}
PRINTED = Realworld.Options()  # sources that print their settings
CHOSEN = Realworld.Options("l21,l21-mlp,x23")  # sources whose learning rates and weight decays were chosen here
ALL_METHODS = Realworld.Options(all_methods=True)


@functools.cache
def table_of(kind: type[Realworld | Table2], options: Any, profile: str | None = None) -> Table:
    """Return the table of an exhibit from the reference runs. Their data need not be on this machine."""
    exhibit, datasets = kind(), "lost,msrcv2,birdsong" if options == ALL_METHODS else None
    selection = select(profile or str(exhibit.profile_for(options)), datasets=datasets)
    return exhibit.make(Inputs(selection, exhibit.required_runs(selection, options), REFERENCE_RUNS), options)


def csv_text(records: Any, columns: Sequence[str]) -> str:
    """Return records as CSV, numbers with two digits."""
    return pd.DataFrame(records, columns=list(columns)).to_csv(index=False, float_format="%.2f")


def markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]], aligns: str = "") -> str:
    """Return a Markdown table. `aligns` has one letter per column: l for words (default), r for numbers."""
    lines = [[str(cell).replace("|", "\\|") for cell in cells] for cells in (columns, *rows)]
    rule = "|".join("--:" if align == "r" else "---" for align in aligns or "l" * len(columns))
    head, *body = ["| " + " | ".join(cells) + " |" for cells in lines]
    return "\n".join([head, f"|{rule}|", *body])


# Published numbers on real-world tables -------------------------------------------------------------------------------


def comparisons(options: Realworld.Options) -> pd.DataFrame:
    """Return the published numbers for which there are finished runs, a row each."""
    return pd.DataFrame([record for record in table_of(Realworld, options).data if record["values"]])


def realworld_csv(options: Realworld.Options) -> str:
    """Return every published number with ours."""
    identity = ("source", "table", "method", "ours", "dataset", "model", "metric")
    numbers = ("published_mean", "published_std", "mean", "std", "difference", "low", "high")
    return csv_text(comparisons(options), (*identity, *numbers, "how", "verdict", "why", "profile"))


def agreement_summary() -> str:
    """Return how many published numbers agree per source, and which differ."""
    cells = comparisons(PRINTED)
    cells = cells[cells["verdict"].isin(("agrees", "differs"))]
    rows = []
    for source, group in cells.groupby("source", sort=False):
        models = group["model"].str.split(" and ").str[0].unique()
        methods = dict.fromkeys(map(method_name, group["method"], group["ours"]))
        differ = group[group["verdict"] == "differs"].to_dict("records")
        texts = [f"{r['method']} on {r['dataset']} ({signed(r['difference'])})" for r in differ]
        agree = len(group) - len(differ)
        rows.append((source, ", ".join(models), ", ".join(methods), len(group), agree, ", ".join(texts) or NONE))
    columns = ("source", "network", "methods", "cells", "agree", "differ")
    agreement = table_of(Realworld, PRINTED).summary["agreement"]
    return f"**{agreement}.**\n\n" + markdown(columns, rows, "lllrrl")


def method_name(printed: str, ours: str) -> str:
    """Return the source's name of a method, followed by its name here if that is another one."""
    return printed if discover().entries[ours].title.lower() == printed.lower() else f"{printed} (`{ours}`)"


def chosen_summary() -> str:
    """Return one line per source and model whose settings were chosen here."""
    cells = comparisons(CHOSEN)
    keys = [cells["source"].str.split(",").str[0], cells["model"]]
    inside = ((cells["low"] <= 0) & (cells["high"] >= 0)).groupby(keys, sort=False).agg(["size", "sum"])
    means = cells["difference"].groupby([*keys, cells["dataset"]], sort=False).mean().unstack(sort=False)
    rows = [
        (*key, *counts, *map(signed, means.loc[key])) for key, counts in zip(inside.index, inside.values, strict=True)
    ]
    columns = ("source", "network", "cells", "interval contains 0", *(f"mean difference, {name}" for name in means))
    return markdown(columns, rows, "llrr" + "r" * len(means.columns))


# All methods under one protocol ---------------------------------------------------------------------------------------


def all_methods() -> pd.DataFrame:
    """Return a row per method, dataset and model of `realworld --all-methods`."""
    records = pd.DataFrame(table_of(Realworld, ALL_METHODS).data)
    records[["dataset", "model"]] = records["dataset"].str.split(", ", expand=True)
    return records


def all_methods_csv() -> str:
    return csv_text(all_methods(), ("dataset", "model", "kind", "method", "mean", "std", "n"))


def all_methods_summary() -> str:
    """Return one line per dataset and model: the best method, CEL, its controls and the references."""
    titles = {name: entry.title for name, entry in discover().entries.items()}
    names = ("cel", "cel-linear", "proden-2v", "proden", "average", "supervised")
    rows = []
    for (dataset, model), group in all_methods().groupby(["dataset", "model"], sort=False):
        means = group.set_index("method")["mean"]
        best = [f"{titles[name]} {means[name]:.1f}" for name in group[group["place"] == 1]["method"]]
        rows.append((SOURCES[str(dataset)].title, model, ", ".join(best), *(f"{means[name]:.1f}" for name in names)))
    columns = ("dataset", "network", "best of the thirteen", *(titles[name] for name in names))
    return markdown(columns, rows, "lll" + "r" * len(names))


# Choosing settings without true labels --------------------------------------------------------------------------------


def selection_study() -> str:
    """Return the tables of the selection study from the files that `selection --out` has written."""
    parts = []
    for name, make in {"settings.csv": rules_table, "between.csv": ways_table}.items():
        link = f"[results/selection/{name}](../results/selection/{name})"
        parts.append(f"{make(pd.read_csv(SELECTION / name))}\n\nAll choices: {link}.")
    return "\n\n".join(parts)


def rules_table(picks: pd.DataFrame) -> str:
    """Return one line per rule from the records of `selection`: mean regret by group of datasets, the largest, Spearman."""
    picks = picks[picks["method"] != FEW]
    rows = []
    for line in regrets(picks).to_dict("records"):
        means = grouped_regrets(picks[picks["rule"] == line["rule"]])
        spearman = NONE if math.isnan(line["spearman"]) else f"{line['spearman']:.2f}"
        rows.append((TITLES[str(line["rule"])], *means, f"{line['largest']:.1f}", spearman))
    columns = ("rule", *GROUPS, "largest", "Spearman")
    return markdown(columns, rows, "l" + "r" * (len(columns) - 1))


def ways_table(ways: pd.DataFrame) -> str:
    """Return one line per way of choosing a method from the records of `selection --between`: mean regret."""
    rows = [(str(way), *grouped_regrets(group)) for way, group in ways.groupby("way", sort=False)]
    return markdown(("choice of the method", *GROUPS), rows, "l" + "r" * len(GROUPS))


def grouped_regrets(records: pd.DataFrame) -> list[str]:
    """Return the mean regret on each group of datasets, with its bootstrap interval where there are at least six cells."""
    texts = []
    for names in GROUPS.values():
        regret = records[records["dataset"].isin(names)]["regret"]
        text = f"{regret.mean():.2f}" if len(regret) else NONE
        if len(regret) > 5:
            low, high = stratified_bootstrap_mean([regret.to_numpy()])
            text += f" ({low:.2f}–{high:.2f})"
        texts.append(text)
    return texts


# Photographs ----------------------------------------------------------------------------------------------------------


def photographs() -> pd.DataFrame:
    """Return Table 2 under the profile `frozen`, best first, with accuracies and ranks here and in the paper as text."""
    records = pd.DataFrame(table_of(Table2, Table2.Options(), "frozen").data)
    records = records.sort_values("mean", ascending=False, kind="stable")
    in_paper = records[records["published_mean"].notna()]
    for column, ranked in (("rank", "mean"), ("published_rank", "published_mean")):
        records[column] = in_paper[ranked].rank(ascending=False, method="first").map("{:.0f}".format)
    records["title"] = [discover().entries[name].title for name in records["method"]]
    records["here"] = [spread(mean, std) for mean, std in zip(records["mean"], records["std"], strict=True)]
    records["paper"] = in_paper["published_mean"].map("{:.2f}".format)
    return records.fillna(dict.fromkeys(("rank", "paper", "published_rank"), NONE))


def photograph_extremes() -> str:
    """Return accuracy and rank of the best method, CEL and the floor, and the paper's."""
    records = photographs()
    shown = records[(records["rank"] == "1") | records["method"].isin(("cel", "average"))]
    rows = shown[["title", "here", "rank", "paper", "published_rank"]].values.tolist()
    return markdown(("method", "here", "rank", "paper", "rank"), rows, "lrrrr")


def photograph_ranks() -> str:
    """Return learning rate, accuracy and rank of every row, with the ranks of the paper."""
    records, rates = photographs(), {spec.method: f"{spec.train.lr:g}" for spec in select("frozen").specs()}
    records["rate"] = records["method"].map(rates)
    columns = {"title": "method", "rate": "rate", "here": "here", "rank": "rank", "published_rank": "rank in the paper"}
    return markdown(tuple(columns.values()), records[list(columns)].values.tolist(), "lrrrr")


def quick_table() -> str:
    """Return Table 2 of the profile `quick` as its command writes it."""
    return to_markdown(table_of(Table2, Table2.Options(), "quick")).rstrip()


def floor_note() -> str:
    """Return the test accuracy of Average at the best setting of its grid: the floor must not be low for lack of tuning."""
    picks = pd.read_csv(SELECTION / "settings.csv")
    best = picks[picks["method"] == "average"].groupby("dataset")["best"].first()
    texts = [f"{SOURCES[name].title} {best[name]:.1f}" for name in GROUPS["development sets"]]
    return f"Average at the learning rate that is best on test rows (tuning seeds): {', '.join(texts)}."


FILES = {  # in docs/tables
    "realworld.csv": lambda: realworld_csv(PRINTED),
    "realworld-chosen.csv": lambda: realworld_csv(CHOSEN),
    "realworld-all.csv": all_methods_csv,
}
