"""Golden numbers of the whole program: run specifications, trained weights, candidate sets, tables of stored results.

They protect every refactoring: none of them may change unless a change of results is the purpose. An entry is renewed in a
commit of its own that says why:

    ./reproduce.sh python -m tests.golden.record specs|trainings|candidates|tables
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.cli import main as cli
from benchmark.files import ROOT, atomic_write

HERE = Path(__file__).parent
PROFILE = HERE / "golden.toml"
REFERENCE = ROOT / "results" / "reference"
TABLES = {
    f"{table}-{profile}": (table, "--profile", profile)
    for profile in ("quick", "frozen")
    for table in ("table2", "table3", "table4")
} | {"realworld": ("realworld",), "realworld-all": ("realworld", "--all-methods")}
KIND = ("torch", "cpu_capability", "device_name")  # as `verify`: MKL takes other kernels on other makes of CPU


def specs() -> dict[str, Any]:
    """Return, for every profile, dataset and method, the configuration of the first seed and a digest of all seeds."""
    from benchmark.config.profile import profile_names
    from benchmark.config.selection import select
    from methods.registry import discover

    found: dict[str, Any] = {}
    for profile in profile_names():
        words: dict[str, Any] = {"methods": "all"}
        if profile == "own":  # it names neither methods nor datasets
            words = {"methods": ",".join(discover().entries), "datasets": "digits", "seeds": "0"}
        groups: dict[str, list[Any]] = {}
        for spec in select(profile, **words).specs():
            groups.setdefault(f"{profile}/{spec.dataset}/{spec.label}", []).append(spec)
        for name, group in groups.items():
            digests = hashlib.sha256("".join(spec.digest for spec in group).encode()).hexdigest()
            found[name] = [len(group), digests, json.dumps(group[0].to_json(), sort_keys=True)]
    return found


def trainings() -> dict[str, Any]:
    """Train every method for two epochs on digits with uniform candidate sets; return weights and epoch results."""
    from benchmark.runner import provenance
    from methods.registry import discover

    with tempfile.TemporaryDirectory() as folder:
        words = ("run", "--profile", PROFILE, "--methods", ",".join(discover().entries), "--device", "cpu", "--quiet")
        call(*words, "--results", folder, "--data", folder)
        runs = {}
        for path in sorted(Path(folder).glob("runs/**/run.json")):
            run = json.loads(path.read_text())
            lines = (path.parent / "metrics.jsonl").read_text().splitlines()
            runs[run["method"]] = {
                "status": run["status"],
                "candidates": run["candidates_sha256"],
                "weights": run["weights_sha256"],
                "identity": run["identity"],
                "summary": run["summary"],
                "test_rows": run["test_rows"],
                "epochs": [json.loads(line)["result"] for line in lines],
            }
    here = provenance.environment("cpu")
    return {"kind": {key: here[key] for key in KIND}, "runs": runs}


def candidates() -> dict[str, Any]:
    """Build the candidate sets of the embedded benchmark for one seed, annotators included; return their SHA-256."""
    from benchmark.runner import provenance

    with tempfile.TemporaryDirectory() as folder:
        call(
            "candidates", "--profile", "quick", "--seeds", "0", "--results", folder, "--data", folder, "--device", "cpu"
        )
        sets = {}
        for path in sorted(Path(folder).glob("candidates/**/*.npz")):
            with np.load(path) as arrays:
                meta = json.loads(arrays["meta"].tobytes())
            sets["/".join(path.relative_to(folder).parts[:2])] = meta["sha256"]
    here = provenance.environment("cpu")
    return {"kind": {key: here[key] for key in KIND}, "sets": sets}


def tables(*names: str) -> dict[str, Any]:
    """Make tables of the stored reference results, all by default; return their CSV files."""
    made = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names or TABLES:
            out = Path(folder, f"{name}.csv")
            call(*TABLES[name], "--no-run", "--quiet", "--results", REFERENCE, "--out", out, accept=(0, 3))
            made[name] = out.read_text(encoding="utf-8")
    return made


def call(*words: object, accept: tuple[int, ...] = (0,)) -> None:
    """Run one command of the program in this process, without its output."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = cli.main([str(word) for word in words])
    if code not in accept:
        raise RuntimeError(f"{' '.join(map(str, words))} ended with {code}: {output.getvalue()[-2000:]}")


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "specs": specs,
    "trainings": trainings,
    "candidates": candidates,
    "tables": tables,
}


def stored(part: str) -> dict[str, Any]:
    """Return the golden numbers of one part."""
    return json.loads(gzip.decompress((HERE / f"{part}.json.gz").read_bytes()))


def record(part: str) -> None:
    """Write the golden numbers of one part."""
    text = json.dumps(PARTS[part](), sort_keys=True, ensure_ascii=False)
    atomic_write(HERE / f"{part}.json.gz", gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    if not sys.argv[1:] or set(sys.argv[1:]) - PARTS.keys():
        sys.exit(f"Name what is to be renewed: {', '.join(PARTS)}.")
    for part in sys.argv[1:]:
        record(part)
