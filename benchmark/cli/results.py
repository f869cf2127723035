"""`status`, `list`, `report`, `export` and `verify`: what a results folder holds."""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmark import store
from benchmark.cli import options as shared
from benchmark.cli.options import OneOf, Options, run_options, selection_of
from benchmark.errors import COMPLETE, FAILED, INCOMPLETE, CandidError, UsageError, warn
from benchmark.files import check_out, refuse_links, without_paths
from datasets.base import UNKNOWN, DataError, plural

if TYPE_CHECKING:
    import pandas

    from benchmark.verify import Report

Rows = list[dict[str, Any]]


# status ---------------------------------------------------------------------------------------------------------------
@click.command
@shared.selection
@shared.results_to_read
def status(**options: Any) -> int:
    """Show which runs are done, running, missing and failed."""
    from benchmark.config.profile import load_profile, profile_name

    results, profile = options["results"], options["profile"]
    stored = store.Store(results)
    if profile and profile_name(profile) not in stored.profiles:
        load_profile(profile)  # an unknown name without any run is a typing error
    for name in [profile] if profile else sorted({*stored.profiles, "quick"}):
        for title, runs, missing in (
            (name, stored.of_profile(name), _missing(name, options, stored)),
            (f"{name}, tuning", stored.tuning_runs(name), 0),
        ):
            counts = {**Counter(run.status for run in runs), "missing from table2": missing}
            counted = ", ".join(f"{n} {state}" for state, n in counts.items() if n)
            if counted or title == name:
                print(f"{title}: {counted or 'nothing yet'}")
            _print_unfinished(runs)
    annotators = list(store.annotators(results))  # the clean-label networks behind candidate sets
    if annotators:
        counts = Counter(run.status for run in annotators)
        print("annotators: " + ", ".join(f"{n} {status}" for status, n in counts.items()))
        _print_unfinished(annotators)
    return COMPLETE


def _print_unfinished(runs: Sequence[store.StoredRun]) -> None:
    from benchmark.runner.progress import progress_words

    for run in runs:
        document = run.document
        head = f"  {document['dataset']} {document['label']} seed {document['seed']}"
        if run.status == "running":
            print(f"{head}: {progress_words(run, run.is_tuning)} on {document['time'].get('host', '?')}")
        elif run.status != "done":
            print(f"{head}: {run.status}{': ' + document['reason'] if document.get('reason') else ''}")


def _missing(profile: str, options: Options, stored: store.Store) -> int:
    """Return how many runs of the profile's own table were never started."""
    try:
        return stored.status(selection_of(options, profile).specs()).count("missing")
    except UsageError:
        return 0  # the profile of runs from elsewhere is not on this machine


# list -----------------------------------------------------------------------------------------------------------------
ONLY_IN_JSON = ("how", "file", "config")  # `how` follows its line


def list_methods(options: Options) -> Rows:
    from methods.registry import MethodError, discover

    try:
        catalogue = discover(options["plugins"])
    except MethodError as error:
        raise UsageError(str(error)) from None
    for reason in catalogue.broken.values():
        warn(reason)
    order = {"IDPLL": 0, "PLL": 1, "control": 2, "reference": 3}
    return [
        {
            "name": e.name,
            "title": e.title,
            "kind": e.kind,
            "venue": f"{e.venue} {e.year}" if e.year else "–",
            "views": "+".join(e.views),
            "file": str(e.file),
            "config": {key: {"type": s.annotation, "default": s.default} for key, s in e.config.items()},
        }
        for e in sorted(catalogue.entries.values(), key=lambda e: (order.get(e.kind, 4), e.name))
    ]


def list_datasets(options: Options) -> Rows:
    from datasets.registry import SOURCES

    rows = []
    for source in SOURCES.values():
        sizes = {"classes": source.num_classes, "train": source.train_size, "test": source.test_size}
        row: dict[str, Any] = {"name": source.name, "title": source.title, "group": source.group}
        row |= {key: size or "–" for key, size in sizes.items()}
        availability = source.find(options["data"])
        row |= {key: getattr(availability, key) for key in ("status", "detail", "how")}
        rows.append(row)
    return rows


def list_generators(options: Options) -> Rows:
    from datasets.candidates.generators import GENERATORS

    return [{"name": entry.name, "rule": entry.sentence} for entry in GENERATORS.values()]


