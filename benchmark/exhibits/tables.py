"""Tables 1 to 4 of the paper from our runs, beside the published numbers. Needs pandas and SciPy, not torch.

Every table says what it lacks: a cell with 2 of 3 seeds says 2/3, a comparison without seeds is not a tie, and
`Table.complete` is false.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmark.analysis import published
from benchmark.analysis import statistics as st
from benchmark.analysis.comparisons import (
    ACCURACIES,
    DatasetInfo,
    Measured,
    MethodInfo,
    Plan,
    add_holm,
    check_accuracy,
    compare_runs,
    measure,
    mixture_notes,
    relevant,
    unregistered,
)
from benchmark.analysis.table import Cell, Row, Table, row

NONE = "–"
REFERENCE_MARK, GONE_MARK, OUTSIDE_MARK = "★", "†", "‡"
TEST_NAMES = {
    "paired": "paired t-test by seed",
    "student": "pooled two-sample t-test",
    "welch": "Welch's t-test",
    "wilcoxon": "Wilcoxon's signed-rank test by seed",
}
# Row title as in the paper, label of the runs.
ABLATION = (
    ("L_cls", "cel[alpha=0,beta=0]"),
    ("L_cls + L_cal", "cel[beta=0]"),
    ("L_cls + L_cal + L_pdl", "cel"),
)


# pieces -------------------------------------------------------------------------------------------------------------
def _spread(mean: float, std: float) -> str:
    return f"{mean:.2f}±{NONE if math.isnan(std) else f'{std:.2f}'}"


def _signed(value: float) -> str:
    # Adding zero turns a rounded −0.0 into 0.0.
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")


def _cell_text(cell: Measured) -> str:
    if not cell.n:
        return NONE
    return _spread(cell.mean, cell.std) + ("" if cell.complete else f" ({cell.n}/{cell.expected})")


def _titles(plan: Plan) -> dict[str, str]:
    return {m.name: m.title for m in plan.methods} | {d.name: d.title for d in plan.datasets}


def _seeds(plan: Plan) -> str:
    many = len(plan.seeds)
    return f"{many} seed{'s' if many != 1 else ''} ({', '.join(map(str, plan.seeds))})"


def _test_limits(test: str, n: int, alpha: float) -> str:
    """What the test cannot do at this number of seeds."""
    if n < 2:
        return f"{TEST_NAMES[test]} needs two seeds"
    if test == "wilcoxon":
        least = 2 / 2**n
        never = ", so nothing can be significant" if least >= alpha else ""
        return f"with {n} seeds the least possible p is {least:.3g}{never}"
    if test == "paired":
        return f"with {n} seeds |t| > {st.critical_t(n, alpha):.2f} is needed"
    df = 2 * n - 2
    bound = f"|t| > {_critical(df, alpha):.2f}"
    return f"with {n} seeds each {bound} is needed" + (" at least" if test == "welch" else "")


def _critical(df: int, alpha: float) -> float:
    return st.critical_t(df + 1, alpha)


def ranks_of(means: Mapping[str, float]) -> dict[str, int]:
    """1 for the best and 2 for the second best by mean; equal means share a place; nothing to rank among fewer than two."""
    if len(means) < 2:
        return {}
    levels = sorted({round(v, 9) for v in means.values()}, reverse=True)[:2]
    return {k: levels.index(round(v, 9)) + 1 for k, v in means.items() if round(v, 9) in levels}


def _record(plan: Plan, dataset: str, label: str, cell: Measured, accuracy: str) -> dict[str, Any]:
    low, high = cell.interval
    return {
        "profile": plan.profile,
        "label": label,
        "dataset": dataset,
        "accuracy": accuracy,
        "n": cell.n,
        "expected": cell.expected,
        "mean": cell.mean,
        "std": cell.std,
        "ci_low": low,
        "ci_high": high,
        "values": dict(cell.values),
        "problems": list(cell.problems),
    }


def _beside(cell: Measured, mean: float, std: float) -> tuple[str, dict[str, Any]]:
    """The published number with our difference, flagged where it lies outside our 95 % t interval."""
    fields: dict[str, Any] = {"published_mean": mean, "published_std": std}
    text = _spread(mean, std) if not math.isnan(std) else f"{mean:.2f}"
    if not cell.n:
        return text, {**fields, "difference": math.nan, "published_outside": None}
    low, high = cell.interval
    outside = None if math.isnan(low) else not low <= mean <= high
    mark = OUTSIDE_MARK if outside else ""
    difference = cell.mean - mean
    return f"{text} ({_signed(difference)}{mark})", {**fields, "difference": difference, "published_outside": outside}


def _problem_notes(cells: Mapping[tuple[str, str], Measured], titles: Mapping[str, str]) -> list[str]:
    notes = []
    for (label, dataset), cell in cells.items():
        if cell.problems:
            notes.append(f"{titles.get(label, label)} on {titles.get(dataset, dataset)}: {'; '.join(cell.problems)}.")
    return notes


def _accuracy_caption(plan: Plan, accuracy: str) -> str:
    return (
        f"Test accuracy (%) {ACCURACIES[accuracy]}, mean ± sample standard deviation (divisor n−1) over {_seeds(plan)}. "
        f"Profile {plan.profile}, device {plan.device}."
    )


# Table 1 ------------------------------------------------------------------------------------------------------------
_TABLE1 = (
    ("train", "Train"),
    ("test", "Test"),
    ("size", "Size"),
    ("classes", "Classes"),
    ("rate", "Rate"),
    ("avg_cls", "Avg. CLs"),
)


def table1(
    measured: Sequence[Mapping[str, Any]],
    datasets: Sequence[DatasetInfo],
    *,
    profile: str = "paper",
    folder: Path = published.FOLDER,
) -> Table:
    """Data sets: sizes and candidate labels as measured, beside the published ones.

    `measured` has a dict per data set, with `dataset` (its name) and either `missing` (how to get it) or train, test,
    size, classes, rate, avg_cls, ambiguity (degree) and singletons (share of samples with one candidate).
    """
    printed = {r["dataset"]: r for r in published.load("table1", folder).to_dict("records")}
    by_name = {m["dataset"]: m for m in measured}
    rows, data, notes, complete = [], [], [], True
    previous = None
    for info in datasets:
        ours = by_name.get(info.name, {"missing": "not measured"})
        paper = printed.get(info.published_name or "", {})
        gone = ours.get("missing")
        complete &= not gone
        texts = []
        for key, _ in _TABLE1:
            texts.append(_table1_text(key, ours.get(key), paper.get(key), gone is not None))
            if not gone and key in ("train", "test", "classes") and key in paper and ours.get(key) != paper[key]:
                notes.append(f"{info.title}: the paper prints {paper[key]} for {key}, the files have {ours.get(key)}.")
        extra = [_number(ours.get("ambiguity"), 3), _percent(ours.get("singletons"))]
        rows.append(
            row(info.group if info.group != previous else "", info.title, *texts, *extra, rule=_new(info, previous))
        )
        previous = info.group
        if gone:
            notes.append(f"{info.title} has no numbers: {gone}")
        record = {"dataset": info.name, "group": info.group, **{k: ours.get(k) for k, _ in _TABLE1}}
        record |= {"ambiguity": ours.get("ambiguity"), "singletons": ours.get("singletons"), "missing": gone}
        data.append(record | {f"published_{k}": paper.get(k) for k, _ in _TABLE1})
    caption = (
        f"Table 1. Data sets of profile {profile}, as measured; published values in parentheses where the paper has them. "
        "Avg. CLs: candidate labels per training sample. Ambiguity: the largest probability with which a wrong label "
        "comes along with the true one. Singletons: training samples with one candidate."
    )
    columns = ("Group", "Data set", *(title for _, title in _TABLE1), "Ambiguity", "Singletons")
    summary = {"table": "table1", "profile": profile}
    return Table(caption, columns, tuple(rows), tuple(notes), tuple(data), summary, complete, text_columns=2)


def _new(info: DatasetInfo, previous: str | None) -> bool:
    return previous is not None and info.group != previous


def _number(value: Any, digits: int) -> str:
    return NONE if value is None or (isinstance(value, float) and math.isnan(value)) else f"{value:.{digits}f}"


def _percent(value: Any) -> str:
    return NONE if value is None else f"{100 * value:.1f} %"


def _table1_text(key: str, ours: Any, paper: Any, gone: bool) -> str:
    def show(value: Any) -> str:
        if value is None:
            return NONE
        if key == "size":
            return f"{value}×{value}" if isinstance(value, int | float) else str(value)
        return f"{value:.2f}" if key == "avg_cls" else f"{value:g}" if key == "rate" else str(value)

    if paper is None:
        return NONE if gone else show(ours)
    if gone:
        return f"({show(paper)})"
    return show(ours) if show(ours) == show(paper) and key != "avg_cls" else f"{show(ours)} ({show(paper)})"


# Table 2 ------------------------------------------------------------------------------------------------------------
def table2(
    runs: pd.DataFrame,
    plan: Plan,
    *,
    reference: str = "cel",
    accuracy: str = "accuracy",
    test: str = "paired",
    alpha: float = 0.05,
    show_published: bool | None = None,
    folder: Path = published.FOLDER,
) -> Table:
    """Accuracy of every method on every data set; the paper's number beside it for profile `paper`."""
    check_accuracy(accuracy)
    runs = relevant(runs, plan)
    gone = unregistered(runs, plan)
    sections = [[m for m in plan.main_methods if m.kind == kind] for kind in ("IDPLL", "PLL")]
    sections += [list(plan.other_methods), list(gone)]
    shown = [m for section in sections for m in section]
    cells = {(m.name, d.name): measure(runs, plan, d.name, m.name, accuracy) for m in shown for d in plan.datasets}
    places = _places(cells, plan)
    beside = plan.profile == "paper" if show_published is None else show_published
    paper = published.accuracies(folder) if beside else {}

    rows: list[Row] = []
    data: list[dict[str, Any]] = []
    for section in sections:
        for i, m in enumerate(section):
            mark = f"{REFERENCE_MARK} " if m.name == reference else ""
            title = f"{mark}{m.title}{GONE_MARK if m.kind == 'unregistered' else ''}"
            first = i == 0 or section[i - 1].kind != m.kind
            line: list[str | Cell] = [m.kind if first else "", title]
            below: list[str] = []
            for d in plan.datasets:
                cell, place = cells[m.name, d.name], places.get((m.name, d.name))
                line.append(Cell(_cell_text(cell), bold=place == 1, underline=place == 2))
                record = {
                    "kind": m.kind,
                    "method": m.name,
                    **_record(plan, d.name, m.name, cell, accuracy),
                    "place": place,
                }
                number = paper.get((m.title.lower(), d.published_name or ""))
                if number:
                    text, fields = _beside(cell, *number[:2])
                    below.append(text)
                    record |= fields
                else:
                    below.append("")
                data.append(record)
            rows.append(row(*line, rule=i == 0 and bool(rows)))
            if any(below):
                rows.append(row("", "  published", *below))

    wanted = [cells[m.name, d.name] for m in plan.methods for d in plan.datasets]
    complete = all(c.complete for c in wanted)
    titles = _titles(plan)
    notes = _table2_notes(complete, gone, beside and bool(paper), reference, titles)
    notes += mixture_notes(runs[runs["label"] == runs["method"]]) + _problem_notes(cells, titles)
    caption = (
        f"Table 2. {_accuracy_caption(plan, accuracy)} Best in bold, second best underlined, among PLL and IDPLL methods with all "
        f"seeds. Differences are tested in Table 3 ({TEST_NAMES[test]}, {alpha:g}): {_test_limits(test, len(plan.seeds), alpha)}."
    )
    summary = {
        "table": "table2",
        "profile": plan.profile,
        "device": plan.device,
        "accuracy": accuracy,
        "std": "sample (ddof=1)",
        "seeds": list(plan.seeds),
        "test": test,
        "alpha": alpha,
        "reference": reference,
        "cells_done": sum(c.complete for c in wanted),
        "cells": len(wanted),
    }
    columns = ("Type", "Method", *(d.title for d in plan.datasets))
    return Table(caption, columns, tuple(rows), tuple(notes), tuple(data), summary, complete, text_columns=2)


