"""Commands that look and tell: list, status, estimate, doctor, fetch, candidates."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmark import store
from benchmark.cli.training import announce, selection_of
from benchmark.errors import COMPLETE, FAILED, INCOMPLETE, UsageError
from benchmark.plan.profile import load_profile
from benchmark.store import SCHEMA, RunFolder, state_of

PACKAGES = ("torch", "torchvision", "timm", "numpy", "pandas", "scipy", "matplotlib", "joblib", "distributed")


def listing(arguments: argparse.Namespace) -> int:
    """`list methods|datasets|generators|profiles|runs`."""
    rows, notes = _rows(arguments)
    if arguments.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    elif rows:
        columns = [key for key in rows[0] if key not in ("how", "file", "config")]
        widths = {c: max(len(str(r[c])) for r in rows) for c in columns}
        for row in rows:
            line = "  ".join(str(row[c]).ljust(widths[c]) for c in columns).rstrip()
            print(line + (f"  → {row['how']}" if row.get("how") else ""))
    for note in notes:
        print(f"warning: {note}", file=sys.stderr)
    return COMPLETE


def _rows(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    what = arguments.what
    if what == "methods":
        from methods.registry import MethodError, discover

        try:
            catalogue = discover(tuple(arguments.plugin))
        except MethodError as error:
            raise UsageError(str(error)) from None
        order = {"IDPLL": 0, "PLL": 1, "control": 2, "reference": 3}
        entries = sorted(catalogue.entries.values(), key=lambda e: (order.get(e.kind, 4), e.name))
        rows: list[dict[str, Any]] = [
            {
                "name": e.name,
                "title": e.title,
                "kind": e.kind,
                "venue": f"{e.venue} {e.year}" if e.year else "–",
                "views": "+".join(e.views),
                "file": str(e.file),
                "config": {key: {"type": s.annotation, "default": s.default} for key, s in e.config.items()},
            }
            for e in entries
        ]
        return rows, list(catalogue.broken.values())
    if what == "datasets":
        from datasets.registry import SOURCES

        rows = []
        for source in SOURCES.values():
            found = source.find(arguments.data)
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
        return rows, []
    if what == "generators":
        from datasets.labels.generators import GENERATORS

        return [{"name": entry.name, "rule": entry.sentence} for entry in GENERATORS.values()], []
    if what == "profiles":
        from benchmark.plan.profile import profile_names

        rows = []
        for name in profile_names():
            p = load_profile(name)
            size = f"{len(p.methods)} methods × {len(p.datasets)} data sets × {len(p.seeds)} seeds"
            extra = f"+ {len(p.controls)} controls, {len(p.references)} references"
            rows.append({"name": name, "size": size, "extra": extra, "epochs": f"{p.train.get('epochs', 500)} epochs"})
        return rows, []
    return _runs(arguments), []


def _documents(arguments: argparse.Namespace) -> Iterator[tuple[RunFolder, dict[str, Any], str]]:
    """Every run of this schema with its document and its state now."""
    other = 0
    for folder, document in store.documents(arguments.results, arguments.profile):
        if document.get("schema", SCHEMA) == SCHEMA:
            yield folder, document, state_of(folder, document)
        else:
            other += 1
    if other:
        print(f"warning: {other} run(s) of another schema than {SCHEMA} are not shown.", file=sys.stderr)


def _runs(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for _, document, state in _documents(arguments):
        accuracy = (document.get("summary") or {}).get("accuracy")
        rows.append(
            {
                "profile": document["profile"],
                "dataset": document["dataset"],
                "label": document["label"],
                "seed": document["seed"],
                "identity": document["identity"][:8],
                "status": state,
                "accuracy": f"{accuracy:.2f}" if state == "done" and accuracy is not None else "–",
                "reason": document.get("reason", ""),
            }
        )
    return rows


def status(arguments: argparse.Namespace) -> int:
    """`status`: per profile what is there, live from another shell."""
    by_profile: dict[str, list[tuple[RunFolder, dict[str, Any], str]]] = {}
    for folder, document, state in _documents(arguments):
        by_profile.setdefault(document["profile"], []).append((folder, document, state))
    if arguments.profile and not by_profile:
        load_profile(arguments.profile)  # an unknown name without any run is a slip of the keyboard
    wanted = [arguments.profile] if arguments.profile else sorted({*by_profile, "quick"})
    for name in wanted:
        entries = by_profile.get(Path(name).stem if name.endswith(".toml") else name, [])
        counts = Counter(state for _, _, state in entries)
        missing = _missing(name, arguments)
        if missing is not None:
            counts["missing from table2"] = missing
        print(f"{name}: " + (", ".join(f"{n} {state}" for state, n in counts.items() if n) or "nothing yet"))
        for folder, document, state in entries:
            head = f"  {document['dataset']} {document['label']} seed {document['seed']}"
            if state == "running":
                print(f"{head}: {_live(folder, document)}")
            elif state not in ("done",):
                print(f"{head}: {state}{': ' + document['reason'] if document.get('reason') else ''}")
        left = sum(_seconds_left(folder, document) for folder, document, state in entries if state == "running")
        if left:
            from benchmark.run.progress import duration

            print(f"  about {duration(left)} of computing left in running jobs")
    return COMPLETE


def _missing(profile: str, arguments: argparse.Namespace) -> int | None:
    from benchmark.plan.selection import standing

    namespace = argparse.Namespace(**{**vars(arguments), "profile": profile})
    try:
        return standing(selection_of(namespace).specs(), arguments.results).count("missing")
    except UsageError:
        return None  # a profile of somebody else's, known here only by its runs


def _live(folder: Any, document: dict[str, Any]) -> str:
    epochs = folder.epochs()
    total = document["config"]["train"]["epochs"]
    accuracy = next((e["result"]["test_accuracy"] for e in reversed(epochs) if "test_accuracy" in e["result"]), None)
    shown = f", {accuracy:.1f} %" if accuracy is not None else ""
    return f"epoch {len(epochs)}/{total}{shown} on {document['time'].get('host', '?')}"


def _seconds_left(folder: Any, document: dict[str, Any]) -> float:
    epochs = folder.epochs()
    if not epochs:
        return 0.0
    per_epoch = sorted(e["time"]["seconds"] for e in epochs)[len(epochs) // 2]
    return per_epoch * (document["config"]["train"]["epochs"] - len(epochs))


def estimate(arguments: argparse.Namespace) -> int:
    """`estimate table2`: runs, forward passes, hours and disk, from a short measurement on this machine."""
    from benchmark.cli.estimate import print_estimate
    from benchmark.exhibits.base import need_of

    selection = selection_of(arguments)
    announce(arguments, f"Estimate for {arguments.what}", selection)
    if arguments.what == "all":
        names = ["table2", "table4", "fig2", "fig4", "fig5", "fig6"]
        specs = [spec for name in names for spec in need_of(name, selection).specs]
    elif arguments.what == "run":
        specs = selection.specs()
    else:
        specs = need_of(arguments.what, selection).specs
    return print_estimate(arguments, selection, specs)


def doctor(arguments: argparse.Namespace) -> int:
    """`doctor`: what this machine has."""
    from benchmark.run import devices
    from benchmark.run.devices import cores
    from benchmark.run.provenance import commit, cpu_name
    from datasets.registry import SOURCES

    print(f"Python      {sys.version.split()[0]}")
    for package in PACKAGES:
        try:
            print(f"{package:<11} {version(package)}")
        except PackageNotFoundError:
            print(f"{package:<11} not installed")
    found = devices.cuda_devices()
    print(f"Device      {', '.join(found) or 'no CUDA device; runs go to the CPU'}")
    print(f"CPU         {cpu_name()}, {cores()} cores")
    print(f"Memory      {_memory()}")
    for name, folder in (("results", arguments.results), ("data", arguments.data)):
        existing = next(p for p in (folder.resolve(), *folder.resolve().parents) if p.exists())
        print(f"Disk        {shutil.disk_usage(existing).free / 2**30:.0f} GiB free for {name} in {folder}")
    print(f"Commit      {commit() or 'not a git checkout'}")
    print("Data sets")
    worst = COMPLETE
    for source in SOURCES.values():
        availability = source.find(arguments.data)
        print(f"  {source.name:<12} {availability.status:<10} {availability.detail}")
        if availability.how:
            print(f"  {'':<12} → {availability.how}")
        if availability.status == "incomplete":
            worst = FAILED
    return worst


def _memory() -> str:
    try:
        values = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        total, free = (int(values[k].split()[0]) / 2**20 for k in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        return "unknown"
    return f"{total:.0f} GiB, {free:.0f} GiB available"


def fetch(arguments: argparse.Namespace) -> int:
    """`fetch DATASET`."""
    from datasets.storage.fetch import fetch as download

    message = download(arguments.name, arguments.data)
    if message:
        print(message)
    return COMPLETE


def candidates(arguments: argparse.Namespace) -> int:
    """`candidates`: build or inspect, and draw the data card."""
    from benchmark.train.candidates import show_candidates

    selection = selection_of(arguments)
    out = arguments.out or arguments.results / "cards"
    complete = show_candidates(selection, out)
    return COMPLETE if complete else INCOMPLETE