def list_profiles(options: Options) -> Rows:
    from benchmark.config.profile import load_profile, profile_names

    rows = []
    for p in map(load_profile, profile_names()):
        size = f"{len(p.methods)} methods × {len(p.datasets)} datasets × {len(p.seeds)} seeds"
        extra = f"+ {len(p.controls)} controls, {len(p.references)} references, {len(p.extensions)} extensions"
        rows.append({"name": p.name, "size": size, "extra": extra, "epochs": f"{p.train.get('epochs', 500)} epochs"})
    return rows


def list_runs(options: Options) -> Rows:
    rows = []
    for run in store.Store(options["results"]).of_profile(options["profile"], options["plugins"]):
        document, state, accuracy = run.document, run.status, run.summary.get("accuracy")
        row = {key: document[key] for key in ("profile", "dataset", "label")}
        row |= {"source": run.source or "–", "seed": document["seed"]}
        row |= {"identity": document["identity"][:8], "status": state}
        row["accuracy"] = f"{accuracy:.2f}" if state == "done" and accuracy is not None else "–"
        row["reason"] = document.get("reason", "")
        rows.append(row)
    return rows


LISTS = {
    function.__name__.removeprefix("list_"): function
    for function in (list_methods, list_datasets, list_generators, list_profiles, list_runs)
}


@click.command("list")
@click.argument("what", type=OneOf(tuple(LISTS)), metavar="WHAT")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@shared.profile
@shared.plugins
@shared.results_to_read
@shared.data
def list_(what: str, as_json: bool, **options: Any) -> int:
    """List methods, datasets, generators, profiles or runs, one line each.

    WHAT is methods, datasets, generators, profiles or runs.
    """
    rows = LISTS[what](options)
    if as_json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    elif rows:
        from benchmark.analysis.table import aligned

        columns = [key for key in rows[0] if key not in ONLY_IN_JSON]
        head, *lines = aligned([columns, *([str(row[c]) for c in columns] for row in rows)])
        if sys.stdout.isatty():  # scripts get lines alone
            print(head)
        for line, row in zip(lines, rows, strict=True):
            print(line + (f"  → {row['how']}" if row.get("how") else ""))
    else:
        print(f"There are no {what} here.", file=sys.stderr)
    return COMPLETE


# report ---------------------------------------------------------------------------------------------------------------
@click.command
@shared.profile
@shared.methods
@shared.plugins
@click.option(
    "--reference", metavar="METHOD", help="Method that is marked and compared with the others (default: cel)."
)
@shared.results
@shared.out_option("Output file (default: results/report.html).")
def report(results: Path, out: Path | None, methods: str | None, **options: Any) -> int:
    """Write results/report.html, one self-contained page."""
    from benchmark.report.page import write_report

    names = tuple(filter(None, (methods or "").split(",")))
    print(f"Written: {write_report(results, out or results / 'report.html', methods=names, **options)}")
    return COMPLETE


# export ---------------------------------------------------------------------------------------------------------------
@click.command
@click.option("--runs", is_flag=True, help="One row per run with its summary and measures, instead of one per epoch.")
@click.option("--tuning", is_flag=True, help="Include the runs of `tune`.")
@shared.profile
@shared.plugins
@shared.results
@shared.data
@shared.out_option("Output file (default: epochs.csv or runs.csv in the results folder); - for standard output.")
def export(
    results: Path, data: Path, out: Path | None, profile: str | None, plugins: tuple[str, ...], runs: bool, tuning: bool
) -> int:
    """Write one CSV of all epochs or of all runs."""
    stored = store.current_runs(results, profile, plugins, tuning)
    frame = run_frame(stored, data) if runs else store.epoch_frame(stored)
    if frame.empty:
        raise CandidError(f"There are no runs in {results} to export.")
    number = plural(frame["identity"].nunique(), "run")
    note = f" ({number if runs else f'{len(frame)} epochs of {number}'})"
    shared.write_text(out or results / ("runs.csv" if runs else "epochs.csv"), frame.to_csv(index=False), note)
    return COMPLETE


def run_frame(stored: list[store.StoredRun], data: Path) -> pandas.DataFrame:
    """Return the frame of `store.runs()` with the whole summary and the measures of every run."""
    import pandas

    from benchmark.measures import MEASURES

    frame = store.run_frame(stored)
    summaries = [run.summary for run in stored]
    names = dict.fromkeys([*(name for summary in summaries for name in summary), *MEASURES])
    columns = [name for name in names if name not in frame]
    rows = [summary | measures_of(run, data) for summary, run in zip(summaries, stored, strict=True)]
    return frame.join(pandas.DataFrame(rows, columns=columns, index=frame.index))


