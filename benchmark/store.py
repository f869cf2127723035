"""Results on disk: one folder per run, atomic and locked, readable with pandas. Needs no torch.

    results/runs/<dataset>/<method>/seed<k>-<identity8>/
        run.json        configuration, provenance, environment, status, and the summary once it is done
        metrics.jsonl   one line per epoch: {"epoch", "result": {…}, "time": {…}}
        predictions.npz test logits and the belief of the training rows after the last epoch; its SHA-256 in run.json
        checkpoint*.pt  while needed
        lock, log.txt
    results/runs/<dataset>/runs.jsonl.gz    finished runs without their folders, as results/reference has them

`load()` gives one tidy frame of all epochs, `runs()` one row per run, `predictions()` the arrays of one run.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import itertools
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark import artifacts
from benchmark.accuracy import ACCURACIES
from benchmark.config.profile import load_profile, profile_name, profile_names
from benchmark.config.spec import SCHEMA, RunSpec, canonical, digest_of, identity_of
from benchmark.errors import CandidError, UsageError, warn
from benchmark.files import Lock, atomic_write, file_name, is_locked, no_link, read_regular, set_aside
from datasets.base import plural
from methods.registry import discover

if TYPE_CHECKING:
    import pandas

STATES = ("done", "running", "interrupted", "failed", "diverged", "oom")
PACKED = "runs.jsonl.gz"
TUNING = "tuning"  # purpose of the runs of a grid search: they are no results
ANNOTATOR = "annotator"  # purpose of the runs that train annotators, see trainer/annotator.py
ANNOTATOR_SEED = 999_999  # of annotators: no run starts from the weights that its annotator started from
SOURCE_LENGTH = 8  # characters of the digest of a plug-in's file
SUMMARY = tuple(accuracy.key for accuracy in ACCURACIES)
UNSCORED = ("covering_rate", "approximated_accuracy", "held_out_rows")  # in the summary of runs without true labels
PERCENT = re.compile(r"accuracy|covering_rate")  # in the names of results
KEYS = ("profile", "dataset", "method", "source", "label", "seed", "identity")  # beside every epoch in `load()`
RESERVED = {*KEYS, "status", "epoch"}  # names that no metric may have
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # an escape that may stand for half a character


def parse_json(text: bytes) -> Any:
    """Parse JSON; ValueError for NaN, infinities and lone surrogates, which Python's parser accepts, and deep nesting."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        if SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()  # raises ValueError for what UTF-8 cannot express
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def check_document(document: Any) -> None:
    """Raise ValueError unless this is a run document with the fields that every reader of this schema relies on."""
    if not isinstance(document, dict) or document.get("status") not in STATES:
        raise ValueError("not a run document")
    for key in ("summary", "cost", "environment", "overrides", "provenance", "files"):
        if not isinstance(document.get(key) or {}, dict):
            raise ValueError(f"{key} is not a table")
    if type(document.get("schema", SCHEMA)) is not int:
        raise ValueError("schema is not an integer")
    if document.get("schema", SCHEMA) != SCHEMA:
        return  # written by another version: readers leave it out, and it is not damaged
    texts = ("profile", "dataset", "method", "label", "identity", "config_digest")
    if not all(isinstance(document.get(key), str) for key in texts) or not is_count(document.get("seed")):
        raise ValueError("a field is missing or of another kind")
    sittings = document.get("sittings", [])
    if not isinstance(sittings, list) or not all(isinstance(sitting, dict) for sitting in sittings):
        raise ValueError("sittings is not a list of tables")
    config, time = document.get("config"), document.get("time")
    if not isinstance(config, dict) or not isinstance(time, dict) or not isinstance(config.get("train"), dict):
        raise ValueError("no configuration or no times")
    if not is_count(config["train"].get("epochs")):
        raise ValueError("no number of epochs")
    optional = ("reason", "candidates_sha256", "weights_sha256", "data_file", "network")
    if not all(isinstance(document.get(key, ""), str) for key in optional):
        raise ValueError("a text is of another kind")
    if not all(isinstance(digest, str) for digest in (document.get("files") or {}).values()):
        raise ValueError("a digest in files is not text")
    for key, value in {**(document.get("summary") or {}), **(document.get("cost") or {})}.items():
        if not is_result(key, value):
            raise ValueError(f"{key} has an impossible value")
    if not is_count(document.get("epochs_done", 0)):
        raise ValueError("epochs_done is not a non-negative integer")
    unscored = document.get("scored") is False  # its test rows have no true labels
    if document["status"] == "done" and not unscored and not is_number((document.get("summary") or {}).get("accuracy")):
        raise ValueError("done without a result")


