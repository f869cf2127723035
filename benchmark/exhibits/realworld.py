"""Published real-world tables beside ours: every number with its difference, interval and verdict.

Each source is a profile of its own; see benchmark/analysis/agreement.py for the verdicts and results/published for the
numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmark.analysis.table import NONE, Cell, Row, Table, row
from benchmark.config.profile import load_profile
from benchmark.errors import UsageError, did_you_mean
from benchmark.exhibits.base import Exhibit, Material, Need
from benchmark.flags import flag

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmark.analysis.agreement import Agreement
    from benchmark.config.selection import Selection
    from benchmark.config.spec import RunSpec
    from benchmark.runner.options import RunOptions

SOURCES = ("f25", "k25", "p20", "v21", "l21", "l21-mlp", "x23", "l21-fashion")
USUAL_SOURCES = "f25,k25,p20,v21,l21-fashion"  # the others do not publish their learning rates
USUAL_SETS = ("lost", "msrcv2", "birdsong")
PICTURES = "fashion-mnist"  # of l21-fashion: takes part when its files or runs are there
SHORT_SOURCES, SHORT_SETS = "p20", ("lost", "msrcv2")


class Realworld(Exhibit):
    name, title, kind = "realworld", "the published real-world tables", "table"
    profile = "realworld"

    @dataclass(frozen=True)
    class Options:
        sources: str = flag(USUAL_SOURCES, f"comma list of {', '.join(SOURCES)}", metavar="A,B")
        short: bool = flag(False, "one source and two data sets, minutes")

    def usual(self, selection: Selection, place: RunOptions) -> Selection:
        """The three sets that most sources have, and any other whose file is there, or whose runs are (pictures)."""
        names = (*selection.datasets, PICTURES)
        found = {name for name in names if selection.source(name).find(place.data).status == "found"}
        if (place.results / "runs" / f"realworld-{SOURCES[-1]}").is_dir():
            found.add(PICTURES)
        return replace(selection, datasets=tuple(name for name in names if name in found or name in USUAL_SETS))

    def runs(self, selection: Selection, options: Options) -> Need:
        need = Need()
        for part in parts(selection, options):
            need.add(part.specs)
        return need

    def make(self, material: Material, options: Options) -> Table:
        made = table(agreements(material, options))
        missing = without_number(material.selection, options)
        notes = [f"Left out, because these sources print no number for them: {', '.join(missing)}."] if missing else []
        caption = f"{made.caption} Device {material.contents.device}."
        return material.annotated(replace(made, caption=caption, notes=(*made.notes, *notes)))

    def figure(self, material: Material, options: Options) -> Figure | None:
        """Draw the numbers of the table that both sides have, or nothing without finished runs."""
        from benchmark.exhibits.parts.agreement import draw

        drawn = [one for one in agreements(material, options) if len(one.values) > 1]
        drawn = [one for one in drawn if not math.isnan(one.printed["mean"])]
        return draw(drawn) if drawn else None


@dataclass(frozen=True)
class Part:
    """One source: its numbers, as far as the command line leaves them, and the runs that regenerate them."""

    selection: Selection
    specs: list[RunSpec]
    cells: set[tuple[str, str]]  # method here, data set as printed


def parts(selection: Selection, options: Realworld.Options) -> list[Part]:
    """One per source. Cells whose number is left open take part when their method is named, by our name or the source's."""
    from benchmark.analysis import published

    words = SHORT_SOURCES if options.short else options.sources
    own = selection.profile
    sets = (*USUAL_SETS, PICTURES) if selection.datasets == own.datasets else selection.datasets
    if options.short and {*USUAL_SETS} <= {*sets}:  # nobody named others
        sets = SHORT_SETS
    found = []
    for word in filter(None, (word.strip() for word in words.split(","))):
        if word not in SOURCES:
            raise UsageError(f"--sources: unknown '{word}'.{did_you_mean(word, SOURCES)} Known: {', '.join(SOURCES)}.")
        profile = load_profile(f"realworld-{word}")
        here = tuple(name for name in profile.datasets if name in sets)
        titles = {name: selection.source(name).title for name in here}
        printed = [number for number in published.of_profile(profile.name) if number["dataset"] in titles.values()]
        if selection.methods == own.all_methods:
            printed = [number for number in printed if not math.isnan(number["mean"])]
        else:
            printed = [n for n in printed if {n["ours"], n["method"].lower()} & {*selection.methods}]
        cells = {(number["ours"], number["dataset"]) for number in printed}
        methods = tuple(name for name in profile.all_methods if name in {method for method, _ in cells})
        seeds = profile.seeds if selection.seeds == own.seeds else selection.seeds
        if here and methods:
            chosen = replace(selection, profile=profile, methods=methods, datasets=here, seeds=seeds)
            specs = [spec for spec in chosen.specs() if (spec.method, titles[spec.dataset]) in cells]
            found.append(Part(chosen, specs, cells))
    if not found:
        raise UsageError(
            "None of these methods and data sets has a published number in these sources; see list profiles. "
            "Those that results/published leaves open run when --methods names them."
        )
    return found


