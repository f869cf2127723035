"""Write results/report.html: the tables that the commands print, with curves and failed runs, of a whole results folder.

The page is one file and loads nothing. Text from result files is escaped by Jinja or embedded as JSON, which the script
shows as text; the content security policy allows only the script and the style that carry the nonce of the page.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import itertools
import json
import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from markupsafe import Markup

from benchmark import store
from benchmark.accuracy import LAST
from benchmark.analysis import comparisons
from benchmark.analysis.contents import MAIN_KINDS, Contents, DatasetInfo, contents_of
from benchmark.analysis.table import NONE, Table, row
from benchmark.config.profile import Profile, load_profile, profile_name, profile_names
from benchmark.config.selection import Selection, as_known, sources_of
from benchmark.config.spec import RunSpec, values_by_source
from benchmark.errors import CandidError, MissingRuns, UsageError
from benchmark.exhibits.curves import titled
from benchmark.exhibits.parts.cells import PUBLISHED_ROW, grid_of
from benchmark.exhibits.parts.panels import metric_title
from benchmark.exhibits.parts.style import Style, styles_of
from benchmark.exhibits.ranks import critical_difference
from benchmark.exhibits.table2 import table2
from benchmark.exhibits.table3 import table3
from benchmark.files import atomic_write, without_paths
from benchmark.store import Store, StoredRun
from datasets.registry import SOURCES
from methods.registry import Catalogue, discover

FOLDER = Path(__file__).parent
METRICS = 16  # in the chart of a profile: test accuracy and the most frequent others
POINTS = 100  # of a curve
QUICK = "Small data and few epochs: this profile shows how the methods behave, not which is better."
LARGEST = 1e12  # a metric beyond it counts as missing: sums of such values overflow


def write_report(results: Path, out: Path, **choice: Any) -> Path:
    """Write the page of what `collect` chooses of a results folder, and return its path."""
    page = render(*collect(results, **choice))
    try:
        atomic_write(out, page)
    except OSError as error:
        raise CandidError(f"{out} cannot be written ({error.strerror}); choose another file with --out.") from None
    return out


def render(views: Sequence[Mapping[str, Any]], cells: Sequence[Mapping[str, Any]]) -> str:
    """Fill the template."""
    data = {"cells": cells, "charts": [view["chart"] for view in views]}
    # Same results, same page; and no text in the results can contain the digest of itself.
    nonce = hashlib.sha256(json.dumps(data).encode()).hexdigest()
    loader = jinja2.FileSystemLoader(FOLDER)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    script = Markup((FOLDER / "page.js").read_text(encoding="utf-8"))
    template = environment.get_template("page.html")
    return template.render(views=views, data=data, nonce=nonce, script=script, published_row=PUBLISHED_ROW)


# runs ---------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ProfileRuns:
    """The runs that count for one profile."""

    profile: Profile
    catalogue: Catalogue
    runs: list[StoredRun]
    frame: pd.DataFrame
    contents: Contents
    notes: list[str]

    def titled(self, label: str) -> str:
        return titled(label, {entry.name: entry.title for entry in self.catalogue.entries.values()})


def collect(
    results: Path,
    profile: str | None = None,
    plugins: Sequence[str] = (),
    methods: Sequence[str] = (),
    reference: str | None = None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Read a results folder into one view per profile and the contents of all dialogs. Tuning runs are left out.

    `reference` is the method that is marked and compared with the others, instead of the usual one.
    """
    catalogue, stored = discover(tuple(plugins)), Store(store.existing_folder(results))
    names = as_known(methods, catalogue.entries.values())
    _require_runs(stored, names, "--methods")
    if reference:
        (reference,) = as_known((reference,), catalogue.entries.values())
        _require_runs(stored, (reference,), "--reference")
    views: list[dict[str, Any]] = []
    cells: list[dict[str, Any]] = []
    for given in [profile] if profile else stored.profiles:
        runs = [run for run in stored.of_profile(given, plugins) if not names or _is_of(run, names)]
        runs, notes = store.of_current_sources(runs, sources_of(plugins))
        if runs:
            data = collect_profile(_definition(given), catalogue, runs)
            if reference:
                data = replace(data, contents=replace(data.contents, reference=reference))
            views.append(view_of(replace(data, notes=[*notes, *data.notes]), cells))
    if not views:
        which = f"no runs of profile {profile_name(profile)}" if profile else "no runs"
        raise CandidError(f"There are {which} in {results}; train some first, for example `./reproduce.sh table2`.")
    return views, cells


