"""`merge FROM INTO`: the finished runs of one results folder or bundle into another."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmark.cli.options import Command, Request
from benchmark.errors import COMPLETE, INCOMPLETE, CandidError, UsageError
from benchmark.flags import flag


@dataclass(frozen=True)
class Own:
    source: Path = flag(None, "results folder or bundle", positional=True, kind=Path, metavar="FROM")
    target: Path = flag(None, "results folder that gets the runs", positional=True, kind=Path, metavar="INTO")


def run(request: Request, own: Own) -> int:
    from benchmark.files import ensure_writable, is_bundle, refuse_links
    from benchmark.share import merge
    from benchmark.share.archive import opened
    from datasets.base import plural

    if is_bundle(own.target):
        raise UsageError(f"{own.target} is a bundle, which is read and not changed; name a results folder.")
    if own.source.resolve() == own.target.resolve():
        raise UsageError(f"{own.source} and {own.target} are the same folder; name two.")
    with opened(own.source) as source:
        refuse_links(own.target)
        made = merge.plan(source, own.target)
        if not request.dry_run and (made.runs or made.sets):
            try:
                ensure_writable(own.target)
            except CandidError:
                raise UsageError(f"{own.target} cannot be written; name another folder.") from None
            try:
                merge.carry_out(made, source, own.target)
            except OSError as error:
                raise CandidError(f"{own.target} could not be written to the end ({error.strerror}).") from None
    for sentence in made.conflicts:
        print(f"Conflict: {sentence}", file=sys.stderr)
    verb = "Would copy" if request.dry_run else "Copied"
    print(
        f"{verb} {plural(len(made.runs), 'run')} and {plural(len(made.sets), 'candidate file')} into {own.target}; "
        f"already there: {made.already}, unfinished and left: {made.unfinished}, conflicts: {len(made.conflicts)}."
    )
    return INCOMPLETE if made.conflicts else COMPLETE


COMMANDS = (
    Command(
        "merge",
        "copy the finished runs of one results folder or bundle into another; nothing is overwritten",
        run,
        ("dry_run",),
        Own,
        writes=False,
    ),
)
