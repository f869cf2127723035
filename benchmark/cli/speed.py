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
    views: bool = flag(False, "batched views against one image at a time")
    losses: bool = flag(False, "vectorised losses against loops")
    knn: bool = flag(False, "VALEN's neighbour graph: seconds and memory")
    levers: bool = flag(False, "ways to train faster: what each gains here")
    device_model: str | None = flag(
        None, "instead: what `paper` would take on a card that is not here, by a model", choices=("A100", "H100")
    )
    rounds: int = flag(5, "medians are of so many (default: 5)", kind=int, metavar="N")
    docs: bool = flag(False, "renew docs/speed.md, docs/speed.json and docs/cost.json")


def run(request: Request, own: Own) -> int:
    from benchmark.speed import command

    if own.device_model:
        if own.views or own.losses or own.knn or own.levers or own.docs:
            raise UsageError("--device-model is a model of whole trainings; leave the other flags out.")
        request = dataclasses.replace(request, profile="paper", datasets="cifar100", device="cpu")
        named = selection_of(request)
        return command.model_on(
            own.device_model,
            [s.method for s in named.specs(None, None) if s.seed == named.seeds[0]],
            place_of(request).results,
        )
    request = dataclasses.replace(request, profile=request.profile or "quick", datasets=request.datasets or "glyphs")
    parts = tuple(name for name in (*command.PARTS, "levers") if getattr(own, name))
    selection = selection_of(request)
    if not parts:
        announce(request, "Speed of training", selection)
    return command.run(selection, place_of(request), command.SpeedRequest(parts, own.rounds, own.docs, request.quiet))


COMMANDS = (
    Command("speed", "throughput of each method against the bare loop, in one run", run, (*SELECTION, "quiet"), Own),
)
