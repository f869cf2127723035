"""`verify FOLDER`: check somebody's results, and train some of them again."""

from __future__ import annotations

import json
import random
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.cli.options import Command, Request
from benchmark.cli.training import place_of
from benchmark.errors import COMPLETE, FAILED, INCOMPLETE, UsageError
from benchmark.flags import flag

if TYPE_CHECKING:
    from benchmark.verify import Report

SHOWN = 12  # findings on the screen; the report has all
RESULTS = {COMPLETE: "passed", FAILED: "failed", INCOMPLETE: "incomplete"}


@dataclass(frozen=True)
class Own:
    folder: Path = flag(None, "results folder", positional=True, kind=Path, metavar="FOLDER")
    cells: int = flag(1, "random cells to train again, one seed of each", kind=int, metavar="N")
    draw: int | None = flag(None, "the same random cells as in an earlier report", kind=int, metavar="NUMBER")
    annotators: bool = flag(False, "train annotators again and draw their candidate sets")
    out: Path = flag(Path("verification.json"), "verification report", kind=Path, metavar="FILE")


def run(request: Request, own: Own) -> int:
    from benchmark import store
    from benchmark.files import atomic_write, check_out, refuse_links, without_paths
    from benchmark.runner.provenance import environment, now
    from benchmark.verify import Context, verify

    if own.cells < 0:
        raise UsageError(f"--cells {own.cells}: give the number of cells to train again, 0 for none.")
    if own.folder.is_file():
        raise UsageError(f"{own.folder} is a file; unpack it with `tar` and name the folder.")
    refuse_links(store.existing(own.folder))
    check_out(own.out)
    datasets = [path for path in (request.datasets or "").split(",") if path]
    draw = random.SystemRandom().randrange(1 << 32) if own.draw is None else own.draw
    with tempfile.TemporaryDirectory(prefix="candid-") as scratch:
        options = replace(place_of(request), results=Path(scratch))
        report = verify(own.folder, Context.of(options, request.plugins, datasets, own.annotators), own.cells, draw)
    document = {"result": RESULTS[report.code], "date": now(), **asdict(report)}
    document = without_paths(document | {"environment": environment(options.device)})
    atomic_write(own.out, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    print(f"Written: {own.out}")
    print_report(report)
    return report.code


def print_report(report: Report) -> None:
    from benchmark.analysis.table import aligned

    rows = [["check", "passed", "failed", "not checked"]]
    rows += [[name, *map(str, counts.values())] for name, counts in report.checks.items()]
    print("\n".join(aligned(rows, 1)))
    for rerun in report.reruns:
        print(f"Trained again: {rerun.run}: {rerun.agreement}")
    for finding in report.findings[:SHOWN]:
        print(f"Failed: {finding}")
    for reason, names in report.not_checked.items():
        print(f"Not checked: {len(names)} of {report.runs} runs: {reason}")
    if report.unfinished:
        print(f"Left out: {report.unfinished} unfinished")
    notes = {
        FAILED: f": {len(report.findings)} findings",
        INCOMPLETE: ": nothing is wrong, but not all could be checked",
    }
    print(f"verification {RESULTS[report.code]} for '{report.folder}'{notes.get(report.code, '')}")


COMMANDS = (
    Command(
        "verify",
        "check somebody's results: hashes, scores, candidate sets, and random cells trained again",
        run,
        ("data", "device", "plugins", "datasets"),
        Own,
        writes=False,
    ),
)
