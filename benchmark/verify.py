"""Check a results folder from elsewhere: hashes, scores, candidate sets, and random cells trained again.

Nothing in the folder is trusted, executed or changed. A method, a network or data of somebody's own is loaded only from a
file that the caller names, and only if its SHA-256 is the one of the run.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmark import artifacts, store
from benchmark.analysis import statistics as st
from benchmark.config.resolution import own_data, source_digest
from benchmark.config.spec import SCHEMA, RunSpec, digest_of, identity_of, label_of
from benchmark.errors import COMPLETE, FAILED, INCOMPLETE, CandidError, UsageError
from benchmark.files import read_regular
from benchmark.runner.options import RunOptions
from benchmark.runner.worker import drawn_set, execute
from benchmark.store import StoredRun, is_number, printable, record_digest
from benchmark.trainer.loading import dataset_of
from benchmark.trainer.model import network_file_of
from benchmark.trainer.summary import summarise
from benchmark.trainer.trainer import rows_of
from datasets.base import UNKNOWN, DataError, Dataset
from datasets.candidates.candidate_sets import read
from datasets.candidates.generators import GENERATORS
from datasets.registry import SOURCES
from methods.discovery import methods_in
from methods.registry import discover

CHECKS = (
    "run.json", "identity and folder", "planned epochs", "summary from epochs", "SHA-256 of files",
    "SHA-256 of candidate sets", "candidate sets drawn again", "accuracy from predictions",
)  # fmt: skip
COUNTS = ("passed", "failed", "not checked")
MACHINE = ("device", "device_name", "cpu_capability", "torch")  # equal values give equal bits
LEAST = 0.5  # percentage points that are always allowed between two kinds of machines


class NotChecked(Exception):
    """Raised when a check cannot be made here; not a defect of the run."""


class NotRequested(NotChecked):
    """A check that only an option asks for; without it the verification still counts as complete."""


class Context:
    """Data, device and scratch folder of the caller; methods, networks, and their own data by SHA-256."""

    def __init__(
        self, options: RunOptions, plugins: Sequence[str], datasets: Sequence[str], annotators: bool = False
    ) -> None:
        """Read the files of `--plugin` and `--datasets`. A plug-in without a method is a network."""
        self.options, self.plugins = options, tuple(plugins)
        self.annotators = annotators  # train them again
        self.datasets = {own_data(path).get("sha256", ""): path for path in datasets}
        if "" in self.datasets:
            raise UsageError(f"--datasets {self.datasets['']}: not a file or folder of data of your own.")
        self.catalogue = discover(tuple(plugin for plugin in plugins if methods_in(Path(plugin))))

    def spec(self, document: Mapping[str, Any]) -> RunSpec:
        """Return the specification of a stored run. Names are looked up, and none of them is taken for a path."""
        spec = RunSpec.from_json(document["config"], profile=document["profile"], label=document["label"])
        spec.check()
        entry, own = self.catalogue.entries.get(spec.method), spec.dataset_sha256
        if entry is None or source_digest(entry) != spec.method_source:
            raise NotChecked(f"its method is not here; if it is a plug-in, give it with --plugin {spec.method}.py")
        for key, value in spec.method_config.items():
            entry.config[key].check(value)
        if own not in self.datasets if own else spec.dataset not in SOURCES:
            file = document.get("data_file", "FILE")
            raise NotChecked(f"its dataset is not here; if it is its author's own, give it with --datasets {file}")
        if spec.backbone.weights:
            raise NotChecked("it starts from a weight file of its author's")
        networks = {"network": spec.backbone.name, "annotator": spec.annotator.network}
        paths = {key: network_file_of(Path("run.json"), name, self.plugins)[0] for key, name in networks.items()}
        paths["dataset"] = self.datasets[own] if own else spec.dataset
        paths["plugin"] = "" if entry.built_in else str(entry.file.resolve())
        provenance = dict.fromkeys(document.get("provenance") or {}, "verify")
        return replace(spec, provenance=provenance, paths=paths)


# Reading the folder ---------------------------------------------------------------------------------------------------


def stored_runs(results: Path, problems: list[str]) -> Iterator[StoredRun]:
    """Yield every run of a results folder in a stable order, and collect what is wrong with packed files.

    Runs in folders come without their documents, which `check_document` reads.
    """
    for path in sorted((results / "runs").glob("*/*/*")):
        if path.is_dir():
            yield StoredRun(path)
    for path in sorted((results / "runs").glob(f"*/{store.PACKED}")):
        runs = list(store.packed_runs(path))
        yield from (run for run in runs if not run.path.is_dir())
        lines = len(store.read_gzip(path).splitlines())
        if 2 * len(runs) < lines or not lines:
            problems.append(f"{path.relative_to(results)}: {lines // 2 - len(runs) or 'all'} of its runs are damaged")


def cell_of(run: StoredRun) -> str:
    return " ".join(run.document[key] for key in ("profile", "dataset", "label"))


def name_of(run: StoredRun) -> str:
    """Return the name of a run in the report; of one without a valid document its folder."""
    return f"{cell_of(run)} seed {run.document['seed']}" if run.document else "/".join(run.path.parts[-4:])


def candidates_of(run: StoredRun) -> str:
    """Return the SHA-256 of a run's candidate set."""
    return str(run.document.get("candidates_sha256", ""))


