"""Move the runs of a results folder of an earlier version, runs/<profile>/<dataset>/…, to where they belong now.

    ./reproduce.sh python examples/move_runs.py results

Runs of a grid search, which were kept under the profile <name>-tuning, are marked as such. Of two copies of
a run the second goes to results/duplicates. The command can be repeated.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmark.store import EARLIER_PACKED, TUNING, StoredRun, place_of

ENDING = "-tuning"


def main(results: Path) -> None:
    moved = 0
    runs = [StoredRun(path.parent) for path in sorted(results.glob("runs/*/*/*/seed*/run.json"))]
    runs = [run for run in runs if run.read() is not None]
    runs.sort(key=lambda run: run.document["status"] != "done")  # of two copies the finished one is moved first
    for run in runs:
        document = run.document
        target = results / "runs" / place_of(*(document[key] for key in ("dataset", "method", "seed", "identity")))
        if target.exists():
            target = results / "duplicates" / run.path.relative_to(results / "runs")
            print(f"A second copy of a run is now {target}")
        elif document["profile"].endswith(ENDING):
            run.write(document | {"profile": document["profile"].removesuffix(ENDING), "purpose": TUNING})
        target.parent.mkdir(parents=True, exist_ok=True)
        run.path.rename(target)
        moved += 1
        for folder in run.path.parents[:3]:
            if not any(folder.iterdir()):
                folder.rmdir()
    for path in results.glob(f"runs/*/{EARLIER_PACKED}"):
        print(f"{path} was packed by an earlier version; remove it, results/reference has its runs")
    print(f"Moved {moved} runs in {results}.")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: ./reproduce.sh python examples/move_runs.py RESULTS")
    main(Path(sys.argv[1]))
