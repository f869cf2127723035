"""`report`: results/report.html."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmark.cli.options import Command, Request
from benchmark.errors import COMPLETE
from benchmark.flags import flag


@dataclass(frozen=True)
class Own:
    out: Path | None = flag(None, "default: results/report.html", kind=Path, metavar="FILE")


def run(request: Request, own: Own) -> int:
    from benchmark.plan.selection import as_known
    from benchmark.report.page import up_to_date, write_report
    from benchmark.report.scope import Scope
    from methods.registry import discover

    path = own.out or request.results / "report.html"
    words = tuple(filter(None, (request.methods or "").split(",")))
    entries = discover(request.plugins, tolerant=True).entries.values() if words else ()
    scope = Scope(request.profile, request.plugins, as_known(words, entries))
    if up_to_date(request.results, path, scope):
        print(f"Unchanged: {path} was made from the same runs by the same code.")
    else:
        print(f"Written: {write_report(request.results, path, scope)}")
    return COMPLETE


TAKES = ("profile", "results", "plugins", "methods")
COMMANDS = (Command("report", "results/report.html: one self-contained page", run, TAKES, Own),)
