"""`list methods|datasets|generators|profiles|runs`, one line each."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from benchmark.cli.options import Command, Request
from benchmark.errors import COMPLETE, UsageError
from benchmark.flags import flag
from datasets.candidates.generators import GENERATORS

Rows = list[dict[str, Any]]
NOT_SHOWN = ("how", "file", "config")  # columns for --json alone; `how` follows its line


def _methods(request: Request) -> Rows:
    from methods.registry import MethodError, discover

    try:
        catalogue = discover(request.plugins)
    except MethodError as error:
        raise UsageError(str(error)) from None
    for reason in catalogue.broken.values():
        print(f"warning: {reason}", file=sys.stderr)
    order = {"IDPLL": 0, "PLL": 1, "control": 2, "reference": 3}
    return [
        {
            "name": e.name,
            "title": e.title,
            "kind": e.kind,
            "venue": f"{e.venue} {e.year}" if e.year else "–",
            "views": "+".join(e.views),
            "file": str(e.file),
            "config": {key: {"type": s.annotation, "default": s.default} for key, s in e.config.items()},
        }
        for e in sorted(catalogue.entries.values(), key=lambda e: (order.get(e.kind, 4), e.name))
    ]


def _datasets(request: Request) -> Rows:
    from datasets.registry import SOURCES

    rows = []
    for source in SOURCES.values():
        found = source.find(request.data)
        rows.append(
            {
                "name": source.name,
                "title": source.title,
                "group": source.group,
                "classes": source.num_classes or "–",
                "train": source.train_size or "–",
                "test": source.test_size or "–",
                "status": found.status,
                "detail": found.detail,
                "how": found.how,
            }
        )
    return rows


def _generators(request: Request) -> Rows:
    return [{"name": entry.name, "rule": entry.sentence} for entry in GENERATORS.values()]


def _profiles(request: Request) -> Rows:
    from benchmark.config.profile import load_profile, profile_names

    rows = []
    for p in map(load_profile, profile_names()):
        size = f"{len(p.methods)} methods × {len(p.datasets)} data sets × {len(p.seeds)} seeds"
        extra = f"+ {len(p.controls)} controls, {len(p.references)} references, {len(p.extensions)} extensions"
        rows.append({"name": p.name, "size": size, "extra": extra, "epochs": f"{p.train.get('epochs', 500)} epochs"})
    return rows


def _runs(request: Request) -> Rows:
    from benchmark.store import Store, readable

    rows = []
    for run in readable(Store(request.results).of_profile(request.profile, request.plugins)):
        document, state, accuracy = run.document, run.status, run.summary.get("accuracy")
        rows.append(
            {
                "profile": document["profile"],
                "dataset": document["dataset"],
                "label": document["label"],
                "source": run.source or "–",
                "seed": document["seed"],
                "identity": document["identity"][:8],
                "status": state,
                "accuracy": f"{accuracy:.2f}" if state == "done" and accuracy is not None else "–",
                "reason": document.get("reason", ""),
            }
        )
    return rows


LISTS = {
    "methods": _methods,
    "datasets": _datasets,
    "generators": _generators,
    "profiles": _profiles,
    "runs": _runs,
}


@dataclass(frozen=True)
class Own:
    what: str = flag(None, positional=True, choices=tuple(LISTS))
    json: bool = flag(False, "machine-readable")


def run(request: Request, own: Own) -> int:
    rows = LISTS[own.what](request)
    if own.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    elif rows:
        from benchmark.analysis.table import aligned

        columns = [key for key in rows[0] if key not in NOT_SHOWN]
        head, *lines = aligned([columns, *([str(row[c]) for c in columns] for row in rows)])
        if sys.stdout.isatty():  # scripts get lines alone
            print(head)
        for line, row in zip(lines, rows, strict=True):
            print(line + (f"  → {row['how']}" if row.get("how") else ""))
    else:
        print(f"There are no {own.what} here.", file=sys.stderr)
    return COMPLETE


COMMANDS = (
    Command(
        "list",
        "methods, datasets, generators, profiles or runs, one line each",
        run,
        ("profile", "results", "data", "plugins"),
        Own,
        writes=False,
    ),
)
