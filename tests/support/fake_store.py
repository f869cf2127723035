"""Write a results folder as real runs would leave it, without training: for tests of what reads results.

Layout (see benchmark/store.py): runs/<dataset>/<method>/seed<k>-<identity8>/{run.json, metrics.jsonl}. Configurations are
those that the profile resolves to, so `table2`, `status` and the others take the runs for their own. Same arguments, same
bytes: every number follows from the run's key.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.config.profile import load_profile
from benchmark.config.resolution import Override, resolve
from benchmark.config.spec import SCHEMA, RunSpec, canonical, digest_of, identity_of
from benchmark.store import StoredRun, place_of
from benchmark.trainer.summary import summarise
from methods.registry import Entry, discover

ENVIRONMENT = {
    "device": "cuda:0", "device_name": "Fake GPU 24 GB", "python": "3.11.7", "torch": "2.6.0", "torchvision": "0.21.0",
    "numpy": "2.1.0", "platform": "Linux", "code_version": "fake00000000",
    "commit": "0123456789abcdef0123456789abcdef01234567",
}  # fmt: skip


def write_store(
    results: Path,
    *,
    profile: str = "paper",
    methods: Sequence[str] | None = None,
    datasets: Sequence[str] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    epochs: int | None = None,
    overrides: Sequence[Override] = (),
    variant: dict[str, Any] | None = None,
    edit: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """Write one run per method, dataset and seed.

    `epochs` shortens metrics.jsonl without changing the configuration, so the runs still belong to the profile. `edit`
    changes a run's document before it is written: another status, a reason, a foreign schema.
    """
    definition = load_profile(profile)
    for dataset in datasets if datasets is not None else definition.datasets:
        for seed in seeds:
            checksum = hashlib.sha256(f"{dataset} {seed}".encode()).hexdigest()
            for method in methods if methods is not None else definition.methods:
                spec = resolve(definition, known_methods()[method], dataset, seed, overrides, variant)
                write_run(results, spec, checksum, epochs or spec.train.epochs, edit)


def generator_of(*key: object) -> np.random.Generator:
    return np.random.default_rng(int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "big"))


@functools.cache
def known_methods() -> dict[str, Entry]:
    return discover().entries


def write_run(
    results: Path, spec: RunSpec, checksum: str, epochs: int, edit: Callable[[dict[str, Any]], None] | None = None
) -> Path:
    """One run folder; with another status than `done` it has no summary and two thirds of its epochs."""
    identity = identity_of(spec.digest, checksum)
    random = generator_of(spec.dataset, spec.label, spec.seed)
    time = {"images_per_second": 1000.0, "peak_memory_mb": 2000.0, "seconds": 20.0, "train_seconds": 18.0}
    curve = {name: values.tolist() for name, values in _curve(spec, epochs, random).items()}
    records = [
        {"epoch": k, "result": {name: values[k] for name, values in curve.items()}, "time": time} for k in range(epochs)
    ]
    document: dict[str, Any] = {
        "schema": SCHEMA, "status": "done", "reason": "", "profile": spec.profile, "dataset": spec.dataset,
        "method": spec.method, "label": spec.label, "seed": spec.seed, "identity": identity,
        "config": spec.to_json(), "config_digest": spec.digest, "provenance": spec.provenance, "overrides": spec.overrides,
        "candidates_sha256": checksum, "environment": dict(ENVIRONMENT), "epochs_done": epochs,
        "summary": summarise(records),
        "cost": {
            "seconds_per_epoch": 25.0, "images_per_second": 2000.0, "peak_memory_mb": 5000.0, "parameters": 11_220_132,
        },
        "time": {"started": "2025-01-01T00:00:00+00:00", "finished": "2025-01-02T00:00:00+00:00", "sittings": 1,
                 "host": "fake", "pid": 1},
        "weights_sha256": hashlib.sha256(identity.encode()).hexdigest(),
    }  # fmt: skip
    if edit is not None:
        edit(document)
        if document["config"] != spec.to_json():  # another configuration is another run
            document["config_digest"] = digest_of(document["config"])
        document["identity"] = identity_of(document["config_digest"], document["candidates_sha256"])
    folder = StoredRun(results / "runs" / place_of(*(document[k] for k in ("dataset", "method", "seed", "identity"))))
    folder.path.mkdir(parents=True, exist_ok=True)
    if document["status"] != "done":
        document.pop("summary")
        records = records[: max(1, 2 * epochs // 3)]
        document["epochs_done"] = len(records)
    folder.document_path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    folder.metrics.write_text("".join(f"{canonical(record)}\n" for record in records), encoding="utf-8")
    return folder.path


def _curve(spec: RunSpec, epochs: int, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Metrics of every epoch: a rise that saturates as the learning rate falls, and noise that dies away."""
    final = 50 + 30 * generator_of(spec.label, spec.dataset).random() + random.normal(0, 0.35)
    x = np.arange(1, epochs + 1) / epochs
    noise = random.normal(0, 1, epochs) * 1.4 * np.cos(np.pi * x / 2)
    accuracy = np.clip(final * (1 - np.exp(-10 * x)) + noise, 1, 99.9)
    accuracy[-1] = final
    return {
        "test_accuracy": accuracy.round(2),
        "train_accuracy": np.clip(accuracy * 1.12 + 2, 0, 99.99),
        "covering_rate": np.clip(35 + 0.6 * accuracy + random.normal(0, 0.8, epochs), 0, 100),
        "approximated_accuracy": np.clip(20 + 0.7 * accuracy + random.normal(0, 0.6, epochs), 0, 100),
        "loss": 0.15 + 4.2 * np.exp(-3.5 * x) * (1 + 0.02 * random.random(epochs)),
        "lr": 0.025 * (1 + np.cos(np.pi * (x - 1 / epochs))),
    }


def spoil(document: dict[str, Any]) -> None:
    """An `edit` that leaves some runs of a store unfinished, as in real life."""
    key = (document["dataset"], document["method"], document["seed"])
    ends = {
        ("cub200", "idgp", 2): ("diverged", "loss is nan at step 20412, rows 17, 391, 2044"),
        ("cars196", "dirk", 1): ("oom", "out of memory (peak 24118 MB): tried to allocate 1.16 GiB"),
        ("dogs120", "pico", 0): ("interrupted", ""),
        ("cub200", "nepll", 1): ("failed", "no space left on the disk of the results folder"),
    }  # fmt: skip
    if key in ends:
        document["status"], document["reason"] = ends[key]
