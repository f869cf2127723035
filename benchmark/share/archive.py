"""A bundle: one .tar.gz of a results folder that is fit to publish, and its way back to a folder.

It holds runs and candidate sets, no checkpoints, logs, tables or pages. Documents lose absolute paths, and unless asked
for host names and process numbers. The same folder gives the same bytes.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark import store
from benchmark.errors import CandidError, UsageError
from benchmark.files import is_bundle, refuse_links, without_paths
from benchmark.kept import PREDICTIONS
from benchmark.share.reading import MODEL_FILES, Held, candidate_files, regular, runs_in
from benchmark.store import canonical
from datasets.base import DataError
from datasets.storage.fetch import extract
from datasets.storage.files import atomic

LISTING = "bundle.json"
FORMAT = 1
PRIVATE = ("host", "pid", "command", "deaths")
KEPT = ("metrics.jsonl", "metrics.jsonl.gz", PREDICTIONS)


def published(document: dict[str, Any], hosts: bool) -> dict[str, Any]:
    """A document as it may be shown to anybody. Its configuration stays as it is: the identity is made of it."""
    dropped = () if hosts else PRIVATE
    shown = {key: value if key == "config" else without_paths(value) for key, value in document.items()}
    shown["time"] = {k: v for k, v in shown["time"].items() if k not in dropped}
    if "sittings" in shown:
        shown["sittings"] = [{k: v for k, v in sitting.items() if k not in dropped} for sitting in shown["sittings"]]
    return shown


@dataclass(frozen=True)
class Packed:
    """What went into a bundle, and what did not."""

    path: Path
    runs: int
    sets: int
    size: int
    left_out: tuple[str, ...]


def pack(results: Path, out: Path, profile: str | None = None, hosts: bool = False, models: bool = False) -> Packed:
    """Write the bundle of a results folder, or of the runs of one profile in it."""
    if not is_bundle(out):
        raise UsageError(f"--out {out}: a bundle's name ends in .tar.gz.")
    contents: dict[str, bytes | Path] = {}
    left_out, used, many = [], set(), 0
    for held in runs_in(store.existing(results)):
        if held.document is None:
            left_out.append(f"{held.place}: {held.problem}")
            continue
        if profile and held.document["profile"] != store.profile_name(profile):
            continue
        reason = _unfit(held.document)
        if reason:
            left_out.append(f"{held.place}: {reason}")
            continue
        contents |= _files_of(held, hosts, models)
        used.add(held.document.get("candidates_sha256"))
        many += 1
    if not many:
        raise CandidError(f"There are no finished runs{f' of profile {profile}' if profile else ''} in {results}.")
    sets = {sha: path for sha, path in candidate_files(results).items() if sha in used}
    contents |= {str(path.relative_to(results)): path for path in sets.values()}
    listing = {"format": FORMAT, "files": {name: _digest(content) for name, content in sorted(contents.items())}}
    contents[LISTING] = (json.dumps(listing, indent=1) + "\n").encode()
    size = _write(out, contents)
    return Packed(out, many, len(sets), size, tuple(left_out))


def _unfit(document: dict[str, Any]) -> str:
    if document["status"] != "done":
        return f"{document['status']}, not done"
    if without_paths(document["config"]) != document["config"]:
        return "its configuration names an absolute path, which is part of its identity"
    return ""


def _files_of(held: Held, hosts: bool, models: bool) -> dict[str, bytes | Path]:
    assert held.document is not None
    document = published(held.document, hosts)
    names = (*KEPT, *(MODEL_FILES if models else ()))
    files: dict[str, bytes | Path] = {n: held.path / n for n in names if regular(held.path / n)}
    if held.packed:
        files["metrics.jsonl"] = "".join(f"{canonical(record)}\n" for record in held.packed.epochs()).encode()
    if "files" in document:  # a hash of something that is not in the bundle would read as a loss
        document["files"] = {name: digest for name, digest in document["files"].items() if name in files}
    files["run.json"] = (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()
    return {f"{held.place}/{name}": content for name, content in files.items()}


def _digest(content: bytes | Path) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _write(out: Path, contents: dict[str, bytes | Path]) -> int:
    try:
        with (
            atomic(out) as file,
            gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as stream,
            tarfile.open(fileobj=stream, mode="w") as archive,
        ):
            for name, content in sorted(contents.items()):
                entry = tarfile.TarInfo(name)  # owner 0, time 0
                entry.size = len(content) if isinstance(content, bytes) else content.stat().st_size
                with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as source:
                    archive.addfile(entry, source)
        return out.stat().st_size
    except OSError as error:
        raise CandidError(f"{out} cannot be written ({error.strerror}); choose another file with --out.") from None


@contextlib.contextmanager
def opened(place: Path, whole: bool = True) -> Iterator[Path]:
    """A results folder, or a bundle as one in a temporary place for as long as it is looked at.

    With `whole` a bundle that is not as its own listing says is refused.
    """
    if not place.is_file():
        store.existing(place)
        refuse_links(place)
        yield place
        return
    if not is_bundle(place):
        raise UsageError(f"{place} is neither a results folder nor a bundle (.tar.gz).")
    with tempfile.TemporaryDirectory(prefix="candid-") as temporary:
        folder = Path(temporary)
        try:
            extract(place, folder)
        except DataError as error:
            raise CandidError(str(error)) from None
        if not (folder / LISTING).is_file():
            raise CandidError(f"{place} is no bundle of Candid: it has no {LISTING}.")
        wrong = misfits(folder) if whole else []
        if wrong:
            more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            raise CandidError(f"{place} has been changed since it was packed: {wrong[0]}{more}; get it again.")
        yield folder


def misfits(folder: Path) -> list[str]:
    """How an unpacked bundle differs from its own listing; nothing for an ordinary results folder."""
    path = folder / LISTING
    if not path.is_file():
        return []
    try:
        listing = json.loads(path.read_text(encoding="utf-8"))
        files: dict[str, str] = dict(listing["files"])
    except (ValueError, KeyError, TypeError):
        return [f"{LISTING} is damaged"]
    there = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file() and p != path}
    return [
        *(f"{name} is in the listing but not in the bundle" for name in sorted(files.keys() - there.keys())),
        *(f"{name} is in the bundle but not in its listing" for name in sorted(there.keys() - files.keys())),
        *(f"{n} is not the file that was packed" for n in sorted(files.keys() & there.keys())
          if _digest(there[n]) != files[n]),
    ]  # fmt: skip