def parse_document(text: bytes) -> dict[str, Any]:
    """Parse a run.json; ValueError for one that lacks what every reader relies on."""
    document = parse_json(text)
    check_document(document)
    return {key: printable(value) for key, value in document.items()}


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number that a float can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300


def is_count(value: Any) -> bool:
    """Return whether a value is a non-negative integer of ordinary size."""
    return type(value) is int and 0 <= value < 1 << 63


def is_result(key: str, value: Any) -> bool:
    """Return whether a value is valid for a result of that name: a number or None, an accuracy between 0 and 100."""
    if value is None:
        return True
    return is_number(value) and (not PERCENT.search(key) or 0 <= value <= 100)


def is_epoch(record: Any, number: int) -> bool:
    """Return whether a line of metrics.jsonl is the record of that epoch."""
    if not isinstance(record, dict) or record.get("epoch") != number:
        return False
    result, time = record.get("result"), record.get("time")
    if not isinstance(result, dict) or not isinstance(time, dict) or not is_number(time.get("seconds")):
        return False
    if not all(value is None or is_number(value) for value in time.values()):
        return False
    return not RESERVED & result.keys() and all(is_result(key, value) for key, value in result.items())


def epochs_of(text: bytes) -> list[dict[str, Any]] | None:
    """Parse a JSON list of epochs; None if it is not the list of the first epochs of a run."""
    try:
        records = parse_json(text)
    except ValueError:
        return None
    whole = isinstance(records, list) and all(is_epoch(record, k) for k, record in enumerate(records))
    return records if whole else None


def record_digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a run document without the field that holds it, and without names of hosts and times."""
    sessions = [session.get("environment") for session in document.get("sittings") or []]
    fields = {key: value for key, value in document.items() if key not in ("record_sha256", "time", "sittings")}
    return digest_of(fields | {"sittings": sessions})


def epochs_digest(records: Iterable[dict[str, Any]]) -> str:
    """Return the SHA-256 of the lines of metrics.jsonl that hold these records."""
    return hashlib.sha256("".join(f"{canonical(record)}\n" for record in records).encode()).hexdigest()


def printable(value: Any) -> Any:
    """Replace control characters of a text: a document from elsewhere must not steer the terminal that shows it."""
    if isinstance(value, str) and not value.isprintable():
        return "".join(c if c.isprintable() else " " for c in value)
    return value


def read_gzip(path: Path, limit: int = 1 << 27) -> bytes:
    """Return a gzip file's content; of a damaged one, or one that unpacks to more than `limit` bytes, nothing."""
    try:
        with gzip.open(io.BytesIO(read_regular(path))) as stream:
            content = stream.read(limit + 1)
    except (OSError, ValueError, EOFError, zlib.error):
        content = b""
    if not 0 < len(content) <= limit:
        warn(f"{path} is damaged or too large; its runs are left out.")
        return b""
    return content


