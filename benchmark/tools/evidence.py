"""Generated parts of docs/evidence.md and README.md, and the CSV files in docs/tables.

`benchmark.tools.docs` writes them from the runs in results/reference and the tables in results/selection.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.analysis.published import Agreement, count
from benchmark.analysis.table import NONE, to_markdown
from benchmark.config.selection import select
from benchmark.exhibits.base import Inputs
from benchmark.exhibits.parts.cells import signed, spread
from benchmark.exhibits.realworld import Realworld, agreements, record, short_source
from benchmark.exhibits.selection import DEVELOPMENT, FEW, interval
from benchmark.exhibits.table2 import Table2
from benchmark.files import ROOT
from benchmark.runner.options import RunOptions
from datasets.registry import SOURCES
from methods.registry import discover

if TYPE_CHECKING:
    import pandas as pd

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
DATASETS = "lost,msrcv2,birdsong"


def csv_text(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return records as CSV, numbers with two digits."""
    import pandas

    return pandas.DataFrame(records, columns=list(columns)).to_csv(index=False, float_format="%.2f")


def markdown(columns: Sequence[str], aligns: str, rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table. `aligns` has one letter per column: l for words, r for numbers."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (columns, *rows)]
    lines.insert(1, "|" + "|".join("---" if align == "l" else "--:" for align in aligns) + "|")
    return "\n".join(lines)


# Published numbers on real-world tables -------------------------------------------------------------------------------


def inputs_of(options: Realworld.Options, datasets: str | None = None) -> Inputs:
    """Return the reference runs of the real-world tables. Their data need not be on this machine."""
    exhibit = Realworld()
    selection = select(exhibit.profile_for(options), datasets=datasets)
    return Inputs(selection, exhibit.required_runs(selection, options), REFERENCE_RUNS)


@functools.cache
def comparisons(options: Realworld.Options) -> list[Agreement]:
    """Return the published numbers for which there are finished runs."""
    return [one for one in agreements(inputs_of(options), options) if one.values]


def realworld_csv(options: Realworld.Options) -> str:
    """Return every published number with ours."""
    identity = ("source", "table", "method", "ours", "dataset", "model", "metric")
    numbers = ("published_mean", "published_std", "mean", "std", "difference", "low", "high")
    columns = (*identity, *numbers, "how", "verdict", "why", "profile")
    return csv_text([record(one) for one in comparisons(options)], columns)


def agreement_summary() -> str:
    """Return how many published numbers agree per source, and which differ."""
    judged = comparisons(PRINTED)
    rows = []
    for source in dict.fromkeys(one.number["source"] for one in judged):
        cells = [one for one in judged if one.number["source"] == source and one.verdict in ("agrees", "differs")]
        if cells:
            models = ", ".join(dict.fromkeys(one.number["model"].split(" and ")[0] for one in cells))
            methods = ", ".join(dict.fromkeys(method_names(one.number) for one in cells))
            differ = [one for one in cells if one.verdict == "differs"]
            texts = [f"{o.number['method']} on {o.number['dataset']} ({signed(o.difference)})" for o in differ]
            agree = str(len(cells) - len(differ))
            rows.append((source, models, methods, str(len(cells)), agree, ", ".join(texts) or NONE))
    columns = ("source", "network", "methods", "cells", "agree", "differ")
    return f"**{count(judged)}.**\n\n" + markdown(columns, "lllrrl", rows)


def method_names(number: Mapping[str, Any]) -> str:
    """Return the source's name of a method, followed by its name here if that is another one."""
    same = discover().entries[number["ours"]].title.lower() == number["method"].lower()
    return number["method"] + ("" if same else f" (`{number['ours']}`)")


def chosen_summary() -> str:
    """Return one line per source and model whose settings were chosen here."""
    groups: dict[tuple[str, str], list[Agreement]] = {}
    for one in comparisons(CHOSEN):
        groups.setdefault((short_source(one), one.number["model"]), []).append(one)
    datasets = list(dict.fromkeys(one.number["dataset"] for cells in groups.values() for one in cells))
    rows = []
    for (source, model), cells in groups.items():
        inside = sum(one.low <= 0 <= one.high for one in cells)
        differences = [[one.difference for one in cells if one.number["dataset"] == name] for name in datasets]
        means = [signed(sum(values) / len(values)) if values else NONE for values in differences]
        rows.append((source, model, str(len(cells)), str(inside), *means))
    columns = ("source", "network", "cells", "interval contains 0", *(f"mean difference, {name}" for name in datasets))
    return markdown(columns, "llrr" + "r" * len(datasets), rows)


# All methods under one protocol ---------------------------------------------------------------------------------------


@functools.cache
def all_methods_records() -> tuple[Mapping[str, Any], ...]:
    """Return a record per method, dataset and model of `realworld --all-methods`."""
    options = Realworld.Options(all_methods=True)
    records = Realworld().make(inputs_of(options, DATASETS), options).data
    split = [dict(zip(("dataset", "model"), r["dataset"].split(", "), strict=True)) for r in records]
    return tuple({**r, **names} for r, names in zip(records, split, strict=True))


def all_methods_csv() -> str:
    return csv_text(all_methods_records(), ("dataset", "model", "kind", "method", "mean", "std", "n"))


def all_methods_summary() -> str:
    """Return one line per dataset and model: the best method, CEL, its controls and the references."""
    entries = discover().entries
    names = ("cel", "cel-linear", "proden-2v", "proden", "average", "supervised")
    rows = []
    for dataset, model in dict.fromkeys((r["dataset"], r["model"]) for r in all_methods_records()):
        records = [r for r in all_methods_records() if (r["dataset"], r["model"]) == (dataset, model)]
        best = [f"{entries[r['method']].title} {r['mean']:.1f}" for r in records if r["place"] == 1]
        means = {r["method"]: f"{r['mean']:.1f}" for r in records}
        rows.append((SOURCES[dataset].title, model, ", ".join(best), *(means[name] for name in names)))
    columns = ("dataset", "network", "best of the thirteen", *(entries[name].title for name in names))
    return markdown(columns, "lll" + "r" * len(names), rows)


# Choosing settings without true labels --------------------------------------------------------------------------------


def selection_study(folder: Path = SELECTION) -> str:
    """Return the tables of the selection study from the files that `selection --out` has written, if there are any."""
    import pandas

    parts = []
    for name, make in {"settings.csv": rules_table, "between.csv": ways_table}.items():
        if (folder / name).is_file():
            link = f"[results/selection/{name}](../results/selection/{name})"
            parts.append(f"{make(pandas.read_csv(folder / name))}\n\nAll choices: {link}.")
    return "\n\n".join(parts)


def rules_table(picks: pd.DataFrame) -> str:
    """Return one line per rule from the records of `selection`: mean regret by group of datasets, the largest, Spearman."""
    from benchmark.analysis.selection import TITLES, regrets

    picks = picks[picks["method"] != FEW]
    rows = []
    for line in regrets(picks).to_dict("records"):
        means = grouped_regrets(picks[picks["rule"] == line["rule"]])
        spearman = NONE if math.isnan(line["spearman"]) else f"{line['spearman']:.2f}"
        rows.append((TITLES[str(line["rule"])], *means, f"{line['largest']:.1f}", spearman))
    columns = ("rule", *GROUPS, "largest", "Spearman")
    return markdown(columns, "l" + "r" * (len(columns) - 1), rows)


def ways_table(ways: pd.DataFrame) -> str:
    """Return one line per way of choosing a method from the records of `selection --between`: mean regret."""
    rows = [(str(way), *grouped_regrets(group)) for way, group in ways.groupby("way", sort=False)]
    return markdown(("choice of the method", *GROUPS), "l" + "r" * len(GROUPS), rows)


def grouped_regrets(records: pd.DataFrame) -> list[str]:
    """Return the mean regret on each group of datasets, with its bootstrap interval where there are at least six cells."""
    from benchmark.analysis.statistics import stratified_bootstrap_mean

    texts = []
    for names in GROUPS.values():
        regret = records[records["dataset"].isin(names)]["regret"]
        text = f"{regret.mean():.2f}" if len(regret) else NONE
        if len(regret) > 5:
            text += f" ({interval(*stratified_bootstrap_mean([regret.to_numpy()]))})"
        texts.append(text)
    return texts


# Photographs ----------------------------------------------------------------------------------------------------------


@functools.cache
def photograph_records() -> tuple[Mapping[str, Any], ...]:
    """Return the records of Table 2 under the profile `frozen`, best first, with `rank` and `published_rank`."""
    selection, options = select("frozen"), Table2.Options()
    table = Table2().make(Inputs(selection, Table2().required_runs(selection, options), REFERENCE_RUNS), options)
    records = sorted(table.data, key=lambda record: -record["mean"])
    ranked = [r for r in records if "published_mean" in r]
    here = {r["method"]: {"rank": rank} for rank, r in enumerate(ranked, 1)}
    ranked.sort(key=lambda record: -record["published_mean"])
    paper = {r["method"]: {"published_rank": rank} for rank, r in enumerate(ranked, 1)}
    return tuple({**r, **here.get(r["method"], {}), **paper.get(r["method"], {})} for r in records)


def photographs() -> str:
    """Return accuracy and rank of the best method, CEL and the floor, and the paper's."""
    entries, records = discover().entries, photograph_records()
    best = next(r["method"] for r in records if r.get("rank") == 1)
    rows = []
    for r in (r for r in records if r["method"] in (best, "cel", "average")):
        paper = (str(r["rank"]), f"{r['published_mean']:.2f}", str(r["published_rank"])) if "rank" in r else (NONE,) * 3
        rows.append((entries[r["method"]].title, spread(r["mean"], r["std"]), *paper))
    return markdown(("method", "here", "rank", "paper", "rank"), "lrrrr", rows)


def photograph_ranks() -> str:
    """Return accuracy and rank of the methods of the paper, with their ranks there."""
    entries = discover().entries
    ranked = [r for r in photograph_records() if "rank" in r]
    rows = [
        (entries[r["method"]].title, spread(r["mean"], r["std"]), str(r["rank"]), str(r["published_rank"]))
        for r in ranked
    ]
    return markdown(("method", "here", "rank", "rank in the paper"), "lrrr", rows)


def quick_table() -> str:
    """Return Table 2 of the profile `quick` as its command writes it."""
    selection, options = select("quick"), Table2.Options()
    inputs = Inputs(selection, Table2().required_runs(selection, options), REFERENCE_RUNS)
    return to_markdown(Table2().make(inputs, options)).rstrip()


def floor_note(folder: Path = SELECTION) -> str:
    """Return the test accuracy of Average at the best setting of its grid: the floor must not be low for lack of tuning."""
    import pandas

    if not (folder / "settings.csv").is_file():
        return ""
    picks = pandas.read_csv(folder / "settings.csv")
    floors = picks[(picks["method"] == "average") & picks["dataset"].isin(GROUPS["development sets"])]
    best = floors.drop_duplicates("dataset").set_index("dataset")["best"]
    texts = [f"{SOURCES[name].title} {best[name]:.1f}" for name in GROUPS["development sets"] if name in best]
    return f"Average at the learning rate that is best on test rows (tuning seeds): {', '.join(texts)}."


PARTS = {  # marker in docs/evidence.md -> its content
    "realworld": agreement_summary,
    "chosen": chosen_summary,
    "all-methods": all_methods_summary,
    "selection": selection_study,
    "photographs": photograph_ranks,
}
FILES = {  # in docs/tables
    "realworld.csv": lambda: realworld_csv(PRINTED),
    "realworld-chosen.csv": lambda: realworld_csv(CHOSEN),
    "realworld-all.csv": all_methods_csv,
}
