"""Results on disk: one folder per run, atomic and locked, readable with pandas. Needs no torch.

    results/runs/<profile>/<dataset>/<method>/seed<k>-<identity8>/
        run.json        configuration, provenance, environment, status, and the summary once it is done
        metrics.jsonl   one line per epoch: {"epoch", "result": {…}, "time": {…}}
        predictions.npz test logits and the belief of the training rows after the last epoch; its SHA-256 in run.json
        checkpoint*.pt  while needed
        lock, log.txt
    results/runs/<profile>/packed.jsonl.gz      finished runs without their folders, as results/reference has them

`load()` gives one tidy frame of all epochs, `runs()` one row per run, `predictions()` the arrays of one run.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import itertools
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from benchmark import artifacts
from benchmark.accuracy import ACCURACIES
from benchmark.config.profile import profile_name
from benchmark.config.spec import SCHEMA, canonical, digest_of, identity_of
from benchmark.errors import CandidError, warn
from benchmark.files import Lock, atomic_write, file_name, is_locked, no_link, read_regular, set_aside

if TYPE_CHECKING:
    import pandas

ANNOTATOR_DOCUMENT = "annotator.json"  # in the folder of an annotator in training, see run/annotators.py
STATES = ("done", "running", "interrupted", "failed", "diverged", "oom")
PACKED = "packed.jsonl.gz"
SOURCE_LENGTH = 8  # characters of the digest of a plug-in's file
SUMMARY = tuple(accuracy.key for accuracy in ACCURACIES)
PERCENT = re.compile(r"accuracy|covering_rate")  # in the names of results
KEYS = (
    "profile",
    "dataset",
    "method",
    "source",
    "label",
    "seed",
    "identity",
)  # of a run, beside every epoch in `load()`
RESERVED = {*KEYS, "status", "epoch"}  # names that no metric may have
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # an escape that may stand for half a character
FOLDER_NAME = re.compile(r"seed(\d+)-([0-9a-f]{8})")


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
    """ValueError unless this is a run document with the fields that every reader of this schema relies on."""
    if not isinstance(document, dict) or document.get("status") not in STATES:
        raise ValueError("not a run document")
    for key in ("summary", "cost", "environment", "overrides", "provenance", "files"):
        if not isinstance(document.get(key) or {}, dict):
            raise ValueError(f"{key} is no table")
    if type(document.get("schema", SCHEMA)) is not int:
        raise ValueError("schema is not an integer")
    if document.get("schema", SCHEMA) != SCHEMA:
        return  # written by another version: `check_schema` says so where it matters
    texts = ("profile", "dataset", "method", "label", "identity", "config_digest")
    if not all(isinstance(document.get(key), str) for key in texts) or not is_count(document.get("seed")):
        raise ValueError("a field is missing or of another kind")
    sittings = document.get("sittings", [])
    if not isinstance(sittings, list) or not all(isinstance(sitting, dict) for sitting in sittings):
        raise ValueError("the sittings are no list of tables")
    config, time = document.get("config"), document.get("time")
    if not isinstance(config, dict) or not isinstance(time, dict) or not isinstance(config.get("train"), dict):
        raise ValueError("no configuration or no times")
    if not is_count(config["train"].get("epochs")):
        raise ValueError("no number of epochs")
    optional = ("reason", "candidates_sha256", "weights_sha256", "data_file", "network")
    if not all(isinstance(document.get(key, ""), str) for key in optional):
        raise ValueError("a text is of another kind")
    if not all(isinstance(digest, str) for digest in (document.get("files") or {}).values()):
        raise ValueError("a digest of a file is no text")
    for key, value in {**(document.get("summary") or {}), **(document.get("cost") or {})}.items():
        if not is_result(key, value):
            raise ValueError(f"{key} has an impossible value")
    if not is_count(document.get("epochs_done", 0)):
        raise ValueError("epochs_done is not a non-negative integer")
    unscored = document.get("scored") is False  # its test rows have no true labels
    if document["status"] == "done" and not unscored and not is_number((document.get("summary") or {}).get("accuracy")):
        raise ValueError("done without a result")


def is_number(value: Any) -> bool:
    """Whether a value is a finite number that a float can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300