def _require_runs(stored: Store, names: Sequence[str], option: str) -> None:
    """Raise UsageError for a name that no stored run has."""
    for name in names:
        if not any(_is_of(run, (name,)) for run in stored.runs):
            methods = ", ".join(sorted({str(run.document.get("method")) for run in stored.runs})) or "none"
            raise UsageError(f"{option}: no run of '{name}' in {stored.results}; there are {methods}.")


def _is_of(run: StoredRun, names: Sequence[str]) -> bool:
    return run.document.get("method") in names or run.document.get("label") in names


def _definition(name: str) -> Profile:
    """Load a profile; an empty one if there is none of that name here."""
    if name in profile_names() or name.endswith(".toml"):
        return load_profile(name)
    return Profile(name, name, (), (), (), (), (), (), {}, {}, (), {})


def collect_profile(profile: Profile, catalogue: Catalogue, runs: list[StoredRun]) -> ProfileRuns:
    """Build the frame and the notes of the runs that count for a profile."""
    frame = store.run_frame(runs)
    frame["reason"] = frame["reason"].map(without_paths)
    contents, specs = _contents(profile, catalogue, frame), []
    for run in runs:
        with contextlib.suppress(ValueError):  # a configuration of another version of the program
            specs.append(RunSpec.from_json(run.document["config"], profile=profile.name, label=run.document["label"]))
    planned = frame[frame["config_digest"].isin([spec.digest for spec in specs])]
    notes = [
        *_notes(profile, contents, frame),
        *comparisons.candidate_notes(planned, specs),
        *comparisons.device_notes(frame),
    ]
    return ProfileRuns(profile, catalogue, runs, frame, contents, notes)


def _contents(profile: Profile, catalogue: Catalogue, frame: pd.DataFrame) -> Contents:
    """Choose what the tables show: of the profile what has runs, then what else has."""
    kinds = {name: (*MAIN_KINDS, "control", "reference").index(e.kind) for name, e in catalogue.entries.items()}
    names = [*profile.with_extensions, *sorted(kinds, key=lambda name: (kinds[name], name))]
    plain, present = frame[frame["label"] == frame["method"]], set(frame["dataset"])
    methods = tuple(name for name in dict.fromkeys(names) if name in set(plain["method"]))
    # Only registered names: one from a results folder must not be read as a path.
    datasets = tuple(name for name in dict.fromkeys((*profile.datasets, *SOURCES)) if name in present and methods)
    seeds = _seeds(profile, frame if plain.empty else plain)
    selection = Selection(profile, catalogue, methods, datasets, seeds, (), profile.extensions)
    contents = contents_of(selection, "unknown")
    unlisted = (DatasetInfo(name, name, "Own") for name in sorted(present - set(datasets)))
    return replace(contents, datasets=(*contents.datasets, *unlisted)).of_runs(frame)


def _seeds(profile: Profile, frame: pd.DataFrame) -> tuple[int, ...]:
    """Return the seeds of the profile and every other one that all cells have; without a definition, all seeds."""
    cells: dict[int, set[tuple[str, str]]] = defaultdict(set)
    for seed, label, dataset in zip(frame["seed"], frame["label"], frame["dataset"], strict=True):
        cells[seed].add((label, dataset))
    every = set().union(*cells.values())
    return tuple(sorted({*profile.seeds, *(s for s, own in cells.items() if own == every or not profile.seeds)}))


