"""What the report page shows, as plain data: runs read defensively, cells, comparisons, costs. No torch.

A results folder may come from anybody. Every field of a run is forced into its type here, so that what follows can
rely on it; text is escaped where it enters the page.
"""

from __future__ import annotations

import itertools
import json
import math
import shlex
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmark import store
from benchmark.accuracy import ACCURACIES
from benchmark.analysis import agreement, published
from benchmark.analysis import statistics as st
from benchmark.analysis.comparisons import ALPHA, add_holm, compare_runs, device_notes, devices_in_words, rank_methods
from benchmark.analysis.contents import MAIN_KINDS, MARGIN, REFERENCE, TEST_NAMES, Contents, DatasetInfo, MethodInfo
from benchmark.errors import CandidError, UsageError
from benchmark.exhibits.parts.cells import detectable_text
from benchmark.exhibits.parts.style import Style, style_of, styles_of
from benchmark.exhibits.table2 import table2
from benchmark.exhibits.table4 import ROWS
from benchmark.files import file_name, without_paths
from benchmark.plan.profile import Profile, load_profile, profile_names
from benchmark.plan.resolution import resolve
from benchmark.plan.spec import values_by_source
from benchmark.report.curves import curves
from benchmark.report.scope import Chosen, Documents, Scope, choose, lenders_note, lent
from benchmark.store import SCHEMA, digest_of
from datasets.registry import SOURCES
from methods.registry import Catalogue

TESTS = ("paired", "student", "welch")
MISSING = "true_labels_missing"  # percent of the training rows, in the summary of a run on noisy sets
ARRAY_LIMIT = 1 << 28  # bytes of one array of a candidate file; CIFAR-100 needs 650,000


# runs ---------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Run:
    """One run with every field of the type that it should have."""

    profile: str
    dataset: str
    method: str
    label: str  # the method with its own overrides; those of other sections are in `setting`
    setting: str  # overrides outside the method ("train.epochs=3"), which make another protocol
    seed: int
    identity: str
    digest: str
    candidates: str
    weights: str
    status: str
    reason: str
    epochs: int
    epochs_done: int
    summary: Mapping[str, float]
    cost: Mapping[str, float]
    environment: Mapping[str, str]
    devices: tuple[str, str]  # of all sittings, see store.devices_of
    config: Mapping[str, Any]
    provenance: Mapping[str, Any]
    overrides: Mapping[str, Any]
    finished: str
    folder: store.RunFolder = field(repr=False)
    data_file: str = ""  # of the user's own data
    test_rows: int = 0  # 0: not known

    @property
    def done(self) -> bool:
        return self.status == "done"


def text(value: Any, limit: int = 300) -> str:
    """Any JSON value as a short text."""
    shown = "" if value is None else value if isinstance(value, str) else str(value)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def number(value: Any) -> float:
    """A finite number, or nan."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value) if math.isfinite(value) else math.nan
    except OverflowError:
        return math.nan


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else 0


def read_runs(documents: Documents) -> list[Run]:
    """Every run; of another schema: refused, because its fields may mean something else."""
    schemas = [{"schema": document.get("schema", 0), "path": str(folder.path)} for folder, document in documents]
    if schemas:
        store.check_schema(pd.DataFrame(schemas))
    return [_run(folder, document) for folder, document in documents]


def _run(folder: store.RunFolder, document: dict[str, Any]) -> Run:
    overrides, config = mapping(document.get("overrides")), mapping(document.get("config"))
    status = store.state_of(folder, document)
    method, devices = text(document.get("method")), store.devices_of(document)
    outside = {k: v for k, v in overrides.items() if "." in k}
    inside = {k: v for k, v in overrides.items() if "." not in k}
    label = text(document.get("label")) or method
    if outside:
        label = method + (f"[{_listed(inside)}]" if inside else "")
    return Run(
        profile=text(document.get("profile")),
        dataset=text(document.get("dataset")),
        method=method,
        label=label,
        setting=_listed(outside),
        seed=whole(document.get("seed")),
        identity=text(document.get("identity")),
        digest=text(document.get("config_digest")),
        candidates=text(document.get("candidates_sha256")),
        weights=text(document.get("weights_sha256")),
        status=status,
        reason=without_paths(text(document.get("reason"), 2000)) or ("cut off" if status != document["status"] else ""),
        epochs=whole(mapping(config.get("train")).get("epochs")),
        epochs_done=whole(document.get("epochs_done")),
        summary={k: number(v) for k, v in mapping(document.get("summary")).items()} if status == "done" else {},
        cost={k: number(v) for k, v in mapping(document.get("cost")).items()},
        environment={text(k, 60): text(v) for k, v in mapping(document.get("environment")).items()},
        devices=(text(devices[0]), text(devices[1])),
        config=config,
        provenance=mapping(document.get("provenance")),
        overrides=overrides,
        data_file=text(document.get("data_file"), 200),
        test_rows=whole(document.get("test_rows")),
        finished=text(mapping(document.get("time")).get("finished"), 40),
        folder=folder,
    )


def _listed(overrides: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in sorted(overrides.items()))


# what a page view is ------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class View:
    """One entry of the page's selector: the runs of a profile under the same overrides of its protocol."""

    runs: tuple[Run, ...]
    profile: str
    setting: str
    definition: Profile | None  # None: a profile that is not part of this checkout
    catalogue: Catalogue
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return self.profile + (f" with {self.setting}" if self.setting else "")


