"""Measurements of `speed` as tables, and together in docs/speed.md, docs/speed.json and docs/cost.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmark.analysis.table import Table, row, to_markdown
from benchmark.errors import UsageError
from benchmark.files import ROOT, atomic_write

DOCS = ROOT / "docs"
MEASURED = re.compile(r"(?<=<!-- measured -->\n).*(?=<!-- /measured -->)", re.S)  # the part of the page that is written
SMALL, SMALL_GOAL, LARGE_GOAL = "small-cnn", 0.90, 0.95
CAPTIONS = {
    "training": "Speed of training, as a part of the bare loop's",
    "views": "The weak and strong view of an image: batched on tensors against Pillow, one image at a time",
    "losses": "CEL's class-wise losses with gradients: vectorised against loops over samples",
    "levers": "Ways to train faster, each tried alone in PRODEN's training; below 1 it is slower",
    "knn": "VALEN's nearest neighbours at the size of CIFAR-100, exact, in blocks",
}
Document = dict[str, Any]


def table(document: Document) -> Table:
    """One measurement. The keys of its rows are the headings; those with words come first."""
    head, kind = document["rows"][0], document["kind"]
    where = f", {setting_of(document)}" if "backbone" in document else ""
    return Table(
        "",
        f"{CAPTIONS[kind]}{where}:",
        tuple(key.replace("_", " ") for key in head),
        tuple(row(*(_shown(one[key]) for key in head)) for one in document["rows"]),
        notes=(f"In a step: {goal_kept(document)}.",) if kind == "training" else (),
        text_columns=sum(isinstance(value, str) for value in head.values()),
    )


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 100 else f"{value:.2f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "–" if value is None else str(value)


def setting_of(document: Document) -> str:
    """What was trained, in a few words."""
    image = " × ".join(map(str, document["image"]))
    compiled = ", compiled" if document["compiled"] else ""
    return f"{document['dataset']}, {document['backbone']}, {image}, batch {document['batch']}{compiled}"


def goal_kept(document: Document) -> str:
    goal = SMALL_GOAL if document["backbone"].startswith(SMALL) else LARGE_GOAL
    steps = [one["step"] for one in document["rows"]]
    return f"{sum(step >= goal for step in steps)} of {len(steps)} ≥ {goal:.2f}"


def summary(documents: Iterable[Document]) -> Table:
    """A line per measurement of training: from which to which ratio, and how many methods keep the goal."""
    rows = []
    for one in documents:
        ranges = [[method[key] for method in one["rows"]] for key in ("step", "all_in")]
        shown = [f"{min(values):.2f}–{max(values):.2f}" for values in ranges]
        rows.append(row(setting_of(one), *shown, goal_kept(one), one["date"]))
    columns = ("trained", "step", "all in", "methods at the goal in a step", "measured")
    return Table("", f"{CAPTIONS['training']}, from the slowest method to the fastest:", columns, tuple(rows))


def measured(documents: Mapping[str, Document]) -> str:
    """What docs/speed.md shows: ranges over methods and the short tables."""
    tables = [summary(d for d in documents.values() if d["kind"] == "training")]
    tables += [table(d) for d in documents.values() if d["kind"] != "training"]
    machines = {
        f"Measured on {d['date']}{d.get('note', '')}: {d['device_name']}, {d['cores']} cores, one thread, "
        f"Python {d['python']}, torch {d['torch']}, torchvision {d['torchvision']}."
        for d in documents.values()
    }
    return "\n".join([*map(to_markdown, tables), *sorted(machines)]) + "\n"


def cost(documents: Mapping[str, Document]) -> dict[str, dict[str, Any]]:
    """What docs/methods.md shows of each method, from the newest measurement of `quick` as it is that has it."""
    found: dict[str, dict[str, Any]] = {}
    for document in sorted(documents.values(), key=lambda one: one["date"], reverse=True):
        if document["kind"] == "training" and document["profile"] == "quick" and not document["overrides"]:
            for one in document["rows"]:
                known = {
                    "seconds_per_step_relative_to_proden": round(one["relative_to_proden"], 2),
                    "peak_memory_mb": one["peak_memory_mb"] and round(one["peak_memory_mb"]),
                    "measured": document["date"],
                }
                found.setdefault(one["method"], known)
    return found


def write(folder: Path) -> list[Path]:
    """Measurements of `folder` into docs/speed.json, in place of older ones of their names, and what follows from it."""
    before = (DOCS / "speed.md").read_text(encoding="utf-8")
    documents: dict[str, Document] = json.loads((DOCS / "speed.json").read_text(encoding="utf-8"))
    measurements = (path for path in sorted(folder.glob("*.json")) if not path.name.startswith("model-"))
    documents |= {path.stem: _read(path) for path in measurements}
    contents = {
        "speed.json": json.dumps(documents, indent=1) + "\n",
        "speed.md": MEASURED.sub(lambda _: measured(documents), before),
        "cost.json": json.dumps(cost(documents), indent=1) + "\n",
    }
    for name, content in contents.items():
        atomic_write(DOCS / name, content)
    return [DOCS / name for name in contents]


def _read(path: Path) -> Document:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        table(document), measured({"": document}), cost({"": document})
    except (ValueError, LookupError, TypeError, AttributeError):
        raise UsageError(f"{path} is no measurement of this version; delete it and measure again.") from None
    return document
