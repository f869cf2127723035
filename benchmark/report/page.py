"""`report`: one self-contained HTML page of a results folder. No torch, and no network when it is opened.

The page carries a fingerprint of its inputs and of the code; while that stays the same the file is left as it is,
which needs neither pandas nor SciPy and takes a fraction of a second.

What comes from results is data to the page: it stands in one JSON block without `<`, `>` and `&`, scripts make text
nodes of it, and the page's content security policy runs the one script with the right digest and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmark.errors import CandidError
from benchmark.files import ROOT, atomic_write, is_locked
from benchmark.report.scope import Scope
from benchmark.store import PACKED

FOLDER = Path(__file__).parent
SOURCES = (
    "benchmark/**/*.py", "benchmark/report/page.*", "benchmark/plan/profiles/*.toml",
    "datasets/**/*.py", "methods/**/*.py",
)  # fmt: skip
DIGITS = 5  # decimals of numbers in the page
MARK = re.compile(rb'<meta name="candid-fingerprint" content="([0-9a-f]{64})">')


def write_report(results: Path, out: Path, scope: Scope | None = None) -> Path:
    """Write the page, unless the one at `out` was made from the same files by the same code. Returns `out`."""
    mark = fingerprint(results, scope)
    if _is_current(out, mark):
        return out
    from benchmark.report.sections import collect

    page = assemble(collect(results, scope or Scope()), mark)
    try:
        atomic_write(out, page)
    except OSError as error:
        raise CandidError(
            f"The report {out} cannot be written ({error.strerror}); choose another file with --out."
        ) from None
    return out


def up_to_date(results: Path, out: Path, scope: Scope | None = None) -> bool:
    """Whether `write_report` would leave the page as it is."""
    return _is_current(out, fingerprint(results, scope))


def _is_current(out: Path, mark: str) -> bool:
    try:
        with out.open("rb") as stream:
            head = stream.read(4096)
            stream.seek(-16, os.SEEK_END)
            whole = stream.read().rstrip().endswith(b"</html>")
    except OSError:
        return False
    found = MARK.search(head)
    return whole and found is not None and found[1].decode() == mark


# fingerprint --------------------------------------------------------------------------------------------------------
def fingerprint(results: Path, scope: Scope | None = None) -> str:
    """SHA-256 of the code, of what was asked for, and of name, size and time of every file that the page is made from."""
    scope = scope or Scope()
    digest = hashlib.sha256(f"{scope}\n".encode())
    for path in _code(scope):
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    for point in sorted(str(p) for p in importlib.metadata.entry_points(group="candid.methods")):
        digest.update(point.encode())
    for line in _inputs(results):
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _code(scope: Scope) -> Iterator[Path]:
    for pattern in (*SOURCES, "results/published/*.csv"):
        yield from sorted(ROOT.glob(pattern))
    for name in (scope.profile or "", *scope.plugins):
        if name.endswith((".toml", ".py")) and Path(name).is_file():
            yield Path(name)


def _inputs(results: Path) -> Iterator[str]:
    for folder, depth in ((results / "runs", 4), (results / "runs", 1), (results / "candidates", 1)):
        for entry in _files(folder, depth):
            if entry.name in ("run.json", "metrics.jsonl", PACKED) or entry.name.endswith(".npz"):
                stat = entry.stat()
                yield f"{entry.path}\t{stat.st_size}\t{stat.st_mtime_ns}\n"
            elif entry.name == "lock" and is_locked(Path(entry.path)):
                yield f"{entry.path}\tlocked\n"  # tells a running run from one that was cut off


def _files(folder: Path | str, depth: int) -> Iterator[os.DirEntry[str]]:
    """Files exactly `depth` folders below, in a stable order."""
    try:
        with os.scandir(folder) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in ordered:
        if depth and entry.is_dir():
            yield from _files(entry.path, depth - 1)
        elif not depth and entry.is_file():
            yield entry


# page ---------------------------------------------------------------------------------------------------------------
def assemble(content: Mapping[str, Any], mark: str) -> str:
    """The page from its template, style, script and data."""
    style, script, template = (_part(suffix) for suffix in ("css", "js", "html"))
    policy = f"default-src 'none'; style-src '{_source(style)}'; script-src '{_source(script)}'; base-uri 'none'"
    parts = {"POLICY": policy, "FINGERPRINT": mark, "STYLE": style, "SCRIPT": script, "DATA": embed(content)}
    # One pass, so that nothing in the data can be taken for another placeholder.
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda match: parts[match[1]], template)


def _part(suffix: str) -> str:
    return (FOLDER / f"page.{suffix}").read_text(encoding="utf-8")


def _source(content: str) -> str:
    """An inline element as a content security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def embed(content: Any) -> str:
    """JSON that can stand in any HTML element: no character of it starts a tag, an entity or a comment."""
    encoded = json.dumps(compact(content), ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    return encoded


def compact(value: Any) -> Any:
    """Plain JSON values: numbers with few decimals (small ones with few digits), nan and infinities as null."""
    if isinstance(value, Mapping):
        return {str(k): compact(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [compact(v) for v in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        short = round(value, DIGITS) if abs(value) >= 0.01 else float(f"{value:.3g}")
        return int(short) if short == int(short) else short
    return value