def _notes(profile: Profile, contents: Contents, frame: pd.DataFrame) -> list[str]:
    """Say what a reader must know about the runs beyond the notes of the tables."""
    notes = []
    have = {m.name for m in contents.methods} | {d.name for d in contents.datasets}
    absent = [name for name in (*profile.all_methods, *profile.datasets) if name not in have]
    if absent and profile.datasets:
        notes.append(f"Not run yet: {', '.join(absent)}.")
    if not profile.seeds:
        notes.append(f"Profile {profile.name} is not defined here; methods, datasets and seeds are those of the runs.")
    unscored = frame[(frame["status"] == "done") & frame[LAST.key].isna()]["dataset"]
    if len(unscored):
        notes.append(f"Not scored, because the test rows have no true labels: {', '.join(sorted(set(unscored)))}.")
    seeds = sorted(set(frame["seed"]) - set(contents.seeds))
    if seeds:
        notes.append(f"Only in the curves, because not every cell has them: seeds {', '.join(map(str, seeds))}.")
    return notes


# curves -------------------------------------------------------------------------------------------------------------
def chart_of(data: ProfileRuns) -> dict[str, Any]:
    """Collect mean, minimum and maximum over seeds of every metric; failed runs are left out."""
    samples: dict[tuple[str, str, str], list[np.ndarray]] = defaultdict(list)
    for run in data.runs:
        if run.status not in ("failed", "diverged", "oom"):
            results = [record["result"] for record in run.epochs()]
            for name in set().union(*results) - {"lr"}:
                values = np.array([result.get(name) for result in results], dtype=np.float64)
                samples[name, run.document["dataset"], run.document["label"]].append(values)
    counts, seen = Counter(metric for metric, _, _ in samples), {label for _, _, label in samples}
    metrics = sorted(counts, key=lambda name: (name != "test_accuracy", -counts[name], name))[:METRICS]
    methods, datasets = [m.name for m in data.contents.methods], [d.name for d in data.contents.datasets]
    labels = [name for name in methods if name in seen] + sorted(seen - set(methods))
    styles = styles_of(labels)
    return {
        "metrics": [metric_title(name) for name in metrics],
        "datasets": [d.title for d in data.contents.datasets],
        "labels": [{"title": data.titled(label), **_look(label, data.contents, styles[label])} for label in labels],
        "series": [
            [metrics.index(metric), datasets.index(dataset), labels.index(label), points]
            for (metric, dataset, label), seeds in sorted(samples.items())
            if metric in metrics and (points := band(seeds))
        ],
    }


def _look(label: str, contents: Contents, style: Style) -> dict[str, Any]:
    """Say how the chart treats a label: main methods compete, references are always visible, others are hidden at first."""
    kinds = {m.name: "main" for m in contents.main_methods} | {m.name: m.kind for m in contents.other_methods}
    dash = "" if style.line == "-" else " ".join(f"{1.8 * length:g}" for length in style.line[1])
    kind, is_studied = kinds.get(label, "other"), label == contents.reference
    return {"kind": kind, "studied": is_studied, "colour": style.colour, "dash": dash}


def band(seeds: Sequence[np.ndarray]) -> list[list[float]]:
    """Return epoch (from 1), mean, minimum and maximum over seeds, at no more than `POINTS` epochs with values."""
    values = np.full((len(seeds), max(map(len, seeds))), np.nan)
    for line, own in zip(values, seeds, strict=True):
        line[: len(own)] = own
    values[~(np.abs(values) < LARGEST)] = np.nan
    epochs = np.flatnonzero(np.isfinite(values).any(axis=0))
    epochs = epochs[np.unique(np.linspace(0, len(epochs) - 1, min(POINTS, len(epochs))).round().astype(int))]
    values = values[:, epochs]
    lines = zip(epochs + 1, np.nanmean(values, 0), np.nanmin(values, 0), np.nanmax(values, 0), strict=True)
    return [[int(epoch), *(float(f"{value:.4g}") for value in line)] for epoch, *line in lines]


# tables -------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Part:
    """One section of a view: a table, whose cells may open dialogs (by row and column), or an image."""

    heading: str
    table: Table | None = None
    dialogs: Mapping[tuple[int, int], int] = field(default_factory=dict)
    caption: str = ""  # of an image, or in place of one
    image: str = ""


