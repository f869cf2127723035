"""Copies finished runs into results/reference: what tables, figures and the page read, and nothing else.

    python -m benchmark.tools.reference results realworld-f25 realworld-k25     # from a results folder, these profiles

A run keeps its run.json without the machine's name and process, and its epochs compressed. Tables, figures and the page
are then made without training: `./reproduce.sh realworld --no-run --results results/reference`.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark import store
from benchmark.files import ROOT, atomic_write

FOLDER = ROOT / "results" / "reference"
PRIVATE = ("host", "pid", "command", "deaths", "typed")


def without(keys: Sequence[str], document: dict[str, Any]) -> dict[str, Any]:
    """A run's document without what only the machine's owner may want to know."""
    sittings = [{k: v for k, v in sitting.items() if k not in keys} for sitting in document.get("sittings", [])]
    time = {k: v for k, v in document["time"].items() if k not in keys}
    return document | {"time": time} | ({"sittings": sittings} if sittings else {})


def pack(results: Path, profiles: Sequence[str], folder: Path = FOLDER) -> int:
    """Copy the finished runs of the profiles; how many there were."""
    count = 0
    for profile in profiles:
        for run, document in store.documents(results, profile):
            if document["status"] != "done":
                continue
            copy = store.RunFolder(folder / run.path.relative_to(results))
            copy.path.mkdir(parents=True, exist_ok=True)
            document.pop("files", None)  # predictions are not copied: what the tables read is in the summary
            copy.write(without(PRIVATE, document))
            lines = "".join(store.canonical(record) + "\n" for record in run.epochs())
            atomic_write(copy.packed_metrics, gzip.compress(lines.encode(), mtime=0))
            count += 1
    return count


if __name__ == "__main__":
    results, *profiles = sys.argv[1:]
    print(f"{pack(Path(results), profiles)} runs are in {FOLDER}")