@dataclass
class StoredRun:
    """One run: its folder, and its run.json as it was last read."""

    path: Path
    document: dict[str, Any] = field(default_factory=dict)
    packed_epochs: bytes | None = None  # JSON of its epochs, of a run of a packed file, which has no folder

    @functools.cached_property
    def lock(self) -> Lock:
        return Lock(self.path / "lock")

    @property
    def document_path(self) -> Path:
        return self.path / "run.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def digest(self) -> str:
        return str(self.document.get("config_digest", ""))

    @functools.cached_property
    def digest_without_seed(self) -> str:
        return _without_seed(self.document["config"])

    @property
    def is_tuning(self) -> bool:
        return self.document.get("purpose") == TUNING

    @property
    def summary(self) -> dict[str, Any]:
        return self.document.get("summary") or {}

    @property
    def status(self) -> str:
        """The status as it is now: a 'running' run whose lock is free was interrupted."""
        status = str(self.document["status"])
        return "interrupted" if status == "running" and not is_locked(self.path / "lock") else status

    @property
    def source(self) -> str:
        """The short digest of the plug-in file of its method; empty for a built-in method."""
        method = self.document["config"].get("method")
        source = method.get("source") if isinstance(method, dict) else None
        return source[:SOURCE_LENGTH] if isinstance(source, str) else ""

    def called(self, profile: str, label: str) -> StoredRun:
        """Return the run under the profile and label of a table."""
        return replace(self, document=self.document | {"profile": profile, "label": label})

    def has_model(self) -> bool:
        """Return whether the model that it stored is complete."""
        return all(artifacts.is_whole(self.path, name, self.document) for name in artifacts.MODEL_FILES)

    def read(self) -> dict[str, Any] | None:
        """Read run.json; None if there is none. A damaged one is set aside with one warning."""
        try:
            self.document = parse_document(read_regular(self.document_path))
        except FileNotFoundError:
            return None
        except ValueError as error:
            self._set_aside(str(error))
            return None
        except OSError as error:
            warn(f"{self.document_path} cannot be read ({error.strerror}).")
            return None
        return self.document

    def _set_aside(self, reason: str) -> None:
        try:
            aside = set_aside(self.document_path)
        except FileNotFoundError:
            return  # another process has just done it, with a warning
        except OSError as error:
            warn(f"{self.document_path} is damaged ({reason}) and cannot be moved ({error.strerror}); it is left out.")
        else:
            outcome = f"it was set aside as {aside.name} and the run will be repeated"
            warn(f"{self.document_path} is damaged ({reason}); {outcome}.")

    def write(self, document: dict[str, Any]) -> None:
        document = document | {"record_sha256": record_digest(document)}
        atomic_write(self.document_path, json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n")

    def epochs(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl that are whole and in sequence: a cut-off tail is not an epoch."""
        if self.packed_epochs is not None:
            packed = epochs_of(self.packed_epochs)
            if packed is None:
                warn(f"{self.path}: its epochs in {PACKED} are damaged and left out.")
            return packed or []
        try:
            lines = read_regular(self.metrics).removesuffix(b"\n").split(b"\n")
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            warn(f"{self.metrics} cannot be read ({reason}); its epochs are left out.")
            return []
        records = epochs_of(b"[" + b",".join(lines) + b"]")  # one call takes half the time of one per line
        return records if records is not None and len(records) == len(lines) else self._whole_epochs(lines)

    def _whole_epochs(self, lines: list[bytes]) -> list[dict[str, Any]]:
        """Return the epochs before the first line that is damaged; only a cut-off last line is no reason to warn."""
        records: list[dict[str, Any]] = []
        for number, line in enumerate(lines):
            try:
                record = parse_json(line)
            except ValueError:
                record = None
            if is_epoch(record, number):
                records.append(record)
                continue
            if record is not None or number + 1 < len(lines):
                warn(f"{self.metrics}: line {number + 1} is damaged; the epochs from there on are left out.")
            break
        return records

    def truncate_epochs(self, count: int) -> None:
        """Keep the first `count` epochs; those after the checkpoint are trained again."""
        lines = [canonical(record) for record in self.epochs()[:count]]
        atomic_write(self.metrics, "".join(f"{line}\n" for line in lines))

    def append_epoch(self, record: dict[str, Any]) -> None:
        with open(self.metrics, "a", encoding="utf-8", opener=no_link) as stream:
            stream.write(canonical(record) + "\n")


def run_folder(results: Path, spec: RunSpec, identity: str) -> StoredRun:
    return StoredRun(results / "runs" / place_of(spec.dataset, spec.method, spec.seed, identity))


def place_of(dataset: str, method: str, seed: int, identity: str) -> Path:
    """Return the folder of a run in `runs`."""
    return Path(file_name(dataset), file_name(method), f"seed{seed}-{identity[:8]}")


def find(results: Path, spec: RunSpec) -> StoredRun | None:
    """Return the run of this configuration, if it was ever started. Needs no candidate set."""
    for path in sorted(run_folder(results, spec, "").path.parent.glob(f"seed{spec.seed}-*/run.json")):
        run = StoredRun(path.parent)
        if run.read() is not None and run.digest == spec.digest:
            return run
    return None


def annotators(results: Path, dataset: str = "*") -> Iterator[StoredRun]:
    """Yield the runs that train annotators, of a dataset or of all."""
    name = dataset if dataset == "*" else file_name(dataset)
    for path in sorted((results / "runs").glob(f"{name}/supervised/seed{ANNOTATOR_SEED}-*/run.json")):
        run = StoredRun(path.parent)
        if run.read() is not None and run.document.get("purpose") == ANNOTATOR:
            yield run


# All runs of a folder -------------------------------------------------------------------------------------------------


@dataclass
class PlanStatus:
    """The state of every run of a plan."""

    specs: list[RunSpec]  # without repetitions
    states: dict[str, str]  # by config digest: done | running | … | missing

    def count(self, state: str) -> int:
        return sum(self.states[spec.digest] == state for spec in self.specs)

    @property
    def todo(self) -> list[RunSpec]:
        return [spec for spec in self.specs if self.states[spec.digest] != "done"]


class Store:
    """The runs of a results folder. The folder of a dataset is read once, when a run of it is first asked for."""

    def __init__(self, results: Path | str) -> None:
        self.results = Path(results)
        self._by_dataset: dict[str, list[StoredRun]] = {}
        others = (path for path in self.results.glob("runs/*/*/*") if not path.name.startswith("seed"))
        if any(any(path.glob("seed*/run.json")) for path in others):
            raise UsageError(
                f"{results} has runs in the layout of an earlier version, runs/<profile>/<dataset>/…, which is not read any "
                f"more; name another folder with --results, or move its runs away."
            )

    @property
    def runs(self) -> list[StoredRun]:
        """Every run but those of annotators, once, in a stable order. A folder copied from elsewhere is just more data."""
        names = sorted(path.name for path in self.results.glob("runs/*"))
        return [run for name in names for run in self._of_dataset(name)]

    @property
    def profiles(self) -> list[str]:
        """The names under which runs were trained; one that could be taken for a file is none."""
        names = {str(run.document.get("profile")) for run in self.runs}
        return sorted(name for name in names if not name.endswith(".toml"))

    def _of_dataset(self, name: str) -> list[StoredRun]:
        if name not in self._by_dataset:
            stored = _read_folder(self.results / "runs" / name)
            self._by_dataset[name] = [run for run in stored if run.document.get("purpose") != ANNOTATOR]
        return self._by_dataset[name]

    def of_plan(self, specs: Sequence[RunSpec]) -> dict[str, StoredRun]:
        """Return the run of every specification that has one, by config digest; a finished one wins over others."""
        runs: dict[str, StoredRun] = {}
        digests = {spec.digest for spec in specs}
        for name in dict.fromkeys(file_name(spec.dataset) for spec in specs):
            for run in self._of_dataset(name):
                if run.digest in digests and (run.digest not in runs or run.document["status"] == "done"):
                    runs[run.digest] = run
        return runs

    def status(self, specs: Sequence[RunSpec], keep_model: bool = False) -> PlanStatus:
        """Return how far the runs of a plan are; with `keep_model` one without its model is not done."""
        runs, states = self.of_plan(specs), {}
        for spec in specs:
            state = runs[spec.digest].status if spec.digest in runs else "missing"
            if keep_model and state == "done" and not runs[spec.digest].has_model():
                state = "without its model"
            states[spec.digest] = state
        return PlanStatus(list({spec.digest: spec for spec in specs}.values()), states)

    def runs_of_plan(self, specs: Sequence[RunSpec], labels: Mapping[str, str]) -> list[StoredRun]:
        """Return the runs of a plan under its profile and its labels, which are given by config digest."""
        existing_folder(self.results)
        runs, profiles = self.of_plan(specs), {spec.digest: spec.profile for spec in specs}
        ordered = sorted(runs.items(), key=lambda item: str(item[1].path))
        return [run.called(profiles[digest], labels.get(digest, "")) for digest, run in ordered]

    def notes(self, specs: Sequence[RunSpec]) -> list[str]:
        """Return a sentence for each damaged run of a plan, and the notes of the data loaders: rows left out, an unknown file."""
        runs, damaged = self.of_plan(specs), []
        for spec in specs:
            folder = run_folder(self.results, spec, "").path.parent
            for path in folder.glob(f"seed{spec.seed}-*/run.json.damaged") if spec.digest not in runs else ():
                if not path.with_name("run.json").exists():
                    name, where = f"{spec.label} on {spec.dataset}", path.relative_to(self.results).as_posix()
                    damaged.append(f"{name}: seed {spec.seed} is damaged ({where}); train it again.")
        documents = [run.document for run in runs.values() if isinstance(run.document.get("data_notes"), list)]
        of_data = [f"{document['dataset']}: {note}." for document in documents for note in document["data_notes"]]
        return [*damaged, *dict.fromkeys(of_data)]

    def tuning_runs(self, profile: str | None = None) -> list[StoredRun]:
        """Return the runs of grid searches, all or those of a profile."""
        name = profile and profile_name(profile)
        return [run for run in self.runs if run.is_tuning and name in (None, run.document.get("profile"))]

    def of_profile(self, profile: str | None, plugins: Sequence[str] = ()) -> list[StoredRun]:
        """Return the runs that count for a profile, under its name; without a profile all but the tuning runs.

        These are the runs of its methods and datasets with its settings, of any seed, whichever profile they were
        trained under; and what was trained under its name and is not in its plan: plug-ins and changed settings. Runs of
        its plan with earlier settings are left out with a warning, and tuning runs unless the plan has that very run.
        """
        if profile is None:
            return [run for run in self.runs if not run.is_tuning]
        name = profile_name(profile)
        cells = {
            (run.document["method"], run.document["dataset"]) for run in self.runs if run.document["profile"] == name
        }
        plan, seeds = _plan_of(profile, cells, plugins)
        runs, earlier_settings = [], 0
        for run in self.runs:
            document = run.document
            is_own = document["profile"] == name and not run.is_tuning
            digest = plan.get((document["method"], document["dataset"]))
            if digest is None:
                runs += [run] if is_own else []
            elif run.digest_without_seed == digest:
                if not run.is_tuning or document["seed"] in seeds:
                    runs.append(run.called(name, document["method"]))
            elif is_own and document["label"] != document["method"]:
                runs.append(run)
            else:
                earlier_settings += is_own
        if earlier_settings:
            warn(f"{plural(earlier_settings, 'run')} with earlier settings of profile {name} left out.")
        return runs


def _read_folder(folder: Path) -> Iterator[StoredRun]:
    """Yield the runs of one dataset: those with a folder, then those of the packed file that have none."""
    identities: set[str] = set()
    misplaced: list[Path] = []
    other_schema: list[Path] = []
    folders = (StoredRun(path.parent) for path in sorted(folder.glob("*/*/run.json")))
    packed_file = packed_runs(folder / PACKED) if (folder / PACKED).is_file() else ()
    for run in itertools.chain(folders, packed_file):
        if not run.document and run.read() is None:
            continue
        if run.document.get("schema", SCHEMA) != SCHEMA:
            other_schema.append(run.path)
        elif not is_in_place(run):
            misplaced.append(run.path)
        elif run.document["identity"] not in identities:
            identities.add(run.document["identity"])
            yield run
    for paths, reason in (
        (misplaced, "copies, leftovers or runs whose identity does not fit their content"),
        (other_schema, f"runs of another version of the program, which does not write schema {SCHEMA}"),
    ):
        if paths:
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            warn(f"{paths[0]}{more}: {reason}; left out.")


def is_in_place(run: StoredRun) -> bool:
    """Return whether folder and identity of a run follow from its content."""
    document, identity, digest = run.document, run.document["identity"], digest_of(run.document["config"])
    return (
        run.path.parts[-3:] == place_of(document["dataset"], document["method"], document["seed"], identity).parts
        and document["config_digest"] == digest
        and identity == identity_of(digest, document.get("candidates_sha256", ""))
    )


def packed_runs(path: Path) -> Iterator[StoredRun]:
    """Yield the runs of a packed file: a line with its document, then a line with its epochs, which is parsed when asked for."""
    lines = read_gzip(path).splitlines()
    for number, (line, epochs) in enumerate(itertools.zip_longest(lines[::2], lines[1::2], fillvalue=b"")):
        try:
            document = parse_document(line)
            names = document["dataset"], document["method"], document["seed"], document["identity"]
        except (ValueError, KeyError):
            warn(f"{path}: run {number + 1} is damaged and left out.")
            continue
        yield StoredRun(path.parents[1] / place_of(*names), document, epochs)


def _plan_of(
    name: str, trained: Iterable[tuple[str, str]], plugins: Sequence[str]
) -> tuple[dict[tuple[Any, Any], str], tuple[int, ...]]:
    """Return the digests of a profile's configurations without their seeds, by method and dataset, and its seeds.

    `trained` are the methods and datasets of the runs under its name; they have a place in the plan, listed or not.
    """
    from benchmark.config.resolution import resolve  # imports NumPy, which `--help` does without
    from datasets.registry import SOURCES

    if name not in profile_names() and not name.endswith(".toml"):
        return {}, ()  # of runs from elsewhere, not on this machine
    profile, entries = load_profile(name), discover(tuple(plugins), tolerant=True).entries
    cells = [(method, dataset) for method in profile.with_extensions for dataset in profile.datasets]
    # Only registered names: one from a results folder must not be read as a path.
    cells += sorted((method, dataset) for method, dataset in trained if dataset in SOURCES)
    plan = {}
    for method, dataset in dict.fromkeys(cells):
        if method in entries:
            try:
                spec = resolve(profile, entries[method], dataset, 0)
            except CandidError:
                continue  # the profile does not allow this combination
            plan[spec.method, spec.dataset] = _without_seed(spec.to_json())
    return plan, profile.seeds


def _without_seed(config: Mapping[str, Any]) -> str:
    return digest_of({key: value for key, value in config.items() if key != "seed"})


def round_numbers(value: Any) -> Any:
    """Return a value with its numbers rounded to six digits, as packed runs have them."""
    if isinstance(value, dict):
        return {key: round_numbers(part) for key, part in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value


def existing_folder(results: Path | str) -> Path:
    """Return a results folder; CandidError if there is none, which is more likely a typing error than an empty folder."""
    if not Path(results).is_dir():
        raise CandidError(f"There is no results folder {results}; name a folder with runs.")
    return Path(results)


# Frames ---------------------------------------------------------------------------------------------------------------


def runs(results: Path | str = "results", profile: str | None = None, tuning: bool = False) -> pandas.DataFrame:
    """Return one row per run; of a plug-in that was edited, the newest version. See docs/results.md for the columns."""
    return run_frame(current_runs(results, profile, tuning=tuning))


def load(results: Path | str = "results", profile: str | None = None, tuning: bool = False) -> pandas.DataFrame:
    """Return a row per run and epoch, the run's keys beside every recorded metric. See docs/results.md."""
    return epoch_frame(current_runs(results, profile, tuning=tuning))


def current_runs(
    results: Path | str,
    profile: str | None = None,
    plugins: Sequence[str] = (),
    tuning: bool = False,
) -> list[StoredRun]:
    """Return the runs that count, of everything or for a profile, in the version of their method that counts.

    With `tuning` also the runs of grid searches, of a profile those that were trained under its name.
    """
    from benchmark.config.selection import sources_of

    store = Store(existing_folder(results))
    stored = store.of_profile(profile, plugins) + (store.tuning_runs(profile) if tuning else [])
    current, notes = of_current_sources(stored, sources_of(plugins))
    for note in notes:
        warn(note)
    return current


def of_current_sources(
    stored: Sequence[StoredRun], plugin_sources: Mapping[str, str] | None = None
) -> tuple[list[StoredRun], list[str]]:
    """Return the runs whose version of their method counts, and a sentence about the others, if there are any.

    The version that counts is that of a given plug-in, else that of the run that was finished last.
    """

    def age(run: StoredRun) -> tuple[bool, str, str]:
        times = run.document["time"]
        return run.document["status"] == "done", str(times.get("finished") or times.get("started") or ""), run.source

    current = {run.document["method"]: run.source for run in sorted(stored, key=age)}
    current |= {method: source[:SOURCE_LENGTH] for method, source in (plugin_sources or {}).items()}
    current_runs = [run for run in stored if run.source == current[run.document["method"]]]
    older = len(stored) - len(current_runs)
    return current_runs, [f"{plural(older, 'run')} of older versions of a plug-in left out."] if older else []


THEN = " then "


def run_frame(runs: Iterable[StoredRun]) -> pandas.DataFrame:
    """Return the frame of `runs()` of these."""
    import pandas

    return pandas.DataFrame([_row(run) for run in runs], columns=list(_row_columns()))


def _row_columns() -> tuple[str, ...]:
    return (
        "profile", "dataset", "method", "source", "label", "seed", "identity", "config_digest", "candidates_sha256", "status",
        "reason", "epochs", "epochs_done", *SUMMARY, *UNSCORED, "train_accuracy", "commit", "code_version", "schema",
        "seconds_per_epoch", "images_per_second", "peak_memory_mb", "overrides", "device", "device_name", "test_rows", "weights_sha256", "path",
    )  # fmt: skip


def devices_of(document: dict[str, Any]) -> tuple[str, str]:
    """Return device and name of what a run was trained on; "A then B" if it was resumed on another kind."""
    places = [*(sitting.get("environment") for sitting in document.get("sittings") or []), document.get("environment")]
    named = [(str(p.get("device") or ""), str(p.get("device_name") or "")) for p in places if isinstance(p, dict)]
    same_kind = itertools.groupby(filter(any, named), lambda place: (place[0].split(":")[0], place[1]))
    last = [list(same)[-1] for _, same in same_kind]  # the number of the GPU does not matter
    return THEN.join(device for device, _ in last), THEN.join(name for _, name in last)


def _row(run: StoredRun) -> dict[str, Any]:
    document, summary, status = run.document, run.summary, run.status
    cost = document.get("cost") or {}
    environment = document.get("environment") or {}
    device, device_name = devices_of(document)
    row = {key: document.get(key) for key in _row_columns()}
    row |= {
        key: summary.get(key, math.nan) if status == "done" else math.nan
        for key in (*SUMMARY, *UNSCORED, "train_accuracy")
    }
    row |= {key: cost.get(key, math.nan) for key in ("seconds_per_epoch", "images_per_second", "peak_memory_mb")}
    row |= {
        "source": run.source,
        "status": status,
        "reason": document.get("reason") or ("cut off" if status != document["status"] else ""),
        "epochs": document.get("config", {}).get("train", {}).get("epochs"),
        "epochs_done": document.get("epochs_done", 0),
        "overrides": canonical(document.get("overrides") or {}),
        "commit": environment.get("commit", ""),
        "code_version": environment.get("code_version", ""),
        "device": printable(device),
        "device_name": printable(device_name),
        "test_rows": rows if isinstance(rows := document.get("test_rows"), int) and rows > 0 else None,
        "schema": document.get("schema", 0),
        "weights_sha256": document.get("weights_sha256", ""),
        "path": str(run.path),
    }
    return row


def epoch_frame(runs: Iterable[StoredRun]) -> pandas.DataFrame:
    """Return the frame of `load()` of these."""
    import pandas

    rows = []
    for run in runs:
        head = {key: run.document.get(key) for key in KEYS} | {"source": run.source, "status": run.status}
        rows += [head | {"epoch": record["epoch"]} | record["result"] | record["time"] for record in run.epochs()]
    frame = pandas.DataFrame(rows)
    if frame.empty:
        return pandas.DataFrame(columns=[*KEYS, "status", "epoch", "test_accuracy"])
    return frame


def predictions(run: StoredRun | Path | str) -> artifacts.Predictions | None:
    """Return the predictions of a finished run, from its folder; None if it stored none, as packed and early runs.

    The file is read only if its SHA-256 is the one in run.json; otherwise CandidError says so.
    """
    run = StoredRun(run.path if isinstance(run, StoredRun) else Path(run))
    document = run.read()
    if document is None and len(run.path.parents) > 1 and (run.path.parents[1] / PACKED).is_file():
        return None  # one of the runs of that file
    if document is None:
        raise CandidError(f"{run.path} is not a run folder: it has no readable run.json.")
    content = artifacts.read_checked(run.path, artifacts.PREDICTIONS, document)
    return None if content is None else artifacts.predictions_of(run.path / artifacts.PREDICTIONS, content)