def _places(cells: Mapping[tuple[str, str], Measured], plan: Plan) -> dict[tuple[str, str], int]:
    places = {}
    for d in plan.datasets:
        means = {m.name: cells[m.name, d.name].mean for m in plan.main_methods if cells[m.name, d.name].complete}
        places.update({(name, d.name): place for name, place in ranks_of(means).items()})
    return places


def _table2_notes(
    complete: bool, gone: Sequence[MethodInfo], beside: bool, reference: str, titles: Mapping[str, str]
) -> list[str]:
    notes = []
    if reference in titles:
        notes.append(f"{REFERENCE_MARK} the method under study, {titles[reference]}.")
    if not complete:
        notes.append(f"Incomplete: k/n is the number of seeds done, {NONE} means none; such cells are not ranked.")
    if gone:
        names = ", ".join(m.name for m in gone)
        notes.append(f"{GONE_MARK} no longer registered ({names}): shown from stored runs, not ranked.")
    if beside:
        notes.append(
            "published: the paper's mean±std (form of its deviation unknown) and, in parentheses, our mean minus its mean; "
            f"{OUTSIDE_MARK} the published mean lies outside the 95 % t interval of our mean."
        )
    return notes


# Table 3 ------------------------------------------------------------------------------------------------------------
def _groups(datasets: Sequence[DatasetInfo]) -> list[str]:
    return list(dict.fromkeys(d.group for d in datasets))


