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
    from benchmark.report.page import write_report

    path = own.out or request.results / "report.html"
    methods = tuple(filter(None, (request.methods or "").split(",")))
    print(f"Written: {write_report(request.results, path, request.profile, request.plugins, methods)}")
    return COMPLETE


TAKES = ("profile", "results", "plugins", "methods")
COMMANDS = (Command("report", "results/report.html: one self-contained page", run, TAKES, Own),)
