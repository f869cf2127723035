"""Which randomness is in ±: the spread of a method's accuracy when one source of it is drawn again and the others stay.

One source at a time, as Bouthillier et al. (MLSys 2021) do: the candidate draw (with the hold-out), initialisation and
order of training, the split into training and test rows; beside them what the seeds of a table move together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmark.analysis.contents import Contents, contents_of
from benchmark.analysis.table import NONE, Row, Table, row
from benchmark.errors import MissingRuns, UsageError
from benchmark.exhibits.base import Exhibit, Material, Need, NoFlags
from benchmark.plan.profile import VARIANCE

if TYPE_CHECKING:
    from benchmark.plan.resolution import Override
    from benchmark.plan.selection import Selection
    from benchmark.plan.spec import RunSpec

LEVELS = tuple(range(6))  # draws of each source, unless --seeds names others
USUAL_METHODS, USUAL_SETS = ("cel", "pico", "proden"), ("digits", "glyphs")
SOURCES = {
    "candidates": "candidate draw, hold-out",
    "training": "initialisation, order, views",
    "split": "split",
    "together": "as a table's seeds",
}
APART = ("candidates", "training", "split")  # those that add up


@dataclass(frozen=True)
class Varied:
    """The runs of one method and data set in which one source varies."""

    method: str
    named: str  # the data set as the command line names it; own data by their path
    source: str
    specs: tuple[RunSpec, ...]

    @property
    def dataset(self) -> str:
        return self.specs[0].dataset


class Variance(Exhibit):
    name, title, kind = "variance", "the table of the sources of ±", "table"
    profile = "quick"  # minutes there; in `paper` it would be weeks, so it is no part of `all`

    def runs(self, selection: Selection, options: NoFlags) -> Need:
        need = Need()
        for varied in plan(selection):
            need.add(varied.specs)
        return need

    def make(self, material: Material, options: NoFlags) -> Table:
        done = material.runs[material.runs["status"] == "done"]
        accuracy = dict(zip(done["config_digest"], done["accuracy"], strict=True))
        parts = plan(material.selection)
        shown = replace(material.selection, datasets=tuple(dict.fromkeys(part.named for part in parts)))
        return table(parts, accuracy, contents_of(shown, material.contents.device))


def plan(selection: Selection) -> list[Varied]:
    """What is varied, method by method and data set by data set; the profile's whole list stands for a few of them."""
    own = selection.profile
    levels = LEVELS if selection.seeds == own.seeds else selection.seeds
    if len(levels) < 3:
        raise UsageError("variance needs three draws of each source or more; write for example --seeds 0,1,2,3,4,5.")
    methods = _few(selection.methods, own.all_methods, [name for name in USUAL_METHODS if name in own.all_methods])
    datasets = _few(selection.datasets, own.datasets, [name for name in USUAL_SETS if name in own.data])
    found = []
    for dataset in datasets:
        for method in methods:
            for source in SOURCES:
                specs = varied(selection, method, dataset, source, levels)
                if specs:
                    found.append(Varied(method, dataset, source, tuple(specs)))
    return found


def _few(chosen: Sequence[str], whole: Sequence[str], usual: Sequence[str]) -> Sequence[str]:
    """What somebody chose; instead of a profile's whole list those that are usual, or its first two."""
    return chosen if tuple(chosen) != tuple(whole) else usual or chosen[:2]


def varied(selection: Selection, method: str, dataset: str, source: str, levels: Sequence[int]) -> list[RunSpec]:
    """One run per level. The first level is the same run for every source; nothing where the data have no such source."""
    from benchmark.plan.resolution import Override

    base = levels[0]
    plain = replace(selection, seeds=(base,)).specs([method], [dataset])[0]
    if source == "together":
        return replace(selection, seeds=tuple(levels)).specs([method], [dataset])
    if source == "training":
        return _kept_apart(
            selection, method, dataset, {k: [Override("data", "seed", str(base))] for k in levels}, levels
        )
    settings: dict[int, list[Override]] = {}
    if source == "candidates":
        if plain.data.generator == "own" and not plain.train.holdout:
            return []
        fixed = [Override("data", "split", str(base))] if plain.data.split < 0 else []
        settings = {k: [Override("data", "seed", str(k)), *fixed] if k != base else [] for k in levels}
    else:
        redraw = selection.source(dataset).redraw
        if plain.data.split < 0:
            settings = {k: [Override("data", "split", str(k))] if k != base else [] for k in levels}
        elif redraw:
            usual = int(plain.config.dataset_settings.get(redraw, 0))
            settings = {k: [Override("dataset", redraw, str(usual + k - base))] if k != base else [] for k in levels}
    return _kept_apart(selection, method, dataset, settings, [base] * len(settings))