def add_dialogs(table: Table, data: ProfileRuns, cells: list[dict[str, Any]]) -> dict[tuple[int, int], int]:
    """Add a dialog for each cell of an accuracy table that has runs; return their numbers by row and column."""
    runs: dict[tuple[str, str], list[StoredRun]] = defaultdict(list)
    for run in data.runs:
        runs[run.document["label"], run.document["dataset"]].append(run)
    records, numbers = iter(table.data), {}
    first = len(table.columns) - len(data.contents.datasets)
    for i, line in enumerate(table.rows):
        for j in range(first, len(table.columns)) if line.cells[first - 1].text != PUBLISHED_ROW else ():
            record = next(records)
            own = runs[record["label"], record["dataset"]]
            if own:
                numbers[i, j] = len(cells)
                cells.append(dialog_of(record, line.cells[j].text, own, data))
    return numbers


def dialog_of(record: Mapping[str, Any], shown: str, runs: Sequence[StoredRun], data: ProfileRuns) -> dict[str, Any]:
    """Return what a cell shows when it is clicked: its runs with their hashes, settings and the command."""
    ordered = sorted((run.document for run in runs), key=lambda document: document["status"] == "done")
    by_seed = {document["seed"]: document for document in ordered}
    values = {seed: f"{value:.2f}" for seed, value in (record["values"] or record.get("covering_rates", {})).items()}
    settings = values_by_source(ordered[-1]["config"], ordered[-1].get("provenance") or {})
    return {
        "title": f"{data.titled(record['label'])} on {data.contents.titles[record['dataset']]}",
        "result": shown + interval(record["ci_low"], record["ci_high"]),
        "problems": record["problems"],
        "seeds": [
            [seed, values.get(seed, NONE), d.get("candidates_sha256", ""), d.get("weights_sha256", "")]
            for seed, d in sorted(by_seed.items())
        ],
        "settings": [
            [source, [" ".join(same) for _, same in itertools.groupby(own, lambda value: value.split(".")[0])]]
            for source, own in settings.items()
        ],
        "command": command(data, [by_seed[seed] for seed in sorted(by_seed)]),
    }


def interval(low: float, high: float) -> str:
    """Say in which range the mean is; nothing with fewer than two seeds."""
    return (
        ""
        if math.isnan(low) or math.isnan(high)
        else f"; 95 % interval of the mean over seeds: {low:.2f} to {high:.2f}"
    )


def command(data: ProfileRuns, documents: Sequence[Mapping[str, Any]]) -> str:
    """Return the command that trains the runs of a cell again in another folder."""
    first, name = documents[0], data.profile.name
    dataset = first["dataset"]
    if "sha256" in first["config"].get("dataset", {}):
        dataset = first.get("data_file") or f"{dataset}.npz"
    words = ["./reproduce.sh", "run", "--profile", name if name in profile_names() else f"{name}.toml"]
    words += ["--methods", first["method"], "--datasets", dataset]
    words += ["--seeds", ",".join(str(document["seed"]) for document in documents)]
    if first["method"] not in data.catalogue.entries:
        words += ["--plugin", f"{first['method']}.py"]
    for key, value in sorted((first.get("overrides") or {}).items()):
        text = value if isinstance(value, str) else json.dumps(value) if key.startswith("dataset.") else repr(value)
        words += ["--set", f"{key if '.' in key else f'method.{key}'}={text}"]
    return shlex.join([*words, "--results", "elsewhere"])


