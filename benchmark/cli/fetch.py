"""`fetch DATASET`."""

from __future__ import annotations

from dataclasses import dataclass

from benchmark.cli.options import Command, Request
from benchmark.errors import COMPLETE
from benchmark.flags import flag


@dataclass(frozen=True)
class Own:
    name: str = flag(None, positional=True, metavar="DATASET")


def run(request: Request, own: Own) -> int:
    from datasets.storage.fetch import fetch

    message = fetch(own.name, request.data)
    if message:
        print(message)
    return COMPLETE


COMMANDS = (Command("fetch", "download, verify and unpack a data set", run, ("data",), Own, writes=False),)