def views_of(chosen: Chosen, catalogue: Catalogue, scope: Scope) -> list[View]:
    """Profiles in order of name, each without overrides first. Numbers of two protocols never share a table."""
    grouped: dict[tuple[str, str], list[Run]] = defaultdict(list)
    runs, others = read_runs(chosen.runs), read_runs(chosen.others)
    for run in runs:
        grouped[run.profile, run.setting].append(run)
    if scope.profile_name:
        grouped.setdefault((scope.profile_name, ""), [])  # it may live of what other profiles have done
    views = []
    for (name, setting), own in sorted(grouped.items()):
        definition, notes = definition_of(name, scope.profile), list(chosen.left_out.get(name, ()))
        if definition is not None:
            definition = scope.expects(definition, catalogue)
            foreign = [run for run in (*runs, *others) if run.profile != name]
            borrowed = [] if setting else lent(definition, catalogue, own, foreign)
            own, notes = [*own, *borrowed], [*notes, *lenders_note(foreign, borrowed)]
        if own:
            views.append(View(tuple(own), name, setting, definition, catalogue, tuple(notes)))
    return views


def definition_of(name: str, chosen: str | None) -> Profile | None:
    """The profile of that name; one from a file only if the command line names the file."""
    if chosen is not None and chosen.endswith(".toml") and Path(chosen).stem == name:
        return load_profile(chosen)
    return load_profile(name) if name in profile_names() else None


def contents_of(view: View) -> Contents:
    """Methods, data sets and seeds to show: the profile's as far as they have runs, then whatever else is there."""
    entries = view.catalogue.entries
    have = {run.method for run in view.runs}
    wanted = view.definition.with_extensions if view.definition else ()
    apart = view.definition.extensions if view.definition else ()
    names = [*(n for n in wanted if n in have), *sorted(n for n in have if n not in wanted)]
    methods = tuple(MethodInfo(n, entries[n].title, entries[n].kind, n in apart) for n in names if n in entries)
    kinds = [*MAIN_KINDS, "control", "reference"]
    if view.definition is None:
        methods = tuple(sorted(methods, key=lambda m: kinds.index(m.kind) if m.kind in kinds else len(kinds)))
    present = {run.dataset for run in view.runs}
    sets = view.definition.datasets if view.definition else tuple(SOURCES)
    ordered = [*(n for n in sets if n in present), *sorted(n for n in present if n not in sets)]
    return Contents(
        view.profile,
        methods,
        tuple(dataset_info(name, [run for run in view.runs if run.dataset == name]) for name in ordered),
        seeds_of(view),
        devices_in_words(run.devices for run in view.runs if run.done),
        registered=frozenset(entries),
        beside=view.definition.beside if view.definition else "",
    )


