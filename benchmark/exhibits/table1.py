"""Table 1: the datasets and their candidate labels as measured here, beside the published ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmark.analysis.contents import DatasetInfo
from benchmark.analysis.table import NONE, Table, row
from benchmark.exhibits.base import Exhibit, Inputs, NoFlags, RequiredRuns

if TYPE_CHECKING:
    from benchmark.config.selection import Selection
    from benchmark.runner.options import RunOptions

COLUMNS = {
    "train": "Train",
    "test": "Test",
    "size": "Size",
    "classes": "Classes",
    "rate": "Rate",
    "avg_cls": "Avg. CLs",
}
DOUBTFUL = "(!)"  # the size is as requested, but the annotator is near chance
ANNOTATOR = ("train_accuracy", "test_accuracy", "temperature")


class Table1(Exhibit):
    name, title, kind = "table1", "Table 1", "table"

    def required_runs(self, selection: Selection, options: NoFlags) -> RequiredRuns:
        from benchmark.runner.candidate_sets import set_specs

        return RequiredRuns(sets=set_specs(selection))  # nothing is trained but annotators

    def make(self, inputs: Inputs, options: NoFlags) -> Table:
        measured = measure(inputs.selection, inputs.place)
        return table1(measured, inputs.contents.datasets, inputs.selection.profile.name)


def measure(selection: Selection, place: RunOptions) -> list[dict[str, Any]]:
    """Measure each dataset and its candidate labels, or say how to get it."""
    import torch

    from benchmark.runner.candidate_sets import selected_sets
    from datasets.candidates.candidate_sets import annotator_in_words, quality_warnings, statistics

    rows: list[dict[str, Any]] = []
    for spec, content in selected_sets(selection, place):
        if isinstance(content, str):
            rows.append({"dataset": spec.dataset, "missing": content})
            continue
        dataset, candidates = content
        numbers = statistics(candidates.matrix, dataset.train.labels)
        images, sizes = dataset.train.batch(torch.arange(1))
        if dataset.recipe is None:
            side: Any = f"{images.shape[1]} features"
        else:  # images of many sizes are measured by their views
            side = images.shape[-1] if sizes is None else dataset.recipe.size
        rows.append(
            {
                "dataset": spec.dataset,
                "train": len(dataset.train),
                "test": len(dataset.test),
                "size": side,
                "classes": dataset.num_classes,
                "rate": candidates.meta.get("rate"),  # none where the data bring their own candidates
                "avg_cls": numbers.average_size,
                "ambiguity": numbers.ambiguity,
                "singletons": numbers.singletons,
                **{key: candidates.meta.get(key) for key in ANNOTATOR},
                "annotator": annotator_in_words(candidates),
                "doubts": quality_warnings(candidates),
                "without_truth": numbers.without_truth,
            }
        )
    return rows


def table1(measured: Sequence[Mapping[str, Any]], datasets: Sequence[DatasetInfo], profile: str = "paper") -> Table:
    """Build the table of sizes and candidate labels as measured, beside the published ones.

    `measured` is the result of `measure`: a dict per dataset with its numbers, or with how to get it under `missing`.
    """
    from benchmark.analysis import published

    printed = {r["dataset"]: r for r in published.load("table1").to_dict("records")}
    by_name = {m["dataset"]: m for m in measured}
    rows, data, notes = [], [], []
    group = ""
    for info in datasets:
        ours = by_name.get(info.name, {"missing": "not measured"})
        paper = printed.get(info.title, {})
        missing, doubts = ours.get("missing"), ours.get("doubts", ())
        texts = [_text(key, ours.get(key), paper.get(key), missing is not None) for key in COLUMNS]
        if doubts:
            texts[-1] += f" {DOUBTFUL}"  # beside the size that looks right
        accuracies = [ours[key] for key in ANNOTATOR[:2] if ours.get(key) is not None]
        annotator = "/".join(f"{100 * accuracy:.1f}" for accuracy in accuracies)
        ambiguity = ours.get("ambiguity", math.nan)
        texts.append(NONE if math.isnan(ambiguity) else f"{ambiguity:.3f}")
        texts += [_percent(ours.get("singletons")), f"{annotator} %" if len(accuracies) == 2 else NONE]
        new = info.group != group
        rows.append(row(info.group if new else "", info.title, *texts, rule=new and group != ""))
        group = info.group
        notes += dataset_notes(info.title, ours, paper)
        record = {"dataset": info.name, "group": info.group, **{k: ours.get(k) for k in COLUMNS}}
        record |= {"ambiguity": ours.get("ambiguity"), "singletons": ours.get("singletons"), "missing": missing}
        record |= {f"annotator_{key}": ours.get(key) for key in ANNOTATOR}
        record |= {"warnings": " ".join(doubts)}
        data.append(record | {f"published_{k}": paper.get(k) for k in COLUMNS})
    complete = not any(record["missing"] for record in data)
    caption = (
        "Datasets and their candidate sets, as measured; published values in parentheses. Avg. CLs: mean number of candidate "
        "labels."
    )
    explained = (
        "Ambiguity: the largest probability with which a wrong label is a candidate together with the true one. Singletons: "
        "training rows with one candidate. Annotator: training/test accuracy of the network that draws the candidates.",
    )
    columns = ("Group", "Dataset", *COLUMNS.values(), "Ambiguity", "Singletons", "Annotator")
    summary = {"table": "table1", "profile": profile}
    content = (columns, rows, (*explained, *notes), (), data, summary, complete)
    return Table("Table 1", caption, *content, text_columns=2, origin=f"Profile {profile}.")


def dataset_notes(title: str, ours: Mapping[str, Any], paper: Mapping[Any, Any]) -> list[str]:
    """Explain a line of the table: numbers that differ from the paper's, the annotator, and what is missing."""
    if ours.get("missing"):
        return [f"{title} has no numbers: {ours['missing']}"]
    notes = [
        f"{title}: the paper prints {paper[key]} for {key}, the files have {ours.get(key)}."
        for key in ("train", "test", "classes")
        if key in paper and ours.get(key) != paper[key]
    ]
    notes += [f"{title}: annotator {ours['annotator']}."] if ours.get("annotator") else []
    notes += [f"Warning {DOUBTFUL}: {title}: {doubt}" for doubt in ours.get("doubts", ())]
    if ours.get("without_truth"):
        share = _percent(ours["without_truth"])
        notes.append(f"{title}: {share} of the training rows have candidate sets without the true label.")
    return notes


def _percent(value: Any) -> str:
    return NONE if value is None else f"{100 * value:.1f} %"


def _text(key: str, ours: Any, paper: Any, missing: bool) -> str:
    """Return our value and, in parentheses, a published one that differs."""

    def show(value: Any) -> str:
        if value is None:
            return NONE
        if key == "size":
            return f"{value}×{value}" if isinstance(value, int | float) else str(value)
        return f"{value:.2f}" if key == "avg_cls" else f"{value:g}" if key == "rate" else str(value)

    if paper is None:
        return NONE if missing else show(ours)
    if missing:
        return f"({show(paper)})"
    return show(ours) if show(ours) == show(paper) and key != "avg_cls" else f"{show(ours)} ({show(paper)})"