def candidate_sets(results: Path, problems: list[str]) -> dict[str, Path]:
    """Return the stored candidate sets by SHA-256, and collect what is wrong with damaged ones."""
    sets = {}
    for path in sorted((results / "candidates").glob("*/*.npz")):
        try:
            if not path.is_file():  # reading a pipe would wait for ever
                raise DataError("it is not an ordinary file")
            sets[read(path).sha256] = path
        except DataError as error:
            problems.append(f"{path.relative_to(results)}: {error}")
    return sets


# Checks ---------------------------------------------------------------------------------------------------------------


def check_document(run: StoredRun) -> list[str]:
    """Check that run.json has the fields that every reader relies on and was not changed after the run wrote it."""
    try:
        document = run.document or store.parse_json(read_regular(run.document_path))
    except FileNotFoundError:
        aside = run.document_path.with_name(f"{run.document_path.name}.damaged")
        return [f"run.json is damaged and was set aside as {aside.name}" if aside.is_file() else "it has no run.json"]
    store.check_document(document)
    if document.get("schema") != SCHEMA:
        return [f"run.json has schema {document.get('schema')}, not {SCHEMA}"]
    if document.get("record_sha256", record_digest(document)) != record_digest(document):
        return ["run.json was changed after the run wrote it: its record_sha256 does not fit"]
    run.document = {key: printable(value) for key, value in document.items()}
    return []


def check_identity(run: StoredRun) -> list[str]:
    """Check that digests, identity, names and folder follow from the configuration."""
    document, config = run.document, run.document["config"]
    problems = []
    if digest_of(config) != document["config_digest"]:
        problems.append("config_digest does not follow from the configuration in run.json")
    if identity_of(document["config_digest"], candidates_of(run)) != document["identity"]:
        problems.append("identity does not follow from configuration and candidate set")
    place = store.place_of(document["dataset"], document["method"], document["seed"], document["identity"])
    if place.parts != run.path.parts[-3:]:
        problems.append(f"it is in runs/{'/'.join(run.path.parts[-3:])} and belongs in runs/{place}")
    problems += check_label(document)
    values = {"method": config["method"]["name"], "dataset": config["dataset"]["name"], "seed": config["seed"]}
    differing = [key for key, value in values.items() if value != document[key]]
    return [*problems, *(f"{key} in run.json is not the one of its configuration" for key in differing)]


def check_label(document: Mapping[str, Any]) -> list[str]:
    """Check that label and overrides agree with each other and with the configuration."""
    overrides, config = document.get("overrides") or {}, document["config"]
    method = store.ANNOTATOR if document.get("purpose") == store.ANNOTATOR else document["method"]
    label, expected = document["label"], label_of(method, overrides)
    problems = []
    # In any order, because run.json sorts the overrides. A weight file has its name in the label.
    if "backbone.weights" not in overrides and sorted(re.split(r"[\[,\]]", label)) != sorted(
        re.split(r"[\[,\]]", expected)
    ):
        problems.append(f"label is {label!r}, and its overrides give {expected!r}")
    data = {key: value for key, value in config["dataset"].items() if key not in ("name", "sha256", "settings")}
    sections = {**config, "dataset": config["dataset"].get("settings", {}), "data": data}
    for name, value in overrides.items():
        section, _, key = name.rpartition(".")
        values = sections.get(section, {}) if section else config["method"]["config"]
        if key not in ("weights", "name", "network") and values.get(key, value) != value:
            problems.append(f"override {name} is {value} in run.json and {values[key]} in its configuration")
    return problems


