"""`candidates`: build or inspect candidate sets, and draw the data card."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmark.cli.options import SELECTION, Command, Request
from benchmark.cli.training import place_of, selection_of
from benchmark.errors import COMPLETE, INCOMPLETE
from benchmark.flags import flag


@dataclass(frozen=True)
class Own:
    out: Path | None = flag(None, "default: results/cards", kind=Path, metavar="FOLDER")


def run(request: Request, own: Own) -> int:
    """Text and data card of every selected data set and the first seed."""
    from benchmark.exhibits.parts import card
    from benchmark.run.worker import captured, dataset_of
    from benchmark.train.candidates import candidate_set
    from datasets.base import DataError
    from methods.registry import MethodError

    selection, place = selection_of(request), place_of(request)
    out, code = own.out or request.results / "cards", COMPLETE
    for name in selection.datasets:
        spec = selection.specs(selection.methods[:1], [name])[0]
        try:
            dataset = dataset_of(spec, place.data)
            with captured(None):  # a library that tries a download ten times would say so ten times
                found = candidate_set(spec, dataset, place.results, place.device)
        except (DataError, MethodError) as error:
            print(f"{spec.dataset} has no card: {error}", file=sys.stderr)
            code = INCOMPLETE
            continue
        print(card.text(dataset, found))
        for path in card.write(dataset, found, out / spec.dataset):
            print(f"Written: {path}")
    return code


COMMANDS = (Command("candidates", "build or inspect candidate sets, with a data card", run, SELECTION, Own),)