def view_of(data: ProfileRuns, cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Build the tables and figures of a profile; the dialogs of its tables are added to `cells`."""
    contents, frame = data.contents, data.frame
    accuracy, cost, unfinished = table2(frame, contents), cost_table(data), unfinished_table(data)
    limits = [note for note in accuracy.notes if note == data.profile.beside]  # above the table rather than below it
    accuracy = replace(accuracy, notes=tuple(note for note in accuracy.notes if note not in limits))
    limits += [QUICK] if data.profile.name == "quick" else []
    parts = [Part("Accuracy", accuracy, add_dialogs(accuracy, data, cells))] if accuracy.rows else []
    variants = sorted(set(comparisons.relevant(frame, contents)["label"]) - set(frame["method"]))
    if variants:
        changed = variant_table(data, variants)
        parts.append(Part("Changed settings", changed, add_dialogs(changed, data, cells)))
    main = [m.name for m in contents.main_methods]
    if len(main) > 1:
        reference = contents.reference if contents.reference in main else main[0]
        parts += [Part("Win/tie/loss", table3(frame, replace(contents, reference=reference))), ranks(frame, contents)]
    parts += [Part("Cost", cost)] if cost.rows else []
    parts += [Part("Unfinished runs", unfinished)] if unfinished.rows else []
    return {"name": data.profile.name, "notes": [*limits, *data.notes], "parts": parts, "chart": chart_of(data)}


def variant_table(data: ProfileRuns, labels: Sequence[str]) -> Table:
    """Build the accuracy table of runs with changed settings."""
    grid = grid_of(comparisons.relevant(data.frame, data.contents), data.contents, labels, (), LAST)
    lines = [grid.line(label, {}) for label in labels]
    rows = tuple(row(data.titled(label), *line.cells) for label, line in zip(labels, lines, strict=True))
    records = tuple(record for line in lines for record in line.records)
    caption = "Test accuracy (%) of runs whose settings are not those of the profile; they are not ranked."
    return Table("", caption, ("Run", *(d.title for d in data.contents.datasets)), rows, data=records)


def ranks(frame: pd.DataFrame, contents: Contents) -> Part:
    """Draw the critical-difference diagram, or say why there is none."""
    from matplotlib import rc_context

    try:
        analysis = comparisons.rank_analysis(frame, contents)
        figure = critical_difference(analysis)
    except MissingRuns as error:
        return Part("Average ranks", caption=str(error))
    image, average = io.BytesIO(), analysis.friedman["average_ranks"]
    with rc_context({"svg.hashsalt": "candid"}):  # the same figure gives the same bytes
        figure.savefig(image, format="svg", transparent=True, metadata={"Date": None})
    text = ", ".join(f"{analysis.titles[i]} {average[i]:.2f}" for i in average.argsort(kind="stable"))
    source = "data:image/svg+xml;base64," + base64.b64encode(image.getvalue()).decode()
    return Part("Average ranks", caption=f"1 is the best: {text}.", image=source)


def cost_table(data: ProfileRuns) -> Table:
    """Build the table of time and memory per method and dataset."""
    frame, datasets = data.frame, data.contents.datasets
    done = frame[(frame["status"] == "done") & (frame["label"] == frame["method"])]
    medians = done.groupby(["method", "dataset"])[["seconds_per_epoch", "peak_memory_mb"]].median()
    texts = {key: f"{time:.2f} s, {memory:,.0f} MB".replace("nan", NONE) for key, time, memory in medians.itertuples()}
    methods = (*data.contents.methods, *comparisons.unregistered(frame, data.contents)) if texts else ()
    rows = tuple(row(m.title, *(texts.get((m.name, d.name), NONE) for d in datasets)) for m in methods)
    caption = f"Seconds per epoch and peak memory, medians over finished runs. Device: {data.contents.device}."
    return Table("", caption, ("Method", *(d.title for d in datasets)), rows)


def unfinished_table(data: ProfileRuns) -> Table:
    """List the runs without a result and the reasons."""
    runs = data.frame[data.frame["status"] != "done"].sort_values(["dataset", "label", "seed"])
    runs["epochs"] = [f"{done}/{planned}" for done, planned in zip(runs["epochs_done"], runs["epochs"], strict=True)]
    columns = ["label", "dataset", "seed", "status", "epochs", "reason"]
    rows = tuple(row(*map(str, values)) for values in runs[columns].itertuples(index=False))
    caption = "Rerun the command that trained them to resume."
    return Table("", caption, tuple(map(str.capitalize, columns)), rows, text_columns=len(columns))
