"""`speed`: throughput of each method against the bare loop of its networks, and of views, losses and neighbour search."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from benchmark.cli.options import SELECTION, Command, Request
from benchmark.cli.training import announce, place_of, selection_of
from benchmark.errors import UsageError
from benchmark.flags import flag


@dataclass(frozen=True)
class Own:
    views: bool = flag(False, "batched views against one picture at a time")
    losses: bool = flag(False, "vectorised losses and state against loops")
    knn: bool = flag(False, "VALEN's neighbour graph: seconds and memory")
    levers: bool = flag(False, "ways to train faster: what each gains here")
    rounds: int = flag(5, "medians are of so many (default: 5)", kind=int, metavar="N")
    docs: bool = flag(False, "renew docs/speed.md and docs/cost.json")


def run(request: Request, own: Own) -> int:
    if own.rounds < 1:
        raise UsageError(f"--rounds is {own.rounds}; it must be at least 1.")
    request = dataclasses.replace(request, profile=request.profile or "quick", datasets=request.datasets or "glyphs")
    selection = selection_of(request)
    if not (own.views or own.losses or own.knn or own.levers):
        announce(request, "Speed of training", selection)
    from benchmark.speed.command import Gauges, command

    return command(selection, place_of(request), Gauges(**dataclasses.asdict(own), quiet=request.quiet))


COMMANDS = (
    Command("speed", "throughput of each method against the bare loop, in one run", run, (*SELECTION, "quiet"), Own),
)