def _counts_text(counts: Any, missing: int = 0) -> str:
    if not int(np.sum(counts)):
        return NONE if missing else "0/0/0"
    return "/".join(str(int(c)) for c in counts) + (f" ?{int(missing)}" if missing else "")


def table3(
    runs: pd.DataFrame,
    plan: Plan,
    *,
    reference: str = "cel",
    test: str = "paired",
    alpha: float = 0.05,
    accuracy: str = "accuracy",
) -> Table:
    """Win/tie/loss of the reference method against every other main method, by group of data sets."""
    check_accuracy(accuracy)
    if reference not in {m.name for m in plan.methods}:
        raise ValueError(
            f"The reference method '{reference}' is not in the table; known are {', '.join(m.name for m in plan.methods)}."
        )
    others = [m for m in plan.main_methods if m.name != reference]
    if not others:
        raise ValueError(f"There is no other method to compare '{reference}' with.")
    records = compare_runs(runs, plan, reference, test, alpha, accuracy)
    shape = (len(others), len(plan.datasets))
    groups = _groups(plan.datasets)
    ids = [groups.index(d.group) for d in plan.datasets]
    counts, missing = st.win_tie_loss(np.reshape([r["outcome"] for r in records], shape), ids)
    adjusted, _ = st.win_tie_loss(np.reshape([r["outcome_holm"] for r in records], shape), ids)
    names = [*groups, "Total"]
    # With one group its line would only repeat the total.
    lines = range(len(names)) if len(groups) > 1 else [len(names) - 1]
    columns = ("", *(m.title for m in others), "Total")
    rows = [
        row(names[g], *map(_counts_text, counts[g], missing[g]), rule=names[g] == "Total" and len(groups) > 1)
        for g in lines
    ]
    rows.append(row("Total, Holm", *map(_counts_text, adjusted[-1], missing[-1])))
    made = sum(r["outcome"] != st.MISSING for r in records)
    titles = _titles(plan)
    caption = (
        f"Table 3. Win/tie/loss of {titles[reference]} against each method: {TEST_NAMES[test]} at {alpha:g} on test accuracy "
        f"{ACCURACIES[accuracy]}, {_seeds(plan)}; {_test_limits(test, len(plan.seeds), alpha)}. "
        f"The last line adjusts for {made} tests by Holm's method. Profile {plan.profile}, device {plan.device}."
    )
    data_runs = relevant(runs, plan)
    notes = _table3_notes(records, titles, test, len(plan.seeds))
    notes += mixture_notes(data_runs[data_runs["label"] == data_runs["method"]])
    summary = {
        "table": "table3",
        "profile": plan.profile,
        "device": plan.device,
        "test": test,
        "alpha": alpha,
        "reference": reference,
        "accuracy": accuracy,
        "seeds": list(plan.seeds),
        "family": made,
        "missing": int(missing[-1, -1]),
        "total": counts[-1, -1].tolist(),
        "total_holm": adjusted[-1, -1].tolist(),
    }
    complete = all(r["n"] == r["expected"] for r in records)
    return Table(caption, columns, tuple(rows), tuple(notes), tuple(records), summary, complete)