def check_epochs(run: StoredRun) -> list[str]:
    """Check that every planned epoch is recorded and none was changed afterwards."""
    planned, stated = run.document["config"]["train"]["epochs"], run.document.get("epochs_done")
    records, digest = run.epochs(), run.document.get("metrics_sha256")
    if not len(records) == planned == stated:
        return [f"metrics.jsonl has {len(records)} complete epochs, run.json says {stated}, and {planned} were planned"]
    if digest and run.packed_epochs is None and store.epochs_digest(records) != digest:
        return ["metrics.jsonl does not have the SHA-256 in run.json"]
    return []


def check_summary(run: StoredRun) -> list[str]:
    """Check that the summary follows from the epochs: exactly, or to the digits of a packed run."""
    records = run.epochs()
    computed = summarise(records) if records else {}
    tolerance = 0.0 if run.packed_epochs is None else 1e-5
    return [
        f"{key} is {stated} in run.json and {computed.get(key)} by metrics.jsonl"
        for key, stated in run.summary.items()
        if not _equal(stated, computed.get(key), tolerance)
    ]


def _equal(stated: Any, computed: Any, tolerance: float) -> bool:
    """Compare two numbers, either of which may be missing."""
    if is_number(stated) and is_number(computed):
        return math.isclose(stated, computed, rel_tol=tolerance)
    return bool(stated == computed)


def check_files(run: StoredRun) -> list[str]:
    """Check that stored files have the SHA-256 in run.json; a missing file was removed on purpose."""
    problems = []
    for name in run.document.get("files") or {}:
        if Path(name).name != name:
            problems.append(f"run.json lists {name!r}, which is not a file name")
            continue
        try:
            artifacts.read_checked(run.path, name, run.document)
        except CandidError as error:
            problems.append(str(error).rstrip("."))
    return problems


def check_candidates(run: StoredRun, sets: Mapping[str, Path]) -> list[str]:
    """Check that the candidate set with the SHA-256 in run.json is stored."""
    if candidates_of(run) not in sets:
        if run.document["config"]["dataset"].get("generator") == "own":
            raise NotRequested("its candidate set is part of its data")
        raise NotChecked("its candidate set is not in the folder")
    return []


def check_redrawn(run: StoredRun, spec: RunSpec, dataset: Dataset, context: Context) -> list[str]:
    """Check that the candidate set drawn again from the data is the same; annotators are trained only on request."""
    brings_own = dataset.candidates is not None and "data.generator" not in spec.provenance
    if not brings_own and GENERATORS[spec.data.generator].annotator and not context.annotators:
        raise NotRequested("its candidate set was made by an annotator network (--annotators trains it again)")
    try:
        sha256 = drawn_set(spec, dataset, context.options).sha256
    except Exception as error:  # an annotator that cannot be trained here, for example
        raise NotChecked(f"its candidate set cannot be drawn here ({error})") from None
    return [] if sha256 == candidates_of(run) else [f"its candidate set, drawn again, has SHA-256 {sha256}"]


