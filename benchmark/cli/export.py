"""`export`: one tidy CSV."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmark.cli.options import Command, Request
from benchmark.errors import COMPLETE, CandidError
from benchmark.files import atomic_write
from benchmark.flags import flag


@dataclass(frozen=True)
class Own:
    out: Path | None = flag(None, "default: results/epochs.csv; - for the screen", kind=Path, metavar="FILE")


def run(request: Request, own: Own) -> int:
    from benchmark import store
    from benchmark.plan.selection import sources_of

    frame = store.load(request.results, request.profile, sources_of(request.plugins))
    if frame.empty:
        raise CandidError(f"There are no runs in {request.results} to export.")
    text = frame.to_csv(index=False)
    if str(own.out) == "-":
        sys.stdout.write(text)
        return COMPLETE
    out = own.out or request.results / "epochs.csv"
    atomic_write(out, text)
    print(f"Written: {out} ({len(frame)} epochs of {frame['identity'].nunique()} runs)")
    return COMPLETE


COMMANDS = (Command("export", "one tidy CSV of all epochs of all runs", run, ("profile", "results", "plugins"), Own),)