def _table3_notes(records: Sequence[Mapping[str, Any]], titles: Mapping[str, str], test: str, seeds: int) -> list[str]:
    def cells(chosen: Sequence[Mapping[str, Any]]) -> str:
        return ", ".join(f"{titles[r['method']]} on {titles[r['dataset']]}" for r in chosen)

    notes = []
    absent = [r for r in records if r["outcome"] == st.MISSING]
    if absent:
        notes.append(
            f"?k and {NONE}: comparisons that could not be made for want of seeds; they are not ties ({cells(absent)})."
        )
    short = [r for r in records if r["outcome"] != st.MISSING and r["n"] < seeds]
    if short:
        notes.append(f"Warning: fewer than {seeds} seeds on both sides: {cells(short)}.")
    flat = [r for r in records if "zero_variance" in r["flags"]]
    if flat:
        notes.append(f"Warning: seeds make no difference in {cells(flat)}; are these runs copies of each other?")
    if test in ("student", "welch"):
        notes.append("The two samples are treated as independent although the runs share seeds.")
    return notes


def table3_from_paper(
    *, test: str = "student", alpha: float = 0.05, std_ddof: int = 1, folder: Path = published.FOLDER
) -> Table:
    """Table 3 derived from the published Table 2, beside the printed one, with the cells that differ."""
    if test not in ("student", "welch"):
        raise ValueError(
            f"The published means and deviations do not allow a {test} test: it needs the runs; use student or welch."
        )
    table, info = published.load("table2", folder), published.load("table1", folder)
    group_of = dict(zip(info["dataset"], info["group"], strict=True))
    ours = table[table["method"] == "CEL"].set_index("dataset")
    others = table[table["method"] != "CEL"].reset_index(drop=True)
    mine = ours.loc[others["dataset"]]
    columns = [frame[c].to_numpy(float) for frame in (mine, others) for c in ("mean", "std", "n")]
    tested = st.unpaired_t(*columns, equal_var=test == "student", std_ddof=std_ddof, alpha=alpha)
    effect = st.hedges_g(*columns)["hedges_g"]
    records: list[dict[str, Any]] = [
        {
            "reference": "CEL",
            "method": r["method"],
            "dataset": r["dataset"],
            "group": group_of[r["dataset"]],
            "mean_difference": columns[0][i] - r["mean"],
            "t": float(tested["t"][i]),
            "df": float(tested["df"][i]),
            "p": float(tested["p"][i]),
            "effect": float(effect[i]),
            "outcome": int(tested["outcome"][i]),
        }
        for i, r in enumerate(others.to_dict("records"))
    ]
    add_holm(records, alpha)
    methods, datasets = list(dict.fromkeys(others["method"])), list(dict.fromkeys(others["dataset"]))
    groups = list(dict.fromkeys(group_of[d] for d in datasets))
    ids = [groups.index(group_of[d]) for d in datasets]
    shape = (len(methods), len(datasets))
    counts, _ = st.win_tie_loss(np.reshape([r["outcome"] for r in records], shape), ids)
    adjusted, _ = st.win_tie_loss(np.reshape([r["outcome_holm"] for r in records], shape), ids)
    printed = published.win_tie_loss(folder)
    rows, notes = [], []
    for g, group in enumerate([*groups, "Total"]):
        derived = dict(zip([*methods, "Total"], counts[g].tolist(), strict=True))
        differs = {m: tuple(derived[m]) != printed[group, m] for m in derived}
        rows.append(row(f"{group}, printed", *(_counts_text(printed[group, m]) for m in derived), rule=g > 0))
        rows.append(row(f"{group}, derived", *(Cell(_counts_text(derived[m]), bold=differs[m]) for m in derived)))
        for m in methods if group != "Total" else ():
            if differs[m]:
                notes.append(_difference_note(m, group, printed[group, m], derived[m], records))
    rows.append(row("Total, Holm", *map(_counts_text, adjusted[-1]), rule=True))
    form = "sample" if std_ddof == 1 else "population"
    caption = (
        f"Table 3 derived from the published Table 2: win/tie/loss of CEL, {TEST_NAMES[test]} at {alpha:g} from mean, std "
        f"(read as the {form} form) and n = 3, beside the printed counts. Where they differ the derived count is bold. "
        f"The last line adjusts for {len(records)} tests by Holm's method."
    )
    total = _counts_text(counts[-1, -1])
    notes.append(f"In all: printed {_counts_text(printed['Total', 'Total'])}, derived {total}.")
    notes.append(
        "Which test the paper used cannot be told: no reading of its Table 2 gives its Table 3, and a two-sided paired test "
        "on those runs is excluded, since it allows 65 wins at most."
    )
    summary = {
        "table": "table3",
        "source": "published Table 2",
        "test": test,
        "alpha": alpha,
        "std_ddof": std_ddof,
        "printed": list(printed["Total", "Total"]),
        "derived": counts[-1, -1].tolist(),
        "derived_holm": adjusted[-1, -1].tolist(),
    }
    head = ("", *methods, "Total")
    return Table(caption, head, tuple(rows), tuple(notes), tuple(records), summary)


