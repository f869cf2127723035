"""`candidates`: build or inspect candidate sets, and draw the data card."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmark.cli.options import SELECTION, Command, Request
from benchmark.cli.training import make_sets, place_of, say_weights, selection_of
from benchmark.errors import COMPLETE, INCOMPLETE
from benchmark.flags import flag


@dataclass(frozen=True)
class Own:
    out: Path | None = flag(None, "default: results/cards", kind=Path, metavar="FOLDER")


def run(request: Request, own: Own) -> int:
    """Text and data card of every selected data set, for the profile's first seed or for those that were named."""
    from benchmark.exhibits.parts import card
    from benchmark.runner.candidate_sets import selected_sets, set_specs

    out, code = own.out or request.results / "cards", COMPLETE
    selection, named = selection_of(request), request.seeds is not None
    specs = set_specs(selection, named)
    say_weights(request, specs)
    make_sets(request, specs)
    for spec, found in selected_sets(selection, place_of(request), every_seed=named):
        name = spec.dataset + (f"-seed{spec.seed}" if named and len(selection.seeds) > 1 else "")
        if isinstance(found, str):
            print(f"{name} has no card: {found}", file=sys.stderr)
            code = INCOMPLETE
            continue
        print(card.text(*found))
        for path in card.write(*found, out / name):
            print(f"Written: {path}")
    return code


TAKES = (*SELECTION, "jobs", "backend", "scheduler", "quiet", "checkpoint_seconds")
COMMANDS = (Command("candidates", "build or inspect candidate sets, with a data card", run, TAKES, Own),)
