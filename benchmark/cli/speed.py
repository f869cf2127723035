"""`speed`: throughput of each method against the bare loop of its networks, and of views, losses, neighbour search."""

from __future__ import annotations

import argparse

from benchmark.cli.training import announce, selection_of
from benchmark.speed.command import PARTS, SpeedRequest, run


def command(arguments: argparse.Namespace) -> int:
    """Measure what was asked for, or the training."""
    arguments.profile = arguments.profile or "quick"
    arguments.datasets = arguments.datasets or "glyphs"
    parts = tuple(name for name in (*PARTS, "levers") if getattr(arguments, name))
    selection = selection_of(arguments)
    if not parts:
        announce(arguments, "Speed of training", selection)
    return run(selection, SpeedRequest(parts, arguments.rounds, arguments.docs, arguments.quiet))
