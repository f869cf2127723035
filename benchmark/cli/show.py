"""`show METHOD DATASET`: one cell in full."""

from __future__ import annotations

import json
from dataclasses import dataclass

from benchmark.cli.options import Command, Request
from benchmark.errors import COMPLETE, CandidError
from benchmark.flags import flag


@dataclass(frozen=True)
class Own:
    method: str = flag(None, "its name or label, cel or 'cel[alpha=0.1]'", positional=True, metavar="METHOD")
    dataset: str = flag(None, positional=True, metavar="DATASET")
    seed: int | None = flag(None, "this seed alone", kind=int, metavar="K")
    json: bool = flag(False, "machine-readable: the run.json of every seed")


def run(request: Request, own: Own) -> int:
    from benchmark.plan.selection import sources_of
    from benchmark.report.scope import Scope
    from benchmark.share.show import cell, screen

    scope = Scope(request.profile, request.plugins)
    found, others = cell(request.results, own.method, own.dataset, scope, sources_of(request.plugins))
    if own.seed is not None:
        seeds = ", ".join(str(document["seed"]) for _, document in found)
        found = [one for one in found if one[1]["seed"] == own.seed]
        if not found:
            raise CandidError(f"There is no run with seed {own.seed} in this cell; there are {seeds}.")
    if own.json:
        print(json.dumps([document for _, document in found], indent=1, sort_keys=True, ensure_ascii=False))
    else:
        print(screen(found, others, request.results, scope))
    return COMPLETE


COMMANDS = (
    Command(
        "show",
        "everything about one cell: numbers, every value with its source, candidate sets, machines, commands",
        run,
        ("profile", "results", "plugins"),
        Own,
        writes=False,
        reads=True,
    ),
)
