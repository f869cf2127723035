"""Packs finished runs into results/reference: what tables, figures and the page read, and nothing else.

    python -m benchmark.tools.reference results realworld-f25 quick     # from a results folder, these profiles

One file per profile; runs that it holds already stay, a run of the same configuration is replaced. A run keeps
configuration, summary, digests and environment; names of the machine, paths and predictions are left out, and curves keep six
digits. Tables, figures and the page are then made without training: `./reproduce.sh realworld --no-run --results results/reference`.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark import store
from benchmark.config.profile import profile_name
from benchmark.config.spec import canonical
from benchmark.errors import CandidError
from benchmark.files import ROOT, atomic_write

FOLDER = ROOT / "results" / "reference"
PRIVATE = ("host", "pid", "command", "deaths", "sittings")
LEFT_OUT = ("sittings", "files")  # who typed what where; predictions, which are not packed


def pack(results: Path, profiles: Sequence[str], folder: Path = FOLDER) -> int:
    """Add the finished runs of the profiles; how many there were."""
    count = 0
    for profile in profiles:
        kept = {d["config_digest"]: entry(run, d) for run, d in store.documents(folder, profile)}
        new = {
            d["config_digest"]: entry(run, d) for run, d in store.documents(results, profile) if d["status"] == "done"
        }
        if not new:
            raise CandidError(f"There is no finished run of profile {profile} in {results}.")
        count += len(new)
        lines = sorted(canonical(one) + "\n" for one in (kept | new).values())
        place = folder / "runs" / profile_name(profile)
        place.mkdir(parents=True, exist_ok=True)
        atomic_write(place / store.PACKED, gzip.compress("".join(lines).encode(), mtime=0))
    return count


def entry(run: store.RunFolder, document: dict[str, Any]) -> dict[str, Any]:
    """A run as its line holds it."""
    document = {key: value for key, value in document.items() if key not in LEFT_OUT}
    document["time"] = {key: value for key, value in document["time"].items() if key not in PRIVATE}
    document["record_sha256"] = store.record_digest(document)
    return {"run": document, "epochs": [store.rounded(record) for record in run.epochs()]}


def main() -> None:
    options = argparse.ArgumentParser(
        prog="python -m benchmark.tools.reference", description="Runs for results/reference."
    )
    options.add_argument("results", type=Path, help="a results folder")
    options.add_argument("profiles", nargs="+", help="whose finished runs are packed")
    chosen = options.parse_args()
    try:
        print(f"{pack(store.existing(chosen.results), chosen.profiles)} runs were packed into {FOLDER}")
    except CandidError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
