"""`speed`: throughput of each method against the bare loop of its networks, and of views, losses and neighbour search.

Everything is a ratio of two things timed in turns in one run, medians over rounds: machines differ and are noisy. On a
CPU the clock counts seconds of this process, on an accelerator those of the wall.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmark.cli.training import announce, selection_of
from benchmark.errors import COMPLETE, FAILED, UsageError
from benchmark.files import atomic_write, ensure_writable
from benchmark.plan.selection import Selection
from benchmark.plan.spec import RunSpec, resolve
from benchmark.run.capture import silenced
from benchmark.run.failures import sentence
from benchmark.run.options import RunOptions
from benchmark.run.provenance import environment, now
from benchmark.speed import knn as speed_knn
from benchmark.speed import levers as speed_levers
from benchmark.speed import losses as speed_losses
from benchmark.speed import page as speed_page
from benchmark.speed import trainer as speed_trainer
from benchmark.speed import views as speed_views
from benchmark.speed.timing import one_thread
from benchmark.train.loading import dataset_of


def command(arguments: argparse.Namespace) -> int:
    """Measure what was asked for, or the trainer; print it, write results/speed/<name>.json."""
    if arguments.rounds < 1:
        raise UsageError(f"--rounds is {arguments.rounds}; it must be at least 1.")
    arguments.profile = arguments.profile or "quick"
    arguments.datasets = arguments.datasets or "glyphs"
    selection = selection_of(arguments)
    folder = arguments.results / "speed"
    ensure_writable(arguments.results)
    rounds = arguments.rounds
    special: dict[str, tuple[int, Callable[[], Any]]] = {
        "knn": (1, speed_knn.measure),  # half a minute, compared with nothing; first, while this process is still small
        "views": (rounds, lambda: speed_views.measure(rounds)),
        "losses": (rounds, lambda: speed_losses.measure(rounds)),
    }
    chosen = [name for name in special if getattr(arguments, name)]
    code = COMPLETE
    with one_thread():
        for name in chosen:
            times, work = special[name]
            _finish(folder, name, {"kind": name, **_about("cpu", times), "rows": work()})
        if arguments.levers:
            _levers(selection, rounds, folder)
        elif not chosen:
            announce(arguments, "Speed of training", selection)
            place = replace(selection.place, device=selection.devices[0])
            grid = {dataset: _specs(selection, dataset, selection.methods) for dataset in selection.datasets}
            memory = _memory([spec for specs in grid.values() for spec in specs], place)
            for specs in grid.values():
                code = max(code, _trainer(selection, specs, place, memory, arguments, folder))
    if arguments.docs:
        for path in speed_page.write(folder):
            print(f"Written: {path}")
    return code


def _specs(selection: Selection, dataset: str, methods: Sequence[str]) -> list[RunSpec]:
    seed = selection.seeds[0]
    return [resolve(selection.profile, selection.entry(m), dataset, seed, selection.overrides) for m in methods]


def _levers(selection: Selection, rounds: int, folder: Path) -> None:
    (spec,) = _specs(selection, selection.datasets[0], [speed_trainer.YARDSTICK])
    place = replace(selection.place, device=selection.devices[0])
    about = _about(place.device, rounds) | _setting(spec, selection)
    _finish(folder, "levers", {"kind": "levers", **about, "rows": speed_levers.measure(spec, place, rounds)})


def _memory(specs: list[RunSpec], place: RunOptions) -> dict[str, float | None]:
    """Peak of each by its identity; all before the first is timed, while this process is still small."""
    with silenced():
        return {spec.digest: speed_trainer.peak_memory(spec, place) for spec in specs}


def _trainer(
    selection: Selection,
    specs: list[RunSpec],
    place: RunOptions,
    memory: dict[str, float | None],
    arguments: argparse.Namespace,
    folder: Path,
) -> int:
    """All methods on one data set; a method that fails is named and left out."""
    rows, code = [], COMPLETE
    (yardstick,) = _specs(selection, specs[0].dataset, [speed_trainer.YARDSTICK])
    for spec in specs:
        try:
            row = speed_trainer.measure(spec, yardstick, place, arguments.rounds, memory[spec.digest])
            rows.append(row)
            if not arguments.quiet:  # it takes minutes; nobody should wonder
                print(f"  {spec.method}: {row['step_ratio']:.2f} of the bare loop in a step", flush=True)
        except Exception as error:  # a broken method must not hide the speed of the others
            print(f"{spec.label} on {spec.dataset}: {sentence(error)}", flush=True)
            code = FAILED
    if rows:
        about = _about(place.device, arguments.rounds)
        document = {"kind": "trainer", **about, **_setting(specs[0], selection), "rows": rows}
        _finish(folder, _name(document), document)
    return code


def _name(document: dict[str, Any]) -> str:
    """One file per setting, so that the docs can show several."""
    pictures = "x".join(map(str, document["pictures"]))
    name = f"{document['dataset']}-{document['backbone'].replace(':', '-')}-{pictures}-batch{document['batch']}"
    return f"{name}-compiled" if document["compiled"] else name


def _setting(spec: RunSpec, selection: Selection) -> dict[str, Any]:
    """What was trained."""
    dataset = dataset_of(spec, selection.place.data)
    images, _ = dataset.train.batch(torch.arange(1))
    return {
        "profile": spec.profile,
        "overrides": [f"{o.scope}.{o.key}={o.text}" for o in selection.overrides],
        "dataset": spec.dataset,
        "backbone": spec.backbone.name or dataset.backbone,
        "batch": spec.train.batch,
        "compiled": spec.train.compile,
        "eval_every": spec.train.eval_every,
        "seeds": len(selection.profile.seeds),
        "pictures": list(images.shape[1:]),
        "classes": dataset.num_classes,
    }


def _about(device: str, rounds: int) -> dict[str, Any]:
    """Machine, versions and date; no host name."""
    known = environment(device)
    kept = {key: known[key] for key in ("device", "device_name", "python", "torch", "torchvision", "code_version")}
    return {"date": now()[:10], "cores": os.cpu_count(), "rounds": rounds, **kept}


def _finish(folder: Path, name: str, document: dict[str, Any]) -> None:
    path = folder / f"{name}.json"
    atomic_write(path, json.dumps(document, indent=1) + "\n")
    print(speed_page.text(document))
    print(f"Written: {path}", flush=True)