def dataset_info(name: str, runs: Sequence[Run] = ()) -> DatasetInfo:
    """With what its runs had for test rows."""
    # Not registry.get: a name out of a results folder must not be taken for a path.
    source, rows = SOURCES.get(name), max((run.test_rows for run in runs), default=0) or None
    if source is None:
        return DatasetInfo(name, name, "Own", test_rows=rows)
    own = source.split_by_seed and any(mapping(run.config.get("dataset")).get("split") == -1 for run in runs)
    return DatasetInfo(name, source.title, source.group, source.title, rows, own)


def seeds_of(view: View) -> tuple[int, ...]:
    """The profile's seeds and every other seed that all cells have; without a profile, all seeds there are."""
    by_seed: dict[int, set[tuple[str, str]]] = defaultdict(set)
    for run in view.runs:
        if run.label == run.method:
            by_seed[run.seed].add((run.method, run.dataset))
    if view.definition is None:
        return tuple(sorted(by_seed) or sorted({run.seed for run in view.runs}))
    cells = set().union(*by_seed.values()) if by_seed else set()
    extra = [seed for seed, own in by_seed.items() if own == cells and seed not in view.definition.seeds]
    return tuple(sorted({*view.definition.seeds, *extra}))


def outdated(view: View) -> set[str]:
    """Digests of runs whose configuration is not the one that the profile gives today."""
    if view.definition is None or view.setting:
        return set()
    today: dict[tuple[str, str], dict[str, Any]] = {}
    found = set()
    for run in view.runs:
        entry = view.catalogue.entries.get(run.method)
        if entry is None or run.label != run.method or run.dataset not in view.definition.datasets:
            continue
        key = (run.method, run.dataset)
        if key not in today:
            try:
                today[key] = resolve(view.definition, entry, run.dataset, 0).config.to_json()
            except UsageError:
                today[key] = {}
        if today[key] and digest_of({**today[key], "seed": run.seed}) != run.digest:
            found.add(run.digest)
    return found


def frame_of(view: View, old: set[str]) -> pd.DataFrame:
    """The view's runs as tables want them; runs of today's configuration last, because the last of a seed counts."""
    rows = [
        {
            "profile": run.profile, "dataset": run.dataset, "method": run.method, "label": run.label, "seed": run.seed,
            "identity": run.identity, "status": run.status, "reason": run.reason, "epochs": run.epochs,
            "commit": run.environment.get("commit", ""), "code_version": run.environment.get("code_version", ""),
            "schema": SCHEMA, "device_name": run.devices[1],
            **{key: run.summary.get(key, math.nan) for key in (*store.SUMMARY, "train_accuracy")},
        }
        for run in sorted(view.runs, key=lambda run: run.digest not in old)
    ]  # fmt: skip
    return pd.DataFrame(rows)


# sections -----------------------------------------------------------------------------------------------------------
def describe(view: View, results: Path) -> dict[str, Any]:
    """Everything the page shows of one view, but for the curves."""
    contents, old = contents_of(view), outdated(view)
    frame = frame_of(view, old)
    beside = contents.shows_published and not view.setting
    table = table2(frame, contents, show_published=beside)
    gone = sorted({r["method"] for r in table.data if r["kind"] == "unregistered"})
    methods = (*contents.methods, *(MethodInfo(name, name, "unregistered") for name in gone))
    values: dict[tuple[str, str], int] = {}
    cells = [_cell(record, view, values) for record in table.data]
    ranked = [m for m in contents.main_methods if any(c["m"] == m.name and c["complete"] for c in cells)]
    return {
        "title": view.title,
        "profile": view.profile,
        "setting": view.setting,
        "known": view.definition is not None,
        "paper": beside,
        "caption": table.caption,
        "notes": [
            *(verdicts(frame, contents) if beside else []),
            *_view_notes(view, contents, old),
            *device_notes(frame),
            *table.notes,
        ],
        "complete": table.complete and not _absent(view, contents),
        "planned": _planned(view, contents),
        "seeds": list(contents.seeds),
        "epochs": sorted({run.epochs for run in view.runs}),
        "states": Counter(run.status for run in view.runs),
        "newest": max((run.finished for run in view.runs), default=""),
        "reference": REFERENCE,
        "methods": [_method(m, view) for m in methods],
        "datasets": [_dataset(d, view, results) for d in contents.datasets],
        "cells": cells,
        "values": list(values),
        "compare": compare_all(contents.main_methods, contents, cells),
        "evidence": evidence(frame, contents),
        "ranks": ranks(ranked, contents, cells),
        "selection": selection(view, contents),
        "variants": variants(view, contents, cells, beside),
        "cost": costs(view),
        "failures": failures(view),
        "environment": environment(view.runs),
    }


