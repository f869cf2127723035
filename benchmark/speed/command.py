"""Measures what was asked for, prints it, writes results/speed/<name>.json.

Everything is a ratio of two things timed in turns in one run, medians over rounds: machines differ and are noisy.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmark.analysis.table import to_text
from benchmark.errors import COMPLETE, FAILED, UsageError
from benchmark.files import atomic_write, ensure_writable
from benchmark.plan.selection import Selection
from benchmark.plan.spec import RunSpec
from benchmark.run.capture import silenced
from benchmark.run.failures import sentence
from benchmark.run.options import RunOptions
from benchmark.run.provenance import environment, now
from benchmark.speed import levers, model, page, parts, training, views
from benchmark.speed.timing import one_thread
from benchmark.train.loading import dataset_of

PARTS: dict[str, Callable[[int], list[dict[str, Any]]]] = {  # that need no data set
    "knn": lambda _: parts.measure_neighbours(),  # half a minute, once; first, while this process is still small
    "views": views.measure,
    "losses": parts.measure_losses,
}


@dataclass(frozen=True)
class SpeedRequest:
    """What to measure: names of PARTS, "levers", or without any the training of the selected methods."""

    parts: tuple[str, ...] = ()
    rounds: int = 5
    docs: bool = False
    quiet: bool = False


def run(selection: Selection, options: RunOptions, request: SpeedRequest) -> int:
    """The exit code says whether every method could be measured."""
    rounds = request.rounds
    if rounds < 1:
        raise UsageError(f"--rounds is {rounds}; it must be at least 1.")
    ensure_writable(options.results)
    folder = options.results / "speed"
    with one_thread():
        for name in (name for name in PARTS if name in request.parts):
            _finish(folder, name, _about(name, "cpu", rounds) | {"rows": PARTS[name](rounds)})
        if "levers" in request.parts:
            spec = selection.specs([training.REFERENCE], selection.datasets)[0]
            about = _about("levers", options.device, rounds) | _setting(selection, options, spec)
            _finish(folder, "levers", about | {"rows": levers.measure(spec, options, rounds)})
        code = COMPLETE if request.parts else _training(selection, options, request)
    if request.docs:
        for path in page.write(folder):
            print(f"Written: {path}")
    return code


def model_on(card: str, methods: Sequence[str], results: Path) -> int:
    """The modelled trainings of some methods on a card, printed and written."""
    ensure_writable(results)
    document = model.report(methods, card, lambda method: print(f"  {method}: done", flush=True))
    path = results / "speed" / f"model-{card}.json"
    atomic_write(path, json.dumps({**_about("model", "cpu", 1), **document}, indent=1) + "\n")
    print(f"{model.table(document)}\nWritten: {path}", flush=True)
    return COMPLETE


def _training(selection: Selection, options: RunOptions, request: SpeedRequest) -> int:
    """All methods, a file per data set; a method that fails is named and left out."""
    code = COMPLETE
    seed = selection.seeds[0]
    grid = {name: [s for s in selection.specs(None, [name]) if s.seed == seed] for name in selection.datasets}
    with silenced():  # all before the first is timed: a fork holds whatever this process does
        memory = {spec.digest: training.peak_memory(spec, options) for specs in grid.values() for spec in specs}
    for dataset, specs in grid.items():
        reference = selection.specs([training.REFERENCE], [dataset])[0]
        rows = []
        for spec in specs:
            try:
                row = training.measure(spec, reference, options, request.rounds)
            except Exception as error:  # a broken method must not hide the speed of the others
                print(f"{spec.label} on {dataset}: {sentence(error)}", flush=True)
                code = FAILED
                continue
            rows.append(row | {"peak_memory_mb": memory[spec.digest]})
            if not request.quiet:  # it takes minutes; nobody should wonder
                print(f"  {spec.method}: {row['step']:.2f} of the bare loop in a step", flush=True)
        if rows:
            about = _about("training", options.device, request.rounds) | _setting(selection, options, reference)
            _finish(options.results / "speed", re.sub(r"\W+", "-", page.setting_of(about)), about | {"rows": rows})
    return code


def _setting(selection: Selection, options: RunOptions, spec: RunSpec) -> dict[str, Any]:
    """What was trained."""
    dataset = dataset_of(spec, options.data)
    images, _ = dataset.train.batch(torch.arange(1))
    return {
        "profile": spec.profile,
        "overrides": [f"{o.scope}.{o.key}={o.text}" for o in selection.overrides],
        "dataset": spec.dataset,
        "image": list(images.shape[1:]),
        "backbone": spec.backbone.name or dataset.backbone,
        "batch": spec.train.batch,
        "compiled": spec.train.compile,
    }


def _about(kind: str, device: str, rounds: int) -> dict[str, Any]:
    """Machine, versions and date; no host name."""
    known = environment(device)
    kept = {key: known[key] for key in ("device", "device_name", "python", "torch", "torchvision", "code_version")}
    return {"kind": kind, "date": now()[:10], "cores": os.cpu_count(), "rounds": 1 if kind == "knn" else rounds, **kept}


def _finish(folder: Path, name: str, document: page.Document) -> None:
    path = folder / f"{name}.json"
    atomic_write(path, json.dumps(document, indent=1) + "\n")
    print(to_text(page.table(document)))
    print(f"Written: {path}", flush=True)