def check_scores(run: StoredRun, spec: RunSpec, dataset: Dataset) -> list[str]:
    """Check test rows, and the accuracies by the stored predictions, against the true labels of the data here."""
    labelled = int((dataset.test.labels != UNKNOWN).sum())
    if run.document.get("test_rows", labelled) != labelled:
        return [f"test_rows is {run.document['test_rows']} in run.json, and the data here have {labelled}"]
    if run.document.get("scored") is False and labelled:
        return ["run.json says that no test row has a true label, and the data here have some"]
    content = artifacts.read_checked(run.path, artifacts.PREDICTIONS, run.document)
    if content is None:
        raise NotChecked("it has no stored predictions")
    stored = artifacts.predictions_of(Path(artifacts.PREDICTIONS), content)
    rows = rows_of(dataset, spec.train, spec.data_seed)[0].numpy()
    same_rows = np.array_equal(stored.train_rows, rows) and np.array_equal(stored.test_rows, range(len(dataset.test)))
    if not same_rows or stored.test_logits.shape[1] != dataset.num_classes:
        return [f"{artifacts.PREDICTIONS} is not for the rows and classes of these data"]
    parts = {"accuracy": (stored.test_logits, dataset.test.labels.numpy())}
    if stored.belief is not None:
        parts["train_accuracy"] = (stored.belief, dataset.train.labels.numpy()[rows])
    problems = []
    for key, (scores, labels) in parts.items():
        stated, labelled = run.summary.get(key), labels != UNKNOWN
        accuracy = 100.0 * float((scores.argmax(1) == labels)[labelled].mean()) if labelled.any() else None
        if not _equal(stated, accuracy, 1e-11):
            problems.append(f"{key} is {stated} in run.json and {accuracy} by {artifacts.PREDICTIONS}")
    return problems


@dataclass(frozen=True)
class Rerun:
    """A run that was trained again."""

    run: str
    recorded: float | None  # accuracy
    here: float | None
    agreement: str  # in words
    failed: bool


def allowed(accuracy: float | None, rows: int) -> float:
    """Return the points that two machines may differ by: three standard errors of a difference of two accuracies."""
    if accuracy is None or not rows:
        return LEAST
    return max(LEAST, 3 * math.sqrt(2) * st.binomial_se(accuracy, rows))


def train_again(run: StoredRun, spec: RunSpec, options: RunOptions, stored_set: Path | None) -> Rerun:
    """Train a run from the start. A set that an annotator made is taken from the folder, where it was checked."""
    if stored_set is not None and GENERATORS[spec.data.generator].annotator:
        copy = options.results / "candidates" / stored_set.parent.name / stored_set.name
        copy.parent.mkdir(parents=True)
        copy.write_bytes(stored_set.read_bytes())
    outcome, recorded = execute(spec, options), run.summary.get("accuracy")
    result = Rerun(name_of(run), recorded, None, f"it diverged: {outcome.reason}", failed=True)
    if outcome.status == "diverged":
        return result
    if outcome.status != "done":
        raise NotChecked(f"it cannot be trained here ({outcome.reason or outcome.status})")
    here = StoredRun(next(options.results.glob("runs/*/*/*")))
    document = here.read() or {}
    accuracy, differences = here.summary.get("accuracy"), _differences(run, here)
    if not differences:
        return replace(result, here=accuracy, agreement="bit for bit equal", failed=False)
    theirs, ours = run.document.get("environment") or {}, document["environment"]
    if all(key not in theirs or theirs[key] == ours[key] for key in MACHINE):
        differing = f"other {' and '.join(differences)} on the same kind of machine"
        return replace(result, here=accuracy, agreement=differing)
    tolerance = allowed(accuracy, document["test_rows"])
    failed = recorded is None or accuracy is None or abs(recorded - accuracy) > tolerance
    words = f"{'not ' if failed else ''}within {tolerance:.2f} points of {recorded}, on another kind of machine"
    return replace(result, here=accuracy, agreement=f"accuracy {accuracy} {words}", failed=failed)


def _differences(run: StoredRun, here: StoredRun) -> tuple[str, ...]:
    """Return what differs between a stored run and the same run trained here."""
    results = [record["result"] for record in here.epochs()]
    if run.packed_epochs is not None:
        results = [store.round_numbers(result) for result in results]
    equal = {
        "candidate set": candidates_of(here) == candidates_of(run),
        "weights": here.document["weights_sha256"] == run.document.get("weights_sha256"),
        "epochs": results == [record["result"] for record in run.epochs()],
        "summary": all(here.summary.get(key) == value for key, value in run.summary.items()),
    }
    return tuple(name for name, same in equal.items() if not same)


# The whole verification -----------------------------------------------------------------------------------------------