def without_number(selection: Selection, options: Realworld.Options) -> list[str]:
    """Return the methods that were named and for which no chosen source has a number."""
    from benchmark.analysis import published

    if selection.methods == selection.profile.all_methods:
        return []
    printed = [
        number for part in parts(selection, options) for number in published.of_profile(part.selection.profile.name)
    ]
    known = {name for number in printed for name in (number["ours"], number["method"].lower())}
    return [name for name in selection.methods if name not in known]


def agreements(material: Material, options: Realworld.Options) -> list[Agreement]:
    """Every published number of the chosen sources with what came out here."""
    from benchmark.analysis import agreement
    from benchmark.runner.status import frame_of

    found = []
    for part in parts(material.selection, options):
        chosen = part.selection
        frame = frame_of(part.specs, material.place.results, {spec.digest: spec.method for spec in part.specs})
        titles = {name: chosen.source(name).title for name in chosen.datasets}
        known = agreement.agreements(chosen.profile.name, frame, titles, chosen.seeds)
        found += [one for one in known if (one.printed["ours"], one.printed["dataset"]) in part.cells]
    return found


def table(found: list[Agreement]) -> Table:
    """One line per number, sources parted by rules."""
    from benchmark.analysis.agreement import count, count_chosen

    rows: list[Row] = []
    for k, one in enumerate(found):
        printed = one.printed
        new = k == 0 or printed["source"] != found[k - 1].printed["source"]
        what = printed["method"] + (", training labels" if printed["metric"] == "train" else "")
        rows.append(
            row(
                printed["source"].split(",")[0] if new else "",
                what,
                printed["dataset"],
                printed["model"],
                spread(printed["mean"], printed["std"]),
                spread(one.mean, one.std)
                + (f" ({len(one.values)}/{one.planned})" if one.verdict == "incomplete" else ""),
                number(one.difference),
                NONE if math.isnan(one.low) else f"{number(one.low)} … {number(one.high)}",
                Cell(one.verdict, bold=one.verdict == "differs"),
                rule=new and k > 0,
            )
        )
    reasons = dict.fromkeys(
        f"{one.printed['source'].split(',')[0]}, {one.printed['method']}: {one.verdict}, {one.why}."
        for one in found
        if one.why
    )
    chosen = count_chosen(found)
    bare = any(math.isnan(one.printed["std"]) and not math.isnan(one.low) for one in found)
    notes = (
        f"{count(found)}.",
        *([f"{chosen}."] if chosen else []),
        "Difference: ours minus theirs. Interval: 95 %; split by split where the rows and values of every split are known "
        "(F25, K25), else from the two means and spreads. A cell agrees when the interval holds 0.",
        "± of ours is the sample deviation over splits; what theirs is stands in results/published.",
        *(["Where no spread is printed, ours stands for both."] if bare else []),
        *reasons,
    )
    complete = all(one.verdict != "incomplete" for one in found)
    caption = "Published accuracies (%) on real-world sets and the same protocol run here."
    columns = ("Source", "Method", "Data set", "Model", "Published", "Ours", "Difference", "95 % interval", "Verdict")
    summary = {"table": "realworld", "agreement": count(found)}
    data = tuple(record(one) for one in found)
    return Table("Real-world tables", caption, columns, tuple(rows), notes, (), data, summary, complete, text_columns=4)


def record(one: Agreement) -> dict[str, Any]:
    """Everything that is known of a cell, in full precision."""
    keys = ("source", "table", "method", "dataset", "model", "split", "metric", "profile", "ours", "accuracy", "spread")
    theirs = {"published_mean": one.printed["mean"], "published_std": one.printed["std"]}
    theirs |= {"published_values": one.printed["values"]}
    ours = {"mean": one.mean, "std": one.std, "values": one.values, "planned": one.planned}
    judged = {"difference": one.difference, "low": one.low, "high": one.high, "how": one.how}
    words = {"verdict": one.verdict, "why": one.why}
    return {**{key: one.printed[key] for key in keys}, **theirs, **ours, **judged, **words}


def number(value: float) -> str:
    return NONE if math.isnan(value) else f"{value:+.2f}".replace("-", "−")


def spread(middle: float, deviation: float) -> str:
    if math.isnan(middle):
        return NONE
    return f"{middle:.2f}±{NONE if math.isnan(deviation) else f'{deviation:.2f}'}"
