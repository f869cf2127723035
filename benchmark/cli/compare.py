"""`compare A B`: two results folders or bundles side by side."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmark import accuracy
from benchmark.analysis.contents import TEST_NAMES
from benchmark.cli.options import Command, Request
from benchmark.errors import COMPLETE, UsageError
from benchmark.flags import flag


@dataclass(frozen=True)
class Own:
    a: Path = flag(None, "results folder or bundle", positional=True, kind=Path, metavar="A")
    b: Path = flag(None, "another one", positional=True, kind=Path, metavar="B")
    accuracy: str = flag("last", choices=accuracy.WORDS)
    test: str = flag("paired", choices=tuple(TEST_NAMES))
    out: Path | None = flag(None, "also write it, as .md .csv .tex and .json", kind=Path, metavar="NAME")


def run(request: Request, own: Own) -> int:
    from benchmark.analysis import table as rendering
    from benchmark.files import check_out
    from benchmark.plan.selection import sources_of
    from benchmark.share import compare
    from benchmark.share.archive import opened

    if own.a.resolve() == own.b.resolve():
        raise UsageError(f"{own.a} and {own.b} are the same folder; name two.")
    if own.out:
        check_out(own.out)
    with opened(own.a) as first, opened(own.b) as second:
        versions = sources_of(request.plugins)
        sides = [compare.finished(place, request.profile, versions) for place in (first, second)]
    names = (str(own.a), str(own.b))
    made = compare.table(sides[0], sides[1], names, own.test, accuracy.by_word(own.accuracy))
    print(rendering.to_text(made, colour=sys.stdout.isatty()))
    if own.out:
        paths = rendering.write(made, own.out.parent, own.out.stem)
        print(f"Written: {own.out.with_suffix('')} ({', '.join(path.suffix for path in paths)})")
    return COMPLETE


COMMANDS = (
    Command(
        "compare",
        "two results folders or bundles side by side, cell by cell, with the paired test",
        run,
        ("profile", "plugins"),
        Own,
        writes=False,
    ),
)