def verdicts(frame: pd.DataFrame, contents: Contents) -> list[str]:
    """How many of a source's numbers agree, and which do not, as `realworld` says it."""
    if contents.profile == "paper":  # whose Table 2 stands beside every cell, without splits that both have
        return []
    titles = {d.name: d.title for d in contents.datasets}
    found = agreement.agreements(contents.profile, frame, titles, contents.seeds)
    notes = [
        f"{one.printed['method']}{' (training labels)' if one.printed['metric'] == 'train' else ''} on "
        f"{one.printed['dataset']} differs from the published {one.printed['mean']:.2f} by {one.difference:+.2f} "
        f"({one.low:+.2f} … {one.high:+.2f})."
        for one in found
        if one.verdict == "differs"
    ]
    judged = any(one.verdict in ("agrees", "differs") for one in found)
    return (
        [f"Published numbers: {agreement.count(found)}; `realworld` has them line by line.", *notes] if judged else []
    )


def _absent(view: View, contents: Contents) -> list[str]:
    """Methods and data sets of the profile that have no run at all."""
    if view.definition is None or view.setting or not view.definition.datasets:
        return []
    have = {m.name for m in contents.methods} | {d.name for d in contents.datasets}
    return [n for n in (*view.definition.all_methods, *view.definition.datasets) if n not in have]


def _planned(view: View, contents: Contents) -> list[int]:
    """Runs of the profile's own grid: done and planned."""
    methods, sets = {m.name for m in contents.methods}, {d.name for d in contents.datasets}
    if view.definition is not None and view.definition.datasets and not view.setting:  # else it is for own data
        methods, sets = set(view.definition.all_methods), set(view.definition.datasets)
    own = {
        (run.method, run.dataset, run.seed)
        for run in view.runs
        if run.done and run.label == run.method and run.method in methods and run.dataset in sets
    }
    return [sum(seed in contents.seeds for _, _, seed in own), len(methods) * len(sets) * len(contents.seeds)]


def _view_notes(view: View, contents: Contents, old: set[str]) -> list[str]:
    notes = list(view.notes)
    absent = _absent(view, contents)
    if absent:
        notes.append(f"Of this profile, nothing has been run yet for {', '.join(absent)}.")
    if view.definition is None:
        notes.append(f"Profile {view.profile} is not part of this checkout; what is expected was read off the runs.")
    if old:
        many = sum(run.digest in old for run in view.runs)
        notes.append(
            f"Warning: {many} run{'s were' if many > 1 else ' was'} made with other values than profile "
            f"{view.profile} has now; table2 would run them again."
        )
    unscored = sorted({run.dataset for run in view.runs if run.done and "accuracy" not in run.summary})
    if unscored:
        notes.append(
            f"Nothing is scored on {', '.join(unscored)}: the test rows have no true labels. Covering rate and approximated "
            f"accuracy on held-out rows are among the curves."
        )
    other = sorted({run.seed for run in view.runs} - set(contents.seeds))
    if other:
        notes.append(f"Seeds {', '.join(map(str, other))} are not in every cell; they are in the curves only.")
    return notes


def _method(method: MethodInfo, view: View) -> dict[str, Any]:
    entry = view.catalogue.entries.get(method.name)
    about = {} if entry is None else {
        "venue": f"{entry.venue} {entry.year}" if entry.year else "", "forwards": entry.forwards, "state": entry.state,
        "views": list(entry.views),
    }  # fmt: skip
    drawn = look(style_of(method.name))
    return {"name": method.name, "title": method.title, "kind": method.kind, "apart": method.apart, **drawn, **about}


def look(style: Style) -> dict[str, Any]:
    return {"colour": style.colour, "dash": [] if style.line == "-" else list(style.line[1])}