@dataclass
class Report:
    """The result of every check."""

    folder: str
    draw: int  # seed of the choice of cells
    cells: int  # to be trained again
    runs: int = 0
    unfinished: int = 0
    checks: dict[str, dict[str, int]] = field(default_factory=lambda: {key: dict.fromkeys(COUNTS, 0) for key in CHECKS})
    findings: list[str] = field(default_factory=list)
    not_checked: dict[str, list[str]] = field(default_factory=dict)  # runs by reason
    reruns: list[Rerun] = field(default_factory=list)
    complete: bool = True

    def skip(self, run: StoredRun, reason: Exception, *checks: str) -> None:
        """Note why a run was not checked."""
        for name in checks:
            self.checks[name]["not checked"] += 1
        names = self.not_checked.setdefault(str(printable(str(reason).rstrip("."))), [])
        if name_of(run) not in names:
            names.append(name_of(run))
        self.complete &= isinstance(reason, NotRequested)

    def check(self, name: str, run: StoredRun, test: Callable[..., list[str]], *arguments: Any) -> bool:
        """Make one check of one run; False if it failed."""
        try:
            problems = test(run, *arguments)
        except NotChecked as reason:
            self.skip(run, reason, name)
            return True
        except CandidError as error:
            problems = [str(error).rstrip(".")]
        except Exception as error:  # whatever the values of a document from elsewhere lead to
            why = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            problems = [f"run.json or metrics.jsonl is damaged ({why})"]
        self.checks[name]["failed" if problems else "passed"] += 1
        self.findings += [printable(f"{name_of(run)}: {problem}") for problem in problems]
        return not problems

    @property
    def code(self) -> int:
        if self.findings:
            return FAILED
        return COMPLETE if self.complete and len(self.reruns) == self.cells else INCOMPLETE


def verify(results: Path, context: Context, cells: int, draw: int) -> Report:
    """Check every finished run of a results folder, and train so many random cells again, one seed of each."""
    report = Report(results.resolve().name, draw, cells)
    problems: list[str] = []
    sets = candidate_sets(results, problems)
    specs: dict[str, list[tuple[StoredRun, RunSpec]]] = {}  # by cell, of runs that can be trained again
    for run in stored_runs(results, problems):
        whole = report.check("run.json", run, check_document)
        if whole and run.document["status"] != "done":
            report.unfinished += 1
            continue
        report.runs += 1
        if whole:
            spec = _check_run(report, run, sets, context)
            specs.setdefault(cell_of(run), []).extend([(run, spec)] if spec else [])
    if not report.runs and not problems:
        raise CandidError(f"There is no finished run in {results} to verify.")
    report.findings += [printable(problem) for problem in problems]
    report.cells = min(cells, len(specs))
    lot, repeatable = random.Random(report.draw), sorted(cell for cell, runs in specs.items() if runs)
    for number, cell in enumerate(lot.sample(repeatable, min(cells, len(repeatable)))):
        run, spec = lot.choice(specs[cell])
        options = replace(context.options, results=context.options.results / f"rerun{number}")
        try:
            rerun = train_again(run, spec, options, sets.get(candidates_of(run)))
        except NotChecked as reason:
            report.skip(run, reason)
            continue
        report.reruns.append(rerun)
        report.findings += [f"{name_of(run)}, trained again: {rerun.agreement}"] if rerun.failed else []
    return report


def _check_run(report: Report, run: StoredRun, sets: Mapping[str, Path], context: Context) -> RunSpec | None:
    """Make all checks of one run; return its specification if it can be trained again."""
    tests = (check_identity, check_epochs, check_summary, check_files)
    passed = [report.check(name, run, test) for name, test in zip(CHECKS[1:5], tests, strict=True)]
    is_annotator = run.document.get("purpose") == store.ANNOTATOR  # trained on the true labels
    if not is_annotator:
        report.check("SHA-256 of candidate sets", run, check_candidates, sets)
    try:
        if not all(passed):
            raise NotChecked("its files failed a check")
        spec = context.spec(run.document)
        data = dataset_of(spec, context.options.data)
    except Exception as reason:  # no such method, data or values here
        report.skip(run, reason, *CHECKS[6:])
        return None
    if not is_annotator:
        report.check("candidate sets drawn again", run, check_redrawn, spec, data, context)
    report.check("accuracy from predictions", run, check_scores, spec, data)
    return None if is_annotator else spec  # --annotators trains it again with its candidate sets
