"""`clean`: what a results folder could do without, and how much that is; removed only with --yes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmark.cli.options import Command, Request
from benchmark.errors import COMPLETE, INCOMPLETE, UsageError
from benchmark.flags import flag

if TYPE_CHECKING:
    from benchmark.share.clean import Waste

SHOWN = 20  # of each kind


@dataclass(frozen=True)
class Own:
    failed: bool = flag(False, "runs that failed, diverged or ran out of memory")
    interrupted: bool = flag(False, "runs that were cut off; what they had done is lost")
    outdated: bool = flag(False, "runs of older versions of a plug-in, or of values that their profile no longer has")
    damaged: bool = flag(False, "run folders without a readable run.json")
    checkpoints: bool = flag(False, "checkpoints; an interrupted run then starts from the beginning")
    predictions: bool = flag(False, "kept predictions; such a run cannot be scored again")
    models: bool = flag(False, "kept models")
    yes: bool = flag(False, "remove them; without it they are only listed")


def run(request: Request, own: Own) -> int:
    from benchmark.report.scope import Scope
    from benchmark.share.clean import KINDS, waste

    asked = [kind for kind in KINDS if getattr(own, kind)]
    if own.yes and not asked:
        raise UsageError(f"--yes removes nothing by itself; say what: {', '.join(f'--{kind}' for kind in KINDS)}.")
    scope, code = Scope(request.profile, request.plugins), COMPLETE
    for kind in asked or KINDS:
        found = waste(request.results, kind, scope)
        size = sum(one.size for one in found)
        removed = [one for one in found if own.yes and one.remove()]
        print(f"{kind}: {len(found)}, {size / 1e6:.1f} MB{_end(own.yes, len(removed), len(found))}")
        for line in _listed(found) if asked else ():
            print(f"  {line}")
        if own.yes and len(removed) < len(found):
            code = INCOMPLETE
    if not own.yes:
        how = "Add --yes to remove these." if asked else "Name a kind to see which, and add --yes to remove them."
        print(f"Nothing was removed. {how}")
    return code


def _listed(found: Sequence[Waste]) -> list[str]:
    lines = [f"{one.place}: {one.reason}" for one in found[:SHOWN]]
    return [*lines, f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else lines


def _end(yes: bool, removed: int, found: int) -> str:
    if not yes:
        return ""
    return " removed" if removed == found else f"; {removed} removed, the others were taken up by a process"


COMMANDS = (
    Command(
        "clean",
        "failed and outdated runs, checkpoints, kept files: how much, and away with --yes",
        run,
        ("profile", "results", "plugins"),
        Own,
    ),
)