def is_count(value: Any) -> bool:
    """Whether a value is a non-negative integer of ordinary size."""
    return type(value) is int and 0 <= value < 1 << 63


def is_result(key: str, value: Any) -> bool:
    """Whether a value can be the result of that name: a number or nothing, and an accuracy lies between 0 and 100."""
    if value is None:
        return True
    return is_number(value) and (not PERCENT.search(key) or 0 <= value <= 100)


def is_epoch(record: Any, number: int) -> bool:
    """Whether a line of metrics.jsonl is the record of that epoch."""
    if not isinstance(record, dict) or record.get("epoch") != number:
        return False
    result, time = record.get("result"), record.get("time")
    if not isinstance(result, dict) or not isinstance(time, dict) or not is_number(time.get("seconds")):
        return False
    if not all(value is None or is_number(value) for value in time.values()):
        return False
    return not RESERVED & result.keys() and all(is_result(key, value) for key, value in result.items())


def record_digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a run document without the field that holds it, and without names of hosts and times."""
    sessions = [session.get("environment") for session in document.get("sittings") or []]
    fields = {key: value for key, value in document.items() if key not in ("record_sha256", "time", "sittings")}
    return digest_of(fields | {"sittings": sessions})


def epochs_digest(records: Iterable[dict[str, Any]]) -> str:
    """Return the SHA-256 of the lines of metrics.jsonl that hold these records."""
    return hashlib.sha256("".join(f"{canonical(record)}\n" for record in records).encode()).hexdigest()


def printable(value: Any) -> Any:
    """Text without control characters: a document from elsewhere must not steer the terminal that shows it."""
    if isinstance(value, str) and not value.isprintable():
        return "".join(c if c.isprintable() else " " for c in value)
    return value


def unpacked(path: Path, limit: int = 1 << 27) -> bytes:
    """A gzip file's content; of a damaged one, or one that unpacks to more than `limit` bytes, nothing."""
    try:
        with gzip.open(path) as stream:
            content = stream.read(limit + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        content = b""
    if not 0 < len(content) <= limit:
        warn(f"{path} is damaged or too large; its runs are left out.")
        return b""
    return content


@dataclass
class RunFolder:
    """One run on disk."""

    path: Path

    @functools.cached_property
    def lock(self) -> Lock:
        return Lock(self.path / "lock")

    @property
    def document_path(self) -> Path:
        return self.path / "run.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    def read(self) -> dict[str, Any] | None:
        """run.json, or None if there is none; a damaged one is set aside with one warning."""
        try:
            document = parse_json(read_regular(self.document_path))
            check_document(document)
        except FileNotFoundError:
            return None
        except ValueError as error:
            self._set_aside(str(error))
            return None
        except OSError as error:
            warn(f"{self.document_path} cannot be read ({error.strerror}).")
            return None
        return {key: printable(value) for key, value in document.items()}

    def _set_aside(self, reason: str) -> None:
        try:
            aside = set_aside(self.document_path)
        except FileNotFoundError:
            return  # another process has just done it, and has said so
        except OSError as error:
            warn(f"{self.document_path} is damaged ({reason}) and cannot be moved ({error.strerror}); it is left out.")
        else:
            warn(
                f"{self.document_path} is damaged ({reason}); it was set aside as {aside.name} and the run will be repeated."
            )

    def write(self, document: dict[str, Any]) -> None:
        document = document | {"record_sha256": record_digest(document)}
        atomic_write(self.document_path, json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n")

    def epochs(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl that are whole and in sequence: a cut-off tail is not an epoch."""
        try:
            lines = read_regular(self.metrics).removesuffix(b"\n").split(b"\n")
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            warn(
                f"{self.metrics} cannot be read ({getattr(error, 'strerror', None) or error}); its epochs are left out."
            )
            return []
        try:  # one call to the parser takes half the time of one per line
            records = parse_json(b"[" + b",".join(lines) + b"]")
        except ValueError:
            records = []
        if len(records) == len(lines) and all(is_epoch(record, k) for k, record in enumerate(records)):
            return records
        return self._whole_epochs(lines)

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
        """Keep the first `count` epochs: what a checkpoint does not know of will be run again."""
        lines = [canonical(record) for record in self.epochs()[:count]]
        atomic_write(self.metrics, "".join(f"{line}\n" for line in lines))

    def append_epoch(self, record: dict[str, Any]) -> None:
        with open(self.metrics, "a", encoding="utf-8", opener=no_link) as stream:
            stream.write(canonical(record) + "\n")


@dataclass
class PackedRun(RunFolder):
    """A finished run that a file of many holds; its folder is not on disk."""

    records: list[dict[str, Any]] = field(default_factory=list)

    def epochs(self) -> list[dict[str, Any]]:
        return self.records


class Named(Protocol):
    """What a run is filed under."""

    @property
    def profile(self) -> str: ...
    @property
    def dataset(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def digest(self) -> str: ...


def method_folder(results: Path, run: Named) -> Path:
    return results.joinpath("runs", *(file_name(part) for part in (run.profile, run.dataset, run.method)))


def run_folder(results: Path, run: Named, identity: str) -> RunFolder:
    return RunFolder(method_folder(results, run) / f"seed{run.seed}-{identity[:8]}")


def find(results: Path, run: Named) -> tuple[RunFolder, dict[str, Any]] | None:
    """The run of this configuration on disk, if it was ever started. Needs no candidate set."""
    for path in sorted(method_folder(results, run).glob(f"seed{run.seed}-*/run.json")):
        folder = RunFolder(path.parent)
        document = folder.read()
        if document is not None and document.get("config_digest") == run.digest:
            return folder, document
    return None


def done_elsewhere(results: Path, run: Named, identity: str) -> tuple[RunFolder, dict[str, Any]] | None:
    """The finished run of this identity that another profile has done."""
    place = "/".join(("*", file_name(run.dataset), file_name(run.method), f"seed{run.seed}-{identity[:8]}", "run.json"))
    for path in sorted((results / "runs").glob(place)):
        folder = RunFolder(path.parent)
        document = folder.read()
        if document is not None and document.get("identity") == identity and document["status"] == "done":
            return folder, document
    return None


def documents(results: Path, profile: str | None = None) -> Iterator[tuple[RunFolder, dict[str, Any]]]:
    """Every run and its document, in a stable order. A folder copied from elsewhere is just more data."""
    part = file_name(profile_name(profile)) if profile else "*"
    identities: set[str] = set()
    strange: list[Path] = []
    for path in sorted((results / "runs").glob(f"{part}/*/*/*/run.json")):
        folder = RunFolder(path.parent)
        if FOLDER_NAME.fullmatch(path.parent.name) is None:
            strange.append(path.parent)
            continue
        document = folder.read()
        if document is None:
            continue
        if not is_at_home(path.parent.name, document) or document["identity"] in identities:
            strange.append(path.parent)
            continue
        identities.add(document.get("identity", str(path)))
        yield folder, document
    for path in sorted((results / "runs").glob(f"{part}/{PACKED}")):
        for run, document in packed_runs(path):
            if run.path.is_dir() or document["identity"] in identities:
                continue
            identities.add(document["identity"])
            yield run, document
    if strange:
        more = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
        warn(f"{strange[0]}{more}: copies, leftovers or runs whose identity does not fit their content; left out.")


def is_at_home(name: str, document: dict[str, Any]) -> bool:
    """Whether a folder's name and a run's identity follow from its content; not asked of another schema."""
    if document.get("schema", SCHEMA) != SCHEMA:
        return True
    identity = document["identity"]
    try:
        digest = digest_of(document["config"])
    except ValueError:  # a lone surrogate, which UTF-8 cannot express
        return False
    return (
        name == f"seed{document['seed']}-{identity[:8]}"
        and document["config_digest"] == digest
        and identity == identity_of(digest, document.get("candidates_sha256", ""))
    )


def packed_runs(path: Path) -> Iterator[tuple[PackedRun, dict[str, Any]]]:
    """The runs of a packed file, a line each: {"run": its document, "epochs": its records}."""
    for number, line in enumerate(unpacked(path).splitlines()):
        try:
            entry = parse_json(line)
            document, records = entry["run"], entry["epochs"]
            check_document(document)
            if not all(is_epoch(record, k) for k, record in enumerate(records)):
                raise ValueError("an epoch is missing")
            document = {key: printable(value) for key, value in document.items()}
            names = [file_name(document[key]) for key in ("dataset", "method")]
            place = path.parent.joinpath(*names, f"seed{document['seed']}-{document['identity'][:8]}")
        except (ValueError, KeyError, TypeError):
            warn(f"{path}: run {number + 1} is damaged and left out.")
            continue
        yield PackedRun(place, records=records), document


def rounded(value: Any) -> Any:
    """Return a value with its numbers rounded to six digits, as packed runs have them."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value


def existing(results: Path | str) -> Path:
    """A results folder that is to be read; one that is not there is more likely a slip than an empty one."""
    if not Path(results).is_dir():
        raise CandidError(f"There is no results folder {results}; name one that a run has written to.")
    return Path(results)


def state_of(folder: RunFolder, document: dict[str, Any]) -> str:
    """The status as it is now: 'running' without a living owner was cut off."""
    status = document["status"]
    return "interrupted" if status == "running" and not is_locked(folder.lock.path) else status


Runs = Iterable[tuple[RunFolder, dict[str, Any]]]


def runs(results: Path | str = "results", profile: str | None = None) -> pandas.DataFrame:
    """Return one row per run; of a plug-in that was edited, the newest version. See docs/results.md for the columns."""
    return run_frame(current_runs(results, profile))


def current_runs(
    results: Path | str, profile: str | None = None, sources: Mapping[str, str] | None = None
) -> list[Any]:
    """Return the runs whose version of their method counts, and warn about the others; see `current_sources`."""
    everything = list(documents(existing(results), profile))
    current = current_sources((document for _, document in everything), sources)
    counting = [run for run in everything if source_of(run[1]) == current[str(run[1].get("method"))]]
    if len(counting) < len(everything):
        warn(older_versions_note(len(everything) - len(counting)))
    return counting


def source_of(document: Mapping[str, Any]) -> str:
    """Return the short digest of the plug-in file of a run's method; empty for a built-in method."""
    config = document.get("config")
    method = config.get("method") if isinstance(config, dict) else None
    source = method.get("source") if isinstance(method, dict) else None
    return source[:SOURCE_LENGTH] if isinstance(source, str) else ""


def current_sources(documents: Iterable[Mapping[str, Any]], given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return for each method the version that counts: the given one, else that of the run that was finished last."""
    newest: dict[str, tuple[bool, str, str]] = {}
    for document in documents:
        time = document.get("time")
        times = time if isinstance(time, dict) else {}
        last = str(times.get("finished") or times.get("started") or "")
        method, run = str(document.get("method")), (document.get("status") == "done", last, source_of(document))
        newest[method] = max(run, newest.get(method, run))
    current = {method: source for method, (_, _, source) in newest.items()}
    return current | {method: source[:SOURCE_LENGTH] for method, source in (given or {}).items()}


def older_versions_note(runs: int) -> str:
    return f"{runs} run{'s' if runs > 1 else ''} of older versions of a plug-in {'are' if runs > 1 else 'is'} left out."


THEN = " then "


def run_frame(runs: Runs) -> pandas.DataFrame:
    """The frame of `runs()` of these."""
    import pandas

    return pandas.DataFrame([_row(*run) for run in runs], columns=list(_row_columns()))


def _row_columns() -> tuple[str, ...]:
    return (
        "profile", "dataset", "method", "source", "label", "seed", "identity", "config_digest", "candidates_sha256", "status",
        "reason", "epochs", "epochs_done", *SUMMARY, "train_accuracy", "commit", "code_version", "schema", "seconds_per_epoch",
        "images_per_second", "peak_memory_mb", "overrides", "device", "device_name", "test_rows", "weights_sha256", "path",
    )  # fmt: skip


def devices_of(document: dict[str, Any]) -> tuple[str, str]:
    """Device and name of what a run was trained on; "A then B", in both, if it went on on another kind, which no exact
    repetition can follow."""
    places = [*(sitting.get("environment") for sitting in document.get("sittings") or []), document.get("environment")]
    known = [(str(p.get("device") or ""), str(p.get("device_name") or "")) for p in places if isinstance(p, dict)]
    kinds = itertools.groupby(
        (k for k in known if any(k)), lambda k: (k[0].split(":")[0], k[1])
    )  # which card is no matter
    last = [list(same)[-1] for _, same in kinds]
    return THEN.join(device for device, _ in last), THEN.join(name for _, name in last)


def _row(folder: RunFolder, document: dict[str, Any]) -> dict[str, Any]:
    summary, cost = document.get("summary") or {}, document.get("cost") or {}
    environment = document.get("environment") or {}
    device, device_name = devices_of(document)
    status = state_of(folder, document)
    row = {key: document.get(key) for key in _row_columns()}
    row |= {key: summary.get(key, math.nan) if status == "done" else math.nan for key in (*SUMMARY, "train_accuracy")}
    row |= {key: cost.get(key, math.nan) for key in ("seconds_per_epoch", "images_per_second", "peak_memory_mb")}
    row |= {
        "source": source_of(document),
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
        "path": str(folder.path),
    }
    return row


def load(results: Path | str = "results", profile: str | None = None) -> pandas.DataFrame:
    """One tidy frame: a row per run and epoch, the run's keys beside every recorded metric. See docs/results.md."""
    return epoch_frame(current_runs(results, profile))


def epoch_frame(runs: Runs) -> pandas.DataFrame:
    """The frame of `load()` of these."""
    import pandas

    rows = []
    for folder, document in runs:
        head = {key: document.get(key) for key in KEYS}
        head |= {"source": source_of(document), "status": state_of(folder, document)}
        for record in folder.epochs():
            rows.append({**head, "epoch": record["epoch"], **record.get("result", {}), **record.get("time", {})})
    frame = pandas.DataFrame(rows)
    if frame.empty:
        return pandas.DataFrame(columns=[*KEYS, "status", "epoch", "test_accuracy"])
    return frame


def predictions(folder: RunFolder | Path | str) -> artifacts.Predictions | None:
    """What a finished run predicted, from its folder; None if it kept nothing, as runs before there was such a file.

    The file is read only if its SHA-256 is the one in run.json; otherwise CandidError says so.
    """
    run = folder if isinstance(folder, RunFolder) else RunFolder(Path(folder))
    document = run.read()
    if document is None and len(run.path.parents) > 2 and (run.path.parents[2] / PACKED).is_file():
        return None  # one of the runs of that file, which keeps no predictions
    if document is None:
        raise CandidError(f"{run.path} is no run folder: it has no readable run.json.")
    content = artifacts.checked(run.path, artifacts.PREDICTIONS, document)
    return None if content is None else artifacts.predictions_of(run.path / artifacts.PREDICTIONS, content)


def check_schema(frame: pandas.DataFrame) -> None:
    """Refuse results of another version of the schema: their fields may mean something else."""
    other = frame[frame["schema"] != SCHEMA]
    if len(other):
        first = other.iloc[0]
        raise CandidError(
            f"{len(other)} run(s) were written with schema {first['schema']}, this program reads schema {SCHEMA} "
            f"(first: {first['path']}); move them away or use the matching version of Candid."
        )
