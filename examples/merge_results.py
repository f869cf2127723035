"""Copy the finished runs of one results folder that another lacks, with their candidate sets.

    ./reproduce.sh python examples/merge_results.py their-results results --dry-run

Nothing is overwritten. If both folders have a candidate set of the same name with other labels, nothing is copied: runs
on two candidate sets cannot be compared. Check a folder from elsewhere with `verify` first.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np


def candidates_digest(path: Path) -> str:
    """Return the SHA-256 of a stored candidate set, which run.json names `candidates_sha256`."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            rows, classes = arrays["shape"]
            return hashlib.sha256(f"{rows}x{classes}:".encode() + arrays["bits"].tobytes()).hexdigest()
    except Exception:  # a damaged file raises errors of many kinds
        sys.exit(f"{path} is damaged; nothing was copied.")


def missing_runs(source: Path, target: Path) -> dict[Path, str]:
    """Return the finished runs that the target lacks, each with the SHA-256 of its candidate set."""
    runs = {}
    for path in sorted(source.glob("runs/*/*/*/run.json")):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            status, candidates = document["status"], document["candidates_sha256"]
        except (ValueError, KeyError, TypeError):
            sys.exit(f"{path} is damaged; nothing was copied.")
        if status == "done" and not (target / path.parent.relative_to(source)).exists():
            runs[path.parent] = candidates
    return runs


def copy(path: Path, destination: Path, scratch: Path) -> None:
    """Copy a file or folder under a temporary name and rename it, so that it appears as a whole."""
    if path.is_dir():
        shutil.copytree(path, scratch / path.name, ignore=symbolic_links)
    else:
        shutil.copyfile(path, scratch / path.name)
    destination.parent.mkdir(parents=True, exist_ok=True)
    os.rename(scratch / path.name, destination)


def symbolic_links(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if os.path.islink(os.path.join(folder, name))]


def main() -> None:
    parser = argparse.ArgumentParser(description="Copy finished runs that a results folder lacks from another one.")
    parser.add_argument("source", type=Path, help="results folder to copy from")
    parser.add_argument("target", type=Path, help="results folder to copy to")
    parser.add_argument("--dry-run", action="store_true", help="list what would be copied, and stop")
    options = parser.parse_args()
    source, target = options.source, options.target
    if not (source / "runs").is_dir():
        parser.error(f"{source} is not a results folder: it has no folder 'runs'")
    runs = missing_runs(source, target)
    sets = []
    for path in sorted(source.glob("candidates/*/*.npz")):
        if candidates_digest(path) not in runs.values():
            continue
        other = target / path.relative_to(source)
        if not other.exists():
            sets.append(path)
        elif candidates_digest(other) != candidates_digest(path):
            sys.exit(f"{path} and {other} hold different candidate sets; nothing was copied.")
    for path in [*sets, *runs]:
        print(path.relative_to(source))
    if not options.dry_run and runs:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".merge-", dir=target) as scratch:
            for path in [*sets, *runs]:  # sets first: a run is of no use without its set
                copy(path, target / path.relative_to(source), Path(scratch))
    print(f"{'Would copy' if options.dry_run else 'Copied'} {len(runs)} runs and {len(sets)} candidate sets.")


if __name__ == "__main__":
    main()
