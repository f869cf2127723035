"""Pack finished runs into results/reference: only what tables, figures and the page read.

    python -m benchmark.tools.reference results realworld-f25 quick     # from a results folder, these profiles

One file per dataset; packed runs stay, a run of the same configuration is replaced. Configuration, summary, digests and
environment are stored, curves with six digits; host names, paths and predictions are left out. Tables, figures and the page then
need no training: `./reproduce.sh realworld --no-run --results results/reference`.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmark import store
from benchmark.config.spec import canonical
from benchmark.errors import CandidError
from benchmark.files import ROOT, atomic_write, file_name

FOLDER = ROOT / "results" / "reference"
PRIVATE = ("host", "pid", "command", "deaths", "sittings")
LEFT_OUT = ("sittings", "files")  # sessions with their commands; predictions, which are not packed


def pack(results: Path, profiles: Sequence[str], folder: Path = FOLDER) -> int:
    """Add the finished runs that count for the profiles; return how many there were."""
    source, runs = store.Store(results), {run.digest: run for run in store.Store(folder).runs}
    digests = set()
    for profile in profiles:
        finished = {run.digest for run in source.of_profile(profile) if run.document["status"] == "done"}
        if not finished:
            raise CandidError(f"There is no finished run of profile {profile} in {results}.")
        digests |= finished
    runs |= {run.digest: run for run in source.runs if run.digest in digests}
    write(runs.values(), folder)
    return len(digests)


def write(runs: Iterable[store.StoredRun], folder: Path) -> None:
    """Write these runs, and no others, into the packed files of their datasets."""
    lines: dict[str, list[str]] = {}
    for run in runs:
        lines.setdefault(file_name(run.document["dataset"]), []).append(packed(run))
    for dataset, entries in lines.items():
        place = folder / "runs" / dataset / store.PACKED
        place.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(place, gzip.compress("".join(sorted(entries)).encode(), mtime=0))


def packed(run: store.StoredRun) -> str:
    """Return the two lines of a run: its document and its epochs."""
    document = {key: value for key, value in run.document.items() if key not in LEFT_OUT}
    document["time"] = {key: value for key, value in document["time"].items() if key not in PRIVATE}
    document["record_sha256"] = store.record_digest(document)
    epochs = [store.round_numbers(record) for record in run.epochs()]
    return f"{canonical(document)}\n{canonical(epochs)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.tools.reference", description="Pack runs into results/reference."
    )
    parser.add_argument("results", type=Path, help="a results folder")
    parser.add_argument("profiles", nargs="+", help="profiles whose finished runs are packed")
    options = parser.parse_args()
    try:
        print(f"{pack(store.existing_folder(options.results), options.profiles)} runs were packed into {FOLDER}")
    except CandidError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