def _cell(record: Mapping[str, Any], view: View, values: dict[tuple[str, str], int]) -> dict[str, Any]:
    cell = {
        "m": record["method"], "d": record["dataset"], "n": record["n"], "expected": record["expected"],
        "complete": record["n"] == record["expected"] > 0, "mean": record["mean"], "std": record["std"],
        "low": record["ci_low"], "high": record["ci_high"], "place": record["place"], "leading": record["leading"], "problems": record["problems"],
        "values": [[seed, value] for seed, value in record["values"].items()],
    }  # fmt: skip
    if "published_mean" in record:
        cell |= {
            "published": [record["published_mean"], record["published_std"]],
            "outside": record["published_outside"],
        }
        cell["difference"] = record["difference"]
    runs = [r for r in view.runs if (r.method, r.dataset, r.label) == (record["method"], record["dataset"], r.method)]
    return cell | {"command": command(view, runs), **_evidence(runs, values)} if runs else cell


def _evidence(runs: Sequence[Run], values: dict[tuple[str, str], int]) -> dict[str, Any]:
    """What a doubter needs: digests of every finished run, every value with its source, the command that shows all of it.

    Lines of one source and section are the same in many cells: they stand in `values` once, and a cell has their places.
    """
    first, kept_under = runs[0], runs[0].folder.path.parents[2].name
    words = ["./reproduce.sh", "show", first.method, first.dataset, "--profile", kept_under]
    digests = [[run.seed, run.candidates, run.weights] for run in sorted(runs, key=lambda run: run.seed) if run.done]
    latest = max(runs, key=lambda run: (run.done, run.finished))
    lines = []
    for source, own in values_by_source(latest.config, latest.provenance).items():
        for _, same in itertools.groupby(own, lambda value: value.split(".")[0]):
            line = (text(source), text(" ".join(same), 2000))
            lines.append(values.setdefault(line, len(values)))
    return {"show": " ".join(map(shlex.quote, words)), "digests": digests, "values_of": lines}


def command(view: View, runs: Sequence[Run]) -> str:
    """The command that makes these runs of one method and data set again."""
    first = runs[0]
    words = ["./reproduce.sh", "run", "--profile", view.profile + ("" if view.definition else ".toml")]
    words += ["--methods", first.method, "--datasets", first.dataset]
    if "sha256" in mapping(first.config.get("dataset")):
        words[-1] = first.data_file or f"{first.dataset}.npz"  # the user's own data are named by their path
    words += ["--seeds", ",".join(map(str, sorted({run.seed for run in runs})))]
    if first.method not in view.catalogue.entries:
        words += ["--plugin", f"{first.method}.py"]
    for key, value in sorted(first.overrides.items()):
        words += ["--set", f"{key if '.' in key else f'method.{key}'}={_typed(key, value)}"]
    return " ".join(map(shlex.quote, words))


def _typed(key: str, value: Any) -> str:
    """A value as `--set` reads it: JSON for a data set's own settings, Python for the others."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if key.startswith("dataset.") else repr(value)


# comparisons --------------------------------------------------------------------------------------------------------
def compare_all(
    methods: Sequence[MethodInfo], contents: Contents, cells: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Every main method against every other on every data set, by each test; Holm over the comparisons of a row.

    An outcome is a character per data set: W, T, L, or - where it could not be made.
    """
    values = {(c["m"], c["d"]): dict(c["values"]) for c in cells}
    letters = {st.WIN: "W", st.TIE: "T", st.LOSS: "L", st.MISSING: "-"}
    tests: dict[str, Any] = {}
    for test in TESTS:
        rows = []
        pairs = _pairs(methods, contents, values, test)
        for a in methods:
            records = [pairs[a.name, b.name, d.name] for b in methods if b is not a for d in contents.datasets]
            records = [dict(r) for r in records]
            add_holm(records, ALPHA)
            by_pair = iter(np.reshape(np.array(records, dtype=object), (-1, len(contents.datasets))) if records else ())
            row: list[Any] = []
            for b in methods:
                own: list[Any] = [] if b is a else list(next(by_pair))
                row.append(
                    None if b is a else {
                        "o": "".join(letters[r["outcome"]] for r in own),
                        "h": "".join(letters[r["outcome_holm"]] for r in own),
                        "p": [r["p"] for r in own],
                        "x": [r["mean_difference"] for r in own],
                    }
                )  # fmt: skip
            rows.append(row)
        tests[test] = rows
    return {
        "methods": [m.name for m in methods],
        "datasets": [d.name for d in contents.datasets],
        "groups": [d.group for d in contents.datasets],
        "tests": tests,
        "names": {test: TEST_NAMES[test] for test in TESTS},
        "alpha": ALPHA,
    }


