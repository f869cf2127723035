"""`candidates`: build or inspect candidate sets, and draw the data card."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.cli.options import SELECTION, Command, Request
from benchmark.cli.training import make_sets, place_of, say_weights, selection_of
from benchmark.errors import COMPLETE, INCOMPLETE, UsageError
from benchmark.files import ensure_writable, file_name
from benchmark.flags import flag

if TYPE_CHECKING:
    from benchmark.plan.spec import RunSpec


@dataclass(frozen=True)
class Own:
    out: Path | None = flag(None, "default: results/cards", kind=Path, metavar="FOLDER")
    export: Path | None = flag(None, "also write the sets as plain matrices", kind=Path, metavar="FILE|FOLDER")
    bring: Path | None = flag(
        None,
        "take the sets from such a file instead of making them",
        names=("--import",),
        kind=Path,
        metavar="FILE|FOLDER",
    )


def run(request: Request, own: Own) -> int:
    """Text and data card of every selected data set, for the profile's first seed or for those that were named."""
    from benchmark.exhibits.parts import card
    from benchmark.run.sets import bring_in, selected_sets, set_specs
    from datasets.labels import exchange

    out, code = own.out or request.results / "cards", COMPLETE
    selection, named = selection_of(request), request.seeds is not None
    specs = set_specs(selection, named)
    exported, brought = (
        files_of(option, path, specs) for option, path in (("export", own.export), ("import", own.bring))
    )
    if brought:
        ensure_writable(request.results)
        for spec in specs:
            sha256 = bring_in(spec, brought[spec.digest], place_of(request))
            print(f"Imported: {brought[spec.digest]} as the sets of {spec.dataset}, seed {spec.seed} ({sha256[:12]}…)")
    else:
        say_weights(request, specs)
        make_sets(request, specs)
    for spec, found in selected_sets(selection, place_of(request), every_seed=named):
        name = spec.dataset + (f"-seed{spec.seed}" if named and len(selection.seeds) > 1 else "")
        if isinstance(found, str):
            print(f"{name} has no card: {found}", file=sys.stderr)
            code = INCOMPLETE
            continue
        print(card.text(*found))
        for path in card.write(*found, out / name):
            print(f"Written: {path}")
        if exported:
            exchange.export(found[1], found[0], exported[spec.digest])
            print(f"Written: {exported[spec.digest]}")
    return code


def files_of(option: str, path: Path | None, specs: Sequence[RunSpec]) -> dict[str, Path]:
    """The file of every set: the one that was named, or in a folder <data set>-seed<k>.npz."""
    if path is None:
        return {}
    if path.suffix in (".npz", ".csv"):
        if len(specs) > 1:
            raise UsageError(
                f"--{option} {path} is one file for {len(specs)} candidate sets; name one data set and one seed, or a folder."
            )
        return {specs[0].digest: path}
    if path.is_file() or path.suffix:
        raise UsageError(f"--{option} {path}: name a file that ends in .npz or .csv, or a folder.")
    return {spec.digest: path / f"{file_name(spec.dataset)}-seed{spec.seed}.npz" for spec in specs}


TAKES = (*SELECTION, "jobs", "backend", "scheduler", "quiet", "checkpoint_seconds")
COMMANDS = (Command("candidates", "build or inspect candidate sets, with a data card", run, TAKES, Own),)
