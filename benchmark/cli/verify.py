"""`verify FOLDER`: somebody's results checked, and some of them run again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.cli.options import Command, Request
from benchmark.cli.training import place_of
from benchmark.errors import UsageError
from benchmark.flags import flag

if TYPE_CHECKING:
    from benchmark.share.verify import Verdict

SHOWN = 12  # findings on the screen; the certificate has all


@dataclass(frozen=True)
class Own:
    folder: Path = flag(None, "results folder or bundle", positional=True, kind=Path, metavar="FOLDER")
    cells: int = flag(1, "random cells that are run again, one seed of each", kind=int, metavar="N")
    draw: int | None = flag(None, "the same random cells as in an earlier certificate", kind=int, metavar="NUMBER")
    annotators: bool = flag(False, "train the annotators again and draw their candidate sets")
    out: Path = flag(Path("certificate.json"), "where the certificate goes", kind=Path, metavar="FILE")


def run(request: Request, own: Own) -> int:
    from benchmark.files import atomic_write, check_out
    from benchmark.share.again import Means
    from benchmark.share.archive import opened
    from benchmark.share.verify import Wish, certificate, verify

    if own.cells < 0:
        raise UsageError(f"--cells {own.cells}: write how many cells are to be run again, 0 for none.")
    if own.out.suffix != ".json":
        raise UsageError(f"--out {own.out}: a certificate's name ends in .json.")
    check_out(own.out)
    means = Means.of(request.plugins, tuple(filter(None, (request.datasets or "").split(","))))
    place, wish = place_of(request), Wish(own.cells, own.draw, own.annotators)
    with opened(own.folder, whole=False) as folder:
        verdict = verify(folder, own.folder.resolve().name, means, place, wish)
    atomic_write(own.out, json.dumps(certificate(verdict, place.device), indent=1, ensure_ascii=False) + "\n")
    print_verdict(verdict)
    print(f"Written: {own.out}")
    return verdict.code


def print_verdict(verdict: Verdict) -> None:
    from benchmark.analysis.table import aligned
    from benchmark.share.verify import WORDS

    rows = [["check", "passed", "failed", "not checked"]]
    rows += [[WORDS[k], str(t.passed), str(t.failed), str(t.not_checked)] for k, t in verdict.tallies.items()]
    print("\n".join(aligned(rows, 1)))
    for again in verdict.repetitions:
        machine = (
            f"{'same' if again.same_kind else 'another'} kind of machine, {'same' if again.same_code else 'other'} code"
        )
        how = "equal to the last bit" if again.bit_equal else again.wrong or f"within {again.tolerance:.2f} points"
        print(f"Run again: {again.run} in {again.seconds:.0f} s: {how} ({machine})")
    for finding in verdict.findings[:SHOWN]:
        print(f"Wrong: {finding}")
    if len(verdict.findings) > SHOWN:
        print(f"Wrong: and {len(verdict.findings) - SHOWN} more, see the certificate")
    for reason, names in {**verdict.gaps, **verdict.taken}.items():
        print(f"Not checked: {len(set(names))} of {verdict.runs} runs, {reason}")
    if verdict.unfinished:
        print(f"Not looked at: {verdict.unfinished} unfinished")
    print(verdict.sentence)


COMMANDS = (
    Command(
        "verify",
        "check somebody's results: hashes, scores, candidate sets, and random cells run again; ends in a certificate",
        run,
        ("data", "device", "plugins", "datasets"),
        Own,
        writes=False,
    ),
)