def measures_of(run: store.StoredRun, data: Path) -> dict[str, float]:
    """Return the measures of a finished run on its test rows with a true label.

    Nothing where the run has no predictions or its data are not on this machine; a damaged file gives a warning.
    """
    from benchmark.config.spec import RunSpec
    from benchmark.measures import measures
    from benchmark.trainer.loading import dataset_of
    from datasets.registry import SOURCES

    document = run.document
    if document["status"] != "done":
        return {}
    try:
        predictions, spec = store.predictions(run), RunSpec.from_json(document["config"])
        if predictions is None or spec.dataset_sha256 or spec.dataset not in SOURCES:
            return {}  # a stored name is never taken for a path
        dataset = dataset_of(spec, data)
    except CandidError as error:
        warn(f"no measures: {error}")
        return {}
    except (ValueError, DataError):
        return {}
    labels, rows = dataset.test.labels.numpy(), predictions.test_rows
    if predictions.test_logits.shape[1] != dataset.num_classes or (rows >= len(labels)).any():
        warn(f"no measures: the predictions in {run.path} do not belong to the data on this machine")
        return {}
    labelled = labels[rows] != UNKNOWN
    return measures(predictions.test_logits[labelled], labels[rows][labelled]) if labelled.any() else {}


# verify ---------------------------------------------------------------------------------------------------------------
FINDINGS_PRINTED = 12  # the report has all
VERDICTS = {COMPLETE: "passed", FAILED: "failed", INCOMPLETE: "incomplete"}


@click.command
@click.argument("folder", type=shared.PATH)
@click.option("--cells", type=click.IntRange(min=0), default=1, show_default=True, metavar="N",
              help="Random cells to train again, one seed of each.")  # fmt: skip
@click.option("--draw", type=int, metavar="NUMBER", help="Draw the same random cells as an earlier report.")
@click.option("--annotators", is_flag=True, help="Also train annotators again and draw their candidate sets.")
@click.option("--datasets", "--dataset", metavar="A,B", help="Paths to your own data that the runs were trained on.")
@shared.plugins
@shared.data
@shared.device
@shared.out_option("Verification report.", default=Path("verification.json"))
def verify(
    folder: Path, cells: int, draw: int | None, annotators: bool, datasets: str | None, out: Path, **options: Any
) -> int:
    """Verify a results folder: hashes, scores, and cells trained again.

    Candidate sets are drawn again and compared too. The result is also written as a report.
    """
    from benchmark.runner.provenance import environment, now
    from benchmark.verify import Context, verify

    if folder.is_file():
        raise UsageError(f"{folder} is a file; unpack it with `tar` and name the folder.")
    refuse_links(store.existing_folder(folder))
    check_out(out)
    own_data = [path for path in (datasets or "").split(",") if path]
    number = random.SystemRandom().randrange(1 << 32) if draw is None else draw
    with tempfile.TemporaryDirectory(prefix="candid-") as scratch:
        place = replace(run_options(options), results=Path(scratch))
        report = verify(folder, Context(place, options["plugins"], own_data, annotators), cells, number)
    document = {"result": VERDICTS[report.code], "date": now(), **asdict(report)}
    document = without_paths(document | {"environment": environment(place.device)})
    shared.write_text(out, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    _print_verification(report)
    return report.code


def _print_verification(report: Report) -> None:
    from benchmark.analysis.table import aligned

    rows = [["check", "passed", "failed", "not checked"]]
    rows += [[name, *map(str, counts.values())] for name, counts in report.checks.items()]
    print("\n".join(aligned(rows, 1)))
    for rerun in report.reruns:
        print(f"Trained again: {rerun.run}: {rerun.agreement}")
    for finding in report.findings[:FINDINGS_PRINTED]:
        print(f"Failed: {finding}")
    for reason, names in report.not_checked.items():
        print(f"Not checked: {len(names)} of {report.runs} runs: {reason}")
    if report.unfinished:
        print(f"Left out: {report.unfinished} unfinished")
    notes = {
        FAILED: f": {len(report.findings)} findings",
        INCOMPLETE: ": nothing is wrong, but not all could be checked",
    }
    print(f"verification {VERDICTS[report.code]} for '{report.folder}'{notes.get(report.code, '')}")
