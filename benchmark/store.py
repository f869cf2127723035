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

import gzip
import hashlib
import itertools
import json
import math
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from benchmark import kept
from benchmark.accuracy import ACCURACIES
from benchmark.errors import CandidError, warn
from benchmark.files import Lock, atomic_write, file_name, is_locked, no_link, set_aside
from benchmark.versions import Versions, Wanted, source_of

if TYPE_CHECKING:
    import pandas

SCHEMA = 1  # of run.json and metrics.jsonl
ANNOTATOR_DOCUMENT = "annotator.json"  # in the folder of an annotator in training, see run/annotators.py
STATES = ("done", "running", "interrupted", "failed", "diverged", "oom")
PACKED = "packed.jsonl.gz"
SUMMARY = tuple(accuracy.key for accuracy in ACCURACIES)


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest_of(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def profile_name(given: str) -> str:
    """The name under which runs are kept: of a profile that was given as a file, its stem."""
    return Path(given).stem if given.endswith(".toml") else given


def check_document(document: Any) -> None:
    """ValueError unless this is a run document with the fields that every reader of this schema relies on."""
    if not isinstance(document, dict) or document.get("status") not in STATES:
        raise ValueError("not a run document")
    for key in ("summary", "cost", "environment", "overrides", "provenance", "files"):
        if not isinstance(document.get(key) or {}, dict):
            raise ValueError(f"{key} is no table")
    if not isinstance(document.get("schema", SCHEMA), int):
        raise ValueError("the schema is no number")
    if document.get("schema", SCHEMA) != SCHEMA:
        return  # written by another version: `check_schema` says so where it matters
    texts = ("profile", "dataset", "method", "label", "identity", "config_digest")
    if not all(isinstance(document.get(key), str) for key in texts) or not isinstance(document.get("seed"), int):
        raise ValueError("a field is missing or of another kind")
    sittings = document.get("sittings", [])
    if not isinstance(sittings, list) or not all(isinstance(sitting, dict) for sitting in sittings):
        raise ValueError("the sittings are no list of tables")
    config, time = document.get("config"), document.get("time")
    if not isinstance(config, dict) or not isinstance(time, dict) or not isinstance(config.get("train"), dict):
        raise ValueError("no configuration or no times")
    if not isinstance(config["train"].get("epochs"), int):
        raise ValueError("no number of epochs")
    optional = ("reason", "candidates_sha256", "weights_sha256", "data_file", "network")
    if not all(isinstance(document.get(key, ""), str) for key in optional):
        raise ValueError("a text is of another kind")
    if not all(isinstance(digest, str) for digest in (document.get("files") or {}).values()):
        raise ValueError("a digest of a file is no text")
    numbers = [*(document.get("summary") or {}).values(), *(document.get("cost") or {}).values()]
    if not all(value is None or isinstance(value, int | float) for value in [*numbers, document.get("epochs_done")]):
        raise ValueError("a number is of another kind")
    unscored = document.get("scored") is False  # its test rows have no true labels
    if document["status"] == "done" and not unscored and not is_number((document.get("summary") or {}).get("accuracy")):
        raise ValueError("done without a result")


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max  # isfinite fails on a huge integer


def is_epoch(record: Any, number: int) -> bool:
    """Whether a line of metrics.jsonl is the record of that epoch."""
    if not isinstance(record, dict) or record.get("epoch") != number:
        return False
    result, time = record.get("result"), record.get("time")
    if not isinstance(result, dict) or not isinstance(time, dict) or not is_number(time.get("seconds")):
        return False
    return all(value is None or isinstance(value, int | float) for value in result.values())


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
    lock: Lock = field(init=False)

    def __post_init__(self) -> None:
        self.lock = Lock(self.path / "lock")

    @property
    def document_path(self) -> Path:
        return self.path / "run.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    def read(self) -> dict[str, Any] | None:
        """run.json, or None if there is none; a damaged one is set aside with one warning."""
        try:
            document = json.loads(self.document_path.read_text(encoding="utf-8"))
            check_document(document)
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):
            self._set_aside()
            return None
        except OSError as error:
            warn(f"{self.document_path} cannot be read ({error.strerror}).")
            return None
        return {key: printable(value) for key, value in document.items()}

    def _set_aside(self) -> None:
        try:
            aside = set_aside(self.document_path)
        except FileNotFoundError:
            return  # another process has just done it, and has said so
        except OSError as error:
            warn(f"{self.document_path} is damaged and cannot be moved ({error.strerror}); it is left out.")
        else:
            warn(f"{self.document_path} is damaged; it was set aside as {aside.name} and the run will be repeated.")

    def write(self, document: dict[str, Any]) -> None:
        atomic_write(self.document_path, json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n")

    def epochs(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl that are whole and in sequence: a cut-off tail is not an epoch."""
        try:
            lines = self.metrics.read_bytes().removesuffix(b"\n").split(b"\n")
        except FileNotFoundError:
            return []
        try:  # one call to the parser takes half the time of one per line
            records = json.loads(b"[" + b",".join(lines) + b"]")
        except (ValueError, RecursionError):
            records = []
        if len(records) == len(lines) and all(is_epoch(record, k) for k, record in enumerate(records)):
            return records
        found: list[dict[str, Any]] = []
        for line in lines:
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                break
            if not is_epoch(record, len(found)):
                break
            found.append(record)
        return found

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


def done_elsewhere(results: Path, run: Named, identity: str) -> dict[str, Any] | None:
    """The finished run of this identity that another profile has done."""
    place = "/".join(("*", file_name(run.dataset), file_name(run.method), f"seed{run.seed}-{identity[:8]}", "run.json"))
    for path in sorted((results / "runs").glob(place)):
        document = RunFolder(path.parent).read()
        if document is not None and document.get("identity") == identity and document["status"] == "done":
            return document
    return None


def documents(results: Path, profile: str | None = None) -> Iterator[tuple[RunFolder, dict[str, Any]]]:
    """Every run and its document, in a stable order. A folder copied from elsewhere is just more data."""
    part = file_name(profile_name(profile)) if profile else "*"
    for path in sorted((results / "runs").glob(f"{part}/*/*/*/run.json")):
        folder = RunFolder(path.parent)
        document = folder.read()
        if document is not None:
            yield folder, document
    for path in sorted((results / "runs").glob(f"{part}/{PACKED}")):
        for run, document in packed_runs(path):
            if not run.path.is_dir():
                yield run, document


def packed_runs(path: Path) -> Iterator[tuple[PackedRun, dict[str, Any]]]:
    """The runs of a packed file, a line each: {"run": its document, "epochs": its records}."""
    for number, line in enumerate(unpacked(path).splitlines()):
        try:
            entry = json.loads(line)
            document, records = entry["run"], entry["epochs"]
            check_document(document)
            if not all(is_epoch(record, k) for k, record in enumerate(records)):
                raise ValueError("an epoch is missing")
            document = {key: printable(value) for key, value in document.items()}
            names = [file_name(document[key]) for key in ("dataset", "method")]
            place = path.parent.joinpath(*names, f"seed{document['seed']}-{document['identity'][:8]}")
        except (ValueError, KeyError, TypeError, RecursionError):
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


def runs(results: Path | str = "results", profile: str | None = None, versions: Wanted = "newest") -> pandas.DataFrame:
    """One row per run. See docs/results.md for the columns.

    Of a plug-in that was edited the newest version counts, unless `versions` names the source of a method; with "all"
    the others are there too, with their date in the label.
    """
    return run_frame(chosen(results, profile, versions))


def chosen(results: Path | str, profile: str | None = None, versions: Wanted = "newest") -> list[Any]:
    """The runs whose version of the method counts; what is left out is said."""
    found = list(documents(existing(results), profile))
    known = Versions((document for _, document in found), versions)
    for note in known.notes():
        warn(note)
    kept = [(folder, document) for folder, document in found if known.keeps(document)]
    return [
        (folder, document | {"label": f"{document.get('label')}{known.mark(document)}"}) for folder, document in kept
    ]


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


def load(results: Path | str = "results", profile: str | None = None, versions: Wanted = "newest") -> pandas.DataFrame:
    """One tidy frame: a row per run and epoch, the run's keys beside every recorded metric. See docs/results.md."""
    return epoch_frame(chosen(results, profile, versions))


def epoch_frame(runs: Runs) -> pandas.DataFrame:
    """The frame of `load()` of these."""
    import pandas

    keys = ("profile", "dataset", "method", "source", "label", "seed", "identity")
    rows = []
    for folder, document in runs:
        head = {key: document.get(key) for key in keys}
        head |= {"source": source_of(document), "status": state_of(folder, document)}
        for record in folder.epochs():
            rows.append({**head, "epoch": record["epoch"], **record.get("result", {}), **record.get("time", {})})
    frame = pandas.DataFrame(rows)
    if frame.empty:
        return pandas.DataFrame(columns=[*keys, "status", "epoch", "test_accuracy"])
    return frame


def predictions(folder: RunFolder | Path | str) -> kept.Predictions | None:
    """What a finished run predicted, from its folder; None if it kept nothing, as runs before there was such a file.

    The file is read only if its SHA-256 is the one in run.json; otherwise CandidError says so.
    """
    run = folder if isinstance(folder, RunFolder) else RunFolder(Path(folder))
    document = run.read()
    if document is None and len(run.path.parents) > 2 and (run.path.parents[2] / PACKED).is_file():
        return None  # one of the runs of that file, which keeps no predictions
    if document is None:
        raise CandidError(f"{run.path} is no run folder: it has no readable run.json.")
    content = kept.checked(run.path, kept.PREDICTIONS, document)
    return None if content is None else kept.predictions_of(run.path / kept.PREDICTIONS, content)


def check_schema(frame: pandas.DataFrame) -> None:
    """Refuse results of another version of the schema: their fields may mean something else."""
    other = frame[frame["schema"] != SCHEMA]
    if len(other):
        first = other.iloc[0]
        raise CandidError(
            f"{len(other)} run(s) were written with schema {first['schema']}, this program reads schema {SCHEMA} "
            f"(first: {first['path']}); move them away or use the matching version of Candid."
        )