def _difference_note(
    method: str, group: str, printed: Sequence[int], derived: Sequence[int], records: Sequence[Mapping[str, Any]]
) -> str:
    tests = ", ".join(
        f"{r['dataset']} t={r['t']:.2f} p={r['p']:.3f}" for r in records if (r["method"], r["group"]) == (method, group)
    )
    return f"{method}, {group}: printed {_counts_text(printed)}, derived {_counts_text(derived)} ({tests})."


# Table 4 ------------------------------------------------------------------------------------------------------------
def table4(
    runs: pd.DataFrame,
    plan: Plan,
    *,
    rows: Sequence[tuple[str, str]] = ABLATION,
    accuracy: str = "accuracy",
    show_published: bool | None = None,
    folder: Path = published.FOLDER,
) -> Table:
    """Ablation: one line per (title, label of the runs), with the average over data sets where all are complete."""
    check_accuracy(accuracy)
    runs = relevant(runs, plan)
    cells = {(label, d.name): measure(runs, plan, d.name, label, accuracy) for _, label in rows for d in plan.datasets}
    averages = {
        label: st.mean([cells[label, d.name].mean for d in plan.datasets])
        for _, label in rows
        if all(cells[label, d.name].complete for d in plan.datasets)
    }
    beside = plan.profile == "paper" if show_published is None else show_published
    paper = published.ablation(folder) if beside else {}
    places = {
        d.name: ranks_of({la: cells[la, d.name].mean for _, la in rows if cells[la, d.name].complete})
        for d in plan.datasets
    }
    average_places = ranks_of(averages)
    lines: list[Row] = []
    data: list[dict[str, Any]] = []
    for title, label in rows:
        line: list[str | Cell] = [title]
        below = []
        for d in plan.datasets:
            cell, place = cells[label, d.name], places[d.name].get(label)
            line.append(Cell(_cell_text(cell), bold=place == 1, underline=place == 2))
            record = {"row": title, **_record(plan, d.name, label, cell, accuracy), "place": place}
            number = paper.get((title, d.published_name or ""))
            text, fields = _beside(cell, *number) if number else ("", {})
            below.append(text)
            data.append(record | fields)
        average, place = averages.get(label, math.nan), average_places.get(label)
        line.append(Cell(_number(average, 2), bold=place == 1, underline=place == 2))
        printed = paper.get((title, "AVERAGE")) if all(d.published_name for d in plan.datasets) else None
        below.append("" if printed is None else _average_beside(average, printed[0]))
        data.append(
            {
                "row": title,
                "profile": plan.profile,
                "label": label,
                "dataset": "AVERAGE",
                "mean": average,
                "place": place,
            }
        )
        lines.append(row(*line))
        if any(below):
            lines.append(row("  published", *below))
    complete = all(c.complete for c in cells.values())
    titles = {d.name: d.title for d in plan.datasets} | {label: title for title, label in rows}
    notes = _table2_notes(complete, (), beside and bool(paper), "", {})
    chosen = runs[runs["label"].isin([label for _, label in rows])]
    notes += mixture_notes(chosen) + _problem_notes(cells, titles)
    caption = (
        f"Table 4. Ablation of CEL. {_accuracy_caption(plan, accuracy)} Average: mean over the data sets, where all are complete. "
        "Best in bold, second best underlined."
    )
    summary = {
        "table": "table4",
        "profile": plan.profile,
        "device": plan.device,
        "accuracy": accuracy,
        "std": "sample (ddof=1)",
        "seeds": list(plan.seeds),
        "rows": [list(r) for r in rows],
    }
    columns = ("Losses", *(d.title for d in plan.datasets), "Average")
    return Table(caption, columns, tuple(lines), tuple(notes), tuple(data), summary, complete)


def _average_beside(ours: float, printed: float) -> str:
    return f"{printed:.2f}" if math.isnan(ours) else f"{printed:.2f} ({_signed(ours - printed)})"