def evidence(frame: pd.DataFrame, contents: Contents) -> str:
    """What the reference's ties are, and what its comparisons could have found."""
    if len(contents.main_methods) < 2 or contents.reference not in {m.name for m in contents.main_methods}:
        return ""
    records = compare_runs(frame, contents)
    found = [r["verdict"] for r in records]
    equal, open_ = found.count("equal"), found.count("undecided")
    if not equal + open_:
        return detectable_text(records).strip()
    return (
        f"A tie is not equality. Of the ties of {contents.titles[contents.reference]}, {equal} rule out a difference beyond "
        f"±{MARGIN:g} points and {open_} are undecided (paired t-tests). {detectable_text(records)}"
    ).strip()


def _pairs(
    methods: Sequence[MethodInfo], contents: Contents, values: Mapping[tuple[str, str], dict[int, float]], test: str
) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Each pair is tested once and read from both sides."""
    keys = [(a.name, b.name, d.name) for a, b in itertools.combinations(methods, 2) for d in contents.datasets]
    sides = [(values[a, d], values[b, d]) for a, b, d in keys]
    if test == "paired":
        tested = [st.compare(x, y, test, ALPHA) for x, y in sides]
        outcomes, ps = [c.outcome for c in tested], [c.p for c in tested]
        differences = [c.mean_difference for c in tested]
    else:  # all at once: one by one, SciPy's checks would take longer than everything else on the page
        first, second = (_summary([list(side[k].values()) for side in sides]) for k in (0, 1))
        together = st.unpaired_t(first, second, equal_var=test == "student", alpha=ALPHA)
        outcomes, ps = together["outcome"].tolist(), together["p"].tolist()
        differences = (np.asarray(first.mean) - np.asarray(second.mean)).tolist()
    found = {}
    for (a, b, d), outcome, p, difference in zip(keys, outcomes, ps, differences, strict=True):
        turned = outcome if outcome == st.MISSING else -outcome
        found[a, b, d] = {"outcome": outcome, "p": p, "mean_difference": difference}
        found[b, a, d] = {"outcome": turned, "p": p, "mean_difference": -difference}
    return found


def _summary(samples: Sequence[Sequence[float]]) -> st.Summary:
    measures = (st.mean, st.sample_std, len)
    return st.Summary(*(np.array([measure(sample) for sample in samples]) for measure in measures))


def ranks(methods: Sequence[MethodInfo], contents: Contents, cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the critical-difference diagram needs, or why there is none."""
    by_key = {(c["m"], c["d"]): c for c in cells}
    whole_sets = [d for d in contents.datasets if methods and all(by_key[m.name, d.name]["complete"] for m in methods)]
    dropped = [d.title for d in contents.datasets if d not in whole_sets]
    left_out = [m.title for m in contents.main_methods if m not in methods]
    if len(methods) < 2 or not whole_sets:
        return {"error": "Ranks need two methods and a data set on which all methods have all their seeds."}
    scores = {d.name: {m.name: by_key[m.name, d.name]["mean"] for m in methods} for d in whole_sets}
    found = rank_methods(
        pd.DataFrame.from_dict(scores, orient="index"), {m.name: m.title for m in methods}, REFERENCE, ALPHA
    )
    return {
        "names": list(found.names),
        "average": found.friedman.average_ranks.tolist(),
        "cd": found.friedman.critical_difference,
        "p": found.friedman.p_tie_corrected,
        "bars": found.groups.tolist(),
        "datasets": [d.title for d in whole_sets],
        "dropped": dropped,
        "left_out": left_out,
        "alpha": ALPHA,
    }