def _kept_apart(
    selection: Selection, method: str, dataset: str, settings: Mapping[int, list[Override]], seeds: Sequence[int]
) -> list[RunSpec]:
    """The runs of these overrides and seeds; a plain run of the profile stays the profile's."""
    specs = []
    for (_, extra), seed in zip(settings.items(), seeds, strict=True):
        (spec,) = replace(selection, seeds=(seed,)).specs([method], [dataset], extra=extra)
        changed = spec.overrides.keys() - {
            o.key if o.scope == "method" else f"{o.scope}.{o.key}" for o in selection.overrides
        }
        specs.append(replace(spec, profile=spec.profile + VARIANCE) if changed else spec)
    return specs


def table(parts: Sequence[Varied], accuracy: Mapping[str, float], contents: Contents) -> Table:
    """A line per method, data set and source, then the sources over all of them."""
    from benchmark.analysis import statistics as st

    values = [[accuracy[s.digest] for s in part.specs if s.digest in accuracy] for part in parts]
    if not any(len(own) > 1 for own in values):
        raise MissingRuns("There is no source with two finished runs; run `variance` without --no-run first.")
    titles = contents.titles
    lines: list[Row] = []
    data: list[dict[str, Any]] = []
    for part, own in zip(parts, values, strict=True):
        beside = [
            v for p, v in zip(parts, values, strict=True)
            if (p.method, p.dataset) == (part.method, part.dataset) and p.source in APART
        ]  # fmt: skip
        record = _record(part.source, [own], beside)
        new = not data or (data[-1]["method"], data[-1]["dataset"]) != (part.method, part.dataset)
        names = (titles[part.dataset], titles[part.method]) if new else ("", "")
        count = f"{len(own)}/{len(part.specs)}" if len(own) < len(part.specs) else str(len(own))
        mean = NONE if not own else f"{st.mean(own):.2f}"
        lines.append(row(*names, SOURCES[part.source], count, mean, *_texts(record), rule=new and bool(data)))
        both = {"method": part.method, "dataset": part.dataset}
        data.append({**both, **record, "mean": st.mean(own), "values": own, "planned": len(part.specs)})
    if len({(part.method, part.dataset) for part in parts}) > 1:
        for k, source in enumerate(SOURCES):
            groups = [v for p, v in zip(parts, values, strict=True) if p.source == source]
            record = _record(source, groups, [v for p, v in zip(parts, values, strict=True) if p.source in APART])
            runs = str(sum(map(len, groups)))
            first = ("all", "all") if k == 0 else ("", "")
            lines.append(row(*first, SOURCES[source], runs, NONE, *_texts(record), rule=k == 0))
            data.append({"method": "all", "dataset": "all", **record})
    caption = (
        "Spread of the test accuracy (points, sample standard deviation) when one source of randomness is drawn again and "
        "the others stay, with the 95 % interval of the true spread, and the source's share of the three variances. "
        f"Profile {contents.profile}, device {contents.device}."
    )
    lacking = sorted({titles[p.dataset] for p in parts} - {titles[p.dataset] for p in parts if p.source == "split"})
    notes = [
        "Sources are varied one at a time around one run, so a share also holds what the source does together with others. "
        "Where the split is drawn again its candidates are too: they belong to the rows.",
        "as a table's seeds: everything that a table's seed moves at once; a split that all seeds share stays.",
        "all: variances averaged over methods and data sets.",
        *([f"No other split to draw: {', '.join(lacking)}."] if lacking else []),
    ]
    complete = all(len(own) == len(part.specs) for own, part in zip(values, parts, strict=True))
    if not complete:
        notes.append(f"Incomplete: k/n is the number of draws done, {NONE} means too few.")
    columns = ("Data set", "Method", "Source", "Draws", "Mean", "Std", "95 %", "Share")
    summary = {"table": "variance", "profile": contents.profile, "device": contents.device}
    return Table("Variance", caption, columns, tuple(lines), tuple(notes), (), tuple(data), summary, complete, 3)


def _record(source: str, groups: Sequence[Sequence[float]], beside: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Pooled spread of groups of draws, and its share among the sources that add up; nan where there is too little."""
    from benchmark.analysis import statistics as st

    spread, low, high = st.pooled_std([g for g in groups if len(g) > 1])
    known = [st.sample_std(g) ** 2 for g in beside if len(g) > 1]
    share = math.nan
    if source in APART and len(known) == len(beside) and sum(known) > 0:
        share = sum(st.sample_std(g) ** 2 for g in groups) / sum(known)
    return {"source": source, "std": spread, "low": low, "high": high, "share": share}


def _texts(record: Mapping[str, Any]) -> tuple[str, str, str]:
    if math.isnan(record["std"]):
        return NONE, NONE, NONE
    share = NONE if math.isnan(record["share"]) else f"{100 * record['share']:.0f} %"
    return f"{record['std']:.2f}", f"{record['low']:.2f} – {record['high']:.2f}", share
