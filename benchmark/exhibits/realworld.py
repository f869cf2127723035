"""Real-world tables: published numbers beside ours, or with `--all-methods` all methods under one protocol.

Each source of published numbers is a profile of its own; see `published.agreement` for the verdicts and results/published
for the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmark.analysis.table import Cell, Row, Table, row
from benchmark.config.profile import load_profile
from benchmark.errors import UsageError, did_you_mean
from benchmark.exhibits import realworld_all
from benchmark.exhibits.base import Exhibit, Inputs, RequiredRuns
from benchmark.exhibits.parts.style import canvas, footnote, styled
from benchmark.flags import flag

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmark.analysis.published import Agreement
    from benchmark.config.selection import Selection
    from benchmark.config.spec import RunSpec
    from benchmark.runner.options import RunOptions

SOURCES = ("f25", "k25", "p20", "v21", "l21", "l21-mlp", "x23", "l21-fashion")
USUAL_SOURCES = "f25,k25,p20,v21,l21-fashion"  # the others do not publish their learning rates
USUAL_SETS = ("lost", "msrcv2", "birdsong")
IMAGES = "fashion-mnist"  # of l21-fashion: takes part when its files or runs are there
COLUMNS = ("Source", "Method", "Data set", "Model", "Published", "Ours", "Difference", "95 % interval", "Verdict")


class Realworld(Exhibit):
    name, title, kind = "realworld", "the published real-world tables", "table"
    profile = "realworld"

    @dataclass(frozen=True)
    class Options:
        sources: str = flag(USUAL_SOURCES, f"comma list of {', '.join(SOURCES)}", metavar="A,B")
        all_methods: bool = flag(False, "all methods under one protocol instead of the published numbers")

    def profile_for(self, options: Options) -> str:
        return "realworld-all" if options.all_methods else self.profile

    def default_selection(self, selection: Selection, options: Options, place: RunOptions) -> Selection:
        """Return the three sets that most sources have, and any other whose file is there (or runs, of images)."""
        names = selection.datasets if options.all_methods else (*selection.datasets, IMAGES)
        present = {name for name in names if selection.source(name).find(place.data).status == "found"}
        if (place.results / "runs" / IMAGES).is_dir():
            present.add(IMAGES)
        return replace(selection, datasets=tuple(name for name in names if name in {*present, *USUAL_SETS}))

    def required_runs(self, selection: Selection, options: Options) -> RequiredRuns:
        required = RequiredRuns()
        if options.all_methods:
            if options.sources != USUAL_SOURCES:
                raise UsageError("--sources does not go with --all-methods.")
            for chosen in realworld_all.selections(selection):
                required.add(chosen.specs())
            return required
        for part in parts(selection, options):
            required.add(part.specs)
        return required

    def make(self, inputs: Inputs, options: Options) -> Table:
        if options.all_methods:
            return inputs.with_notes(realworld_all.all_methods_table(inputs))
        table = agreement_table(agreements(inputs, options))
        selection = inputs.selection
        requested = selection.methods if selection.methods != selection.profile.all_methods else ()
        numbers = [number for part in parts(selection, options) for number in part.numbers]
        published_methods = {name for number in numbers for name in (number["ours"], number["method"].lower())}
        others = ", ".join(name for name in requested if name not in published_methods)
        notes = [f"Left out, because these sources print no number for them: {others}."] if others else []
        origin = f"Device {inputs.contents.device}."
        return inputs.with_notes(replace(table, notes=(*table.notes, *notes), origin=origin))

    def figure(self, inputs: Inputs, options: Options) -> Figure | None:
        """Draw the numbers of the table that both sides have; None without finished runs."""
        cells = [] if options.all_methods else agreements(inputs, options)
        cells = [cell for cell in cells if len(cell.values) > 1 and not math.isnan(cell.number["mean"])]
        return agreement_plot(cells) if cells else None


@dataclass(frozen=True)
class Part:
    """Selected numbers of one source, and the runs that regenerate them."""

    selection: Selection
    specs: list[RunSpec]
    numbers: list[dict[str, Any]]  # rows of results/published


def parts(selection: Selection, options: Realworld.Options) -> list[Part]:
    """Return a part per source. Cells without a published number take part when their method is named."""
    from benchmark.analysis import published

    own = selection.profile
    sets = (*USUAL_SETS, IMAGES) if selection.datasets == own.datasets else selection.datasets
    chosen = []
    for word in filter(None, map(str.strip, options.sources.split(","))):
        if word not in SOURCES:
            raise UsageError(f"--sources: unknown '{word}'.{did_you_mean(word, SOURCES)} Known: {', '.join(SOURCES)}.")
        profile = load_profile(f"realworld-{word}")
        datasets = tuple(name for name in profile.datasets if name in sets)
        titles = {name: selection.source(name).title for name in datasets}
        numbers = [number for number in published.of_profile(profile.name) if number["dataset"] in titles.values()]
        if selection.methods == own.all_methods:
            numbers = [number for number in numbers if not math.isnan(number["mean"])]
        else:  # by our name or the source's
            numbers = [n for n in numbers if {n["ours"], n["method"].lower()} & {*selection.methods}]
        cells = {(number["ours"], number["dataset"]) for number in numbers}
        methods = tuple(name for name in profile.all_methods if name in {method for method, _ in cells})
        seeds = profile.seeds if selection.seeds == own.seeds else selection.seeds
        if datasets and methods:
            of_source = replace(selection, profile=profile, methods=methods, datasets=datasets, seeds=seeds)
            specs = [spec for spec in of_source.specs() if (spec.method, titles[spec.dataset]) in cells]
            chosen.append(Part(of_source, specs, numbers))
    if not chosen:
        raise UsageError(
            "None of these methods and datasets has a published number in these sources; see list profiles. "
            "Methods whose numbers are missing in results/published run when --methods names them."
        )
    return chosen


def agreements(inputs: Inputs, options: Realworld.Options) -> list[Agreement]:
    """Return every published number of the chosen sources with our result."""
    from benchmark.analysis import published

    cells = []
    for part in parts(inputs.selection, options):
        names = {part.selection.source(name).title: name for name in part.selection.datasets}
        cells += published.agreements(part.numbers, inputs.runs_of(part.specs), names, part.selection.seeds)
    return cells


def short_source(one: Agreement) -> str:
    return one.number["source"].split(",")[0]


def method_title(one: Agreement) -> str:
    return one.number["method"] + (", training labels" if one.number["metric"] == "train" else "")


def agreement_table(cells: Sequence[Agreement]) -> Table:
    """Build one line per number, sources parted by rules."""
    from benchmark.analysis.published import count
    from benchmark.exhibits.parts.cells import range_text, signed, spread

    rows: list[Row] = []
    for k, one in enumerate(cells):
        number = one.number
        new = k == 0 or number["source"] != cells[k - 1].number["source"]
        done = f" ({len(one.values)}/{one.expected})" if one.verdict == "incomplete" else ""
        rows.append(
            row(
                short_source(one) if new else "",
                method_title(one),
                number["dataset"],
                number["model"],
                spread(number["mean"], number["std"]),
                spread(one.mean, one.std) + done,
                signed(one.difference),
                range_text(one.low, one.high),
                Cell(one.verdict, bold=one.verdict == "differs"),
                rule=new and k > 0,
            )
        )
    # The sources do not print their settings; they were chosen here.
    others = [one for one in cells if one.verdict == "not comparable" and not math.isnan(one.low)]
    inside = sum(one.low <= 0 <= one.high for one in others)
    notes = [f"{count(cells)}."]
    if others:
        notes.append(f"Of {len(others)} cells that are not comparable, {inside} have 0 in their interval nevertheless.")
    notes += [
        "Difference: ours minus theirs. Interval: 95 %; paired by split where the rows and values of every split are known "
        "(F25, K25), otherwise from the two means and deviations. A cell agrees when the interval contains 0.",
        "± of ours is the sample standard deviation over splits; theirs is described in results/published.",
    ]
    if any(math.isnan(one.number["std"]) and not math.isnan(one.low) for one in cells):
        notes.append("Where no deviation is printed, ours is used for both.")
    reasons = (f"{short_source(o)}, {o.number['method']}: {o.verdict}, {o.why}." for o in cells if o.why)
    notes += dict.fromkeys(reasons)
    complete = all(one.verdict != "incomplete" for one in cells)
    caption = "Published accuracies (%) on real-world datasets and those of the same protocol run here."
    summary = {"table": "realworld", "agreement": count(cells)}
    data = [record(one) for one in cells]
    return Table("Real-world tables", caption, COLUMNS, rows, notes, (), data, summary, complete, text_columns=4)


def record(one: Agreement) -> dict[str, Any]:
    """Return all data of a cell, in full precision."""
    keys = ("source", "table", "method", "dataset", "model", "split", "metric", "profile", "ours", "accuracy", "spread")
    return {
        **{key: one.number[key] for key in keys},
        **{f"published_{key}": one.number[key] for key in ("mean", "std", "values")},
        **{key: getattr(one, key) for key in ("mean", "std", "values")},
        "planned": one.expected,
        **{key: getattr(one, key) for key in ("difference", "low", "high", "how", "verdict", "why")},
    }


@styled()
def agreement_plot(cells: Sequence[Agreement]) -> Figure:
    """Draw our accuracy minus the published one with its 95 % interval; cells that differ stand out."""
    from benchmark.analysis.published import count

    figure, grid = canvas(1, 1, 7.5, 1.2 + 0.2 * len(cells))
    axes = grid[0, 0]
    axes.axvline(0, color="#777777", linewidth=0.9)
    for k, one in enumerate(cells):
        reach = None if math.isnan(one.low) else [[one.difference - one.low], [one.high - one.difference]]
        colour = "#D55E00" if one.verdict == "differs" else "#0072B2"
        axes.errorbar(one.difference, k, xerr=reach, color=colour, marker="o", markersize=4, linewidth=1)
    titles = [f"{short_source(o)}  {method_title(o)}, {o.number['dataset']}" for o in cells]
    axes.set_yticks(range(len(cells)), titles, fontsize=7)
    for tick, one in zip(axes.get_yticklabels(), cells, strict=True):
        tick.set_fontweight("bold" if one.verdict == "differs" else "normal")
    axes.set_ylim(len(cells) - 0.4, -0.6)
    axes.set_xlabel("Ours minus published (points), 95 % interval")
    note = count(cells) + ("; those in bold differ" if any(one.verdict == "differs" for one in cells) else "")
    footnote(figure, note)
    return figure