def selection(view: View, contents: Contents) -> list[dict[str, Any]]:
    """Mean accuracy by each rule for choosing the epoch, over the finished seeds of each cell."""
    grouped = defaultdict(list)
    for run in view.runs:
        if run.done and run.label == run.method and run.seed in contents.seeds:
            short = {rule.key: math.nan for rule in ACCURACIES if run.epochs < rule.fewest}
            grouped[run.method, run.dataset].append({**run.summary, **short})
    return [
        {"m": m, "d": d, "n": len(own), **{k: st.mean([s.get(k, math.nan) for s in own]) for k in store.SUMMARY}}
        for (m, d), own in grouped.items()
    ]


def variants(view: View, contents: Contents, cells: Sequence[Mapping[str, Any]], beside: bool) -> list[dict[str, Any]]:
    """Runs of a method with values of its own changed: ablations and sensitivity, beside the unchanged method."""
    base = {(c["m"], c["d"]): c["mean"] for c in cells}
    printed = published.ablation() if beside else {}
    titles = {label: title for title, label in ROWS if label != REFERENCE}
    grouped: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in view.runs:
        if run.label != run.method:
            grouped[run.label, run.dataset].append(run)
    found = []
    for (label, dataset), own in sorted(grouped.items()):
        values = {
            run.seed: run.summary.get("accuracy", math.nan) for run in own if run.done and run.seed in contents.seeds
        }
        mean = st.mean(list(values.values()))
        there = printed.get((titles.get(label, ""), dataset_info(dataset).title))
        found.append(
            {
                "label": label, "m": own[0].method, "d": dataset, "title": titles.get(label, ""), "n": len(values),
                "expected": len(contents.seeds), "mean": mean, "std": st.sample_std(list(values.values())),
                "gain": mean - base.get((own[0].method, dataset), math.nan), "values": list(map(list, values.items())),
                "published": list(there) if there else None, "command": command(view, own), **look(style_of(label)),
            }
        )  # fmt: skip
    return found


# cost, failures, environment ----------------------------------------------------------------------------------------
def costs(view: View) -> list[dict[str, Any]]:
    """Medians over finished runs, by method and data set."""
    keys = ("seconds_per_epoch", "images_per_second", "peak_memory_mb", "parameters")
    grouped: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in view.runs:
        if run.done and run.label == run.method:
            grouped[run.method, run.dataset].append(run)
    return [
        {"m": m, "d": d, "n": len(own), "devices": sorted({run.devices[1] for run in own}),
         "epochs": own[0].epochs, **{key: _median(run.cost.get(key, math.nan) for run in own) for key in keys}}
        for (m, d), own in sorted(grouped.items())
    ]  # fmt: skip


def _median(values: Iterable[float]) -> float:
    known = [v for v in values if not math.isnan(v)]
    return float(np.median(known)) if known else math.nan


def failures(view: View) -> list[dict[str, Any]]:
    """Every run that is not done, with its reason."""
    return [
        {"label": run.label, "m": run.method, "d": run.dataset, "seed": run.seed, "status": run.status,
         "reason": run.reason, "epochs_done": run.epochs_done, "epochs": run.epochs, "command": command(view, [run])}
        for run in view.runs
        if not run.done
    ]  # fmt: skip


