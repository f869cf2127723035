"""`bundle`: one archive of a results folder that is fit to publish."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmark.cli.options import Command, Request
from benchmark.errors import COMPLETE, INCOMPLETE
from benchmark.flags import flag


@dataclass(frozen=True)
class Own:
    out: Path | None = flag(None, "default: results.tar.gz beside the results folder", kind=Path, metavar="FILE.tar.gz")
    hosts: bool = flag(False, "keep host names and process numbers")
    models: bool = flag(False, "with the models that runs have kept")


def run(request: Request, own: Own) -> int:
    from benchmark.share.archive import pack
    from datasets.base import plural

    place = request.results.resolve()
    made = pack(place, own.out or place.with_name(f"{place.name}.tar.gz"), request.profile, own.hosts, own.models)
    for sentence in made.left_out:
        print(f"Left out: {sentence}", file=sys.stderr)
    size = made.size / 1e6
    print(f"Written: {made.path} ({plural(made.runs, 'run')}, {plural(made.sets, 'candidate set')}, {size:.1f} MB)")
    return INCOMPLETE if made.left_out else COMPLETE


COMMANDS = (
    Command(
        "bundle",
        "one archive of the results folder to publish; other commands read it",
        run,
        ("profile", "results"),
        Own,
    ),
)