def environment(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """What the runs say about machine and code, each value with its number of runs."""
    keys = dict.fromkeys(
        ["device", "device_name", "python", "torch", "torchvision", "numpy", "platform", "commit", "code_version"]
    )
    found = []
    for key in keys:
        counts = Counter(run.environment.get(key, "") for run in runs)
        values = [[value or "unknown", many] for value, many in counts.most_common(8)]
        found.append({"key": key, "values": values, "more": max(0, len(counts) - 8)})
    return found


# data cards ---------------------------------------------------------------------------------------------------------
def _dataset(info: DatasetInfo, view: View, results: Path) -> dict[str, Any]:
    """A data set with its protocol and the candidate files that its runs were trained on."""
    runs = [run for run in view.runs if run.dataset == info.name]
    source = SOURCES.get(info.name)
    sections = {key: mapping(runs[0].config.get(key)) for key in ("dataset", "train", "backbone", "annotator")}
    data, settings = sections["dataset"], mapping(sections["dataset"].get("settings"))
    sums = {run.candidates for run in runs}
    printed = {r["dataset"]: r for r in published.load("table1").to_dict("records")} if view.profile == "paper" else {}
    row = printed.get(info.title)
    return {
        "name": info.name,
        "title": info.title,
        "group": info.group,
        "classes": number(settings.get("classes")) if "classes" in settings else getattr(source, "num_classes", 0),
        "train": number(settings.get("train")) if "train" in settings else getattr(source, "train_size", 0),
        "test": number(settings.get("test")) if "test" in settings else getattr(source, "test_size", 0),
        "generator": text(data.get("generator")),
        "rate": number(data.get("rate")),
        "target": number(data.get("target_size")),
        "noise": number(data.get("noise")),
        "imbalance": number(data.get("imbalance")),
        "without_truth": number(next((run.summary[MISSING] for run in runs if MISSING in run.summary), None)),
        "network": text(sections["backbone"].get("name")) or "the data set's own",
        "recipe": {k: text(sections["train"].get(k), 40) for k in ("epochs", "batch", "schedule", "holdout")},
        "published": None if row is None else {"avg_cls": float(row["avg_cls"]), "rate": float(row["rate"])},
        "candidates": candidate_cards(results, info.name, sums),
        "runs_on": len(sums),
    }


def candidate_cards(results: Path, dataset: str, sums: set[str]) -> list[dict[str, Any]]:
    """Numbers of the stored candidate sets with these checksums; what is not there or not readable is left out."""
    folder = results / "candidates" / file_name(dataset)
    cards = [candidate_card(path, sums) for path in sorted(folder.glob("*.npz")) if "annotator" not in path.name]
    return sorted((card for card in cards if card), key=lambda card: card["seed"])


def candidate_card(path: Path, sums: set[str]) -> dict[str, Any] | None:
    try:
        with zipfile.ZipFile(path) as archive:
            if max(item.file_size for item in archive.infolist()) > ARRAY_LIMIT:
                return None
        with np.load(path, allow_pickle=False) as arrays:
            meta = json.loads(arrays["meta"].tobytes())
            if not isinstance(meta, dict) or meta.get("sha256") not in sums:
                return None
            rows, classes = (int(n) for n in arrays["shape"])
            sizes = _set_sizes(arrays["bits"])
    except (OSError, ValueError, TypeError, KeyError, EOFError, MemoryError, zipfile.BadZipFile):
        return None
    if len(sizes) != rows or not rows:
        return None
    histogram = np.bincount(sizes, minlength=1)[: classes + 1]
    return {
        "seed": whole(meta.get("seed")), "sha256": text(meta.get("sha256"), 64), "rows": rows, "classes": classes,
        "average": float(sizes.mean()), "singletons": float((sizes == 1).mean()), "largest": int(sizes.max()),
        "temperature": number(meta.get("temperature")), "uncalibrated": number(meta.get("uncalibrated_size")),
        "histogram": histogram.tolist(),
    }  # fmt: skip


def _set_sizes(bits: np.ndarray) -> np.ndarray:
    """(N,) set bits of packed rows (N, bytes)."""
    if bits.dtype != np.uint8 or bits.ndim != 2:
        raise ValueError("not a packed matrix")
    ones = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.int64)
    return ones[bits].sum(1)


# all of it ----------------------------------------------------------------------------------------------------------
def collect(results: Path, scope: Scope) -> dict[str, Any]:
    """The content of the page."""
    catalogue, name = scope.catalogue(), scope.profile_name
    views = views_of(choose(results, scope, catalogue), catalogue, scope)
    if not views:
        which = f"no runs of profile {name}" if name else "no runs"
        raise CandidError(f"There are {which} in {results}; train some first, for example `./reproduce.sh table2`.")
    described = [describe(view, results) for view in views]
    # A run that died after an epoch is no curve.
    whole = [[run for run in view.runs if run.status not in ("failed", "diverged", "oom")] for view in views]
    drawn = curves([[(run.label, run.dataset, run.seed, run.folder) for run in runs] for runs in whole])
    for entry, own in zip(described, drawn, strict=True):
        names = own.pop("labels")
        styles = styles_of(names)
        labels = [{"name": label, **look(styles[label])} for label in names]
        entry["curves"] = {**own, "labels": labels}
    rules = [[rule.key, rule.title, rule.colour, rule.mark, rule.legend] for rule in ACCURACIES]
    return {"rules": rules, "views": described}
