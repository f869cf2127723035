"""One run: its exact configuration, typed, and what it is called. Needs no torch."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmark.config import sections as typed
from benchmark.config.sections import SECTIONS, Annotator, Backbone, Data, Train, Views
from benchmark.errors import UsageError
from methods.networks.names import file_digest_of

SCHEMA = 1  # of run.json and metrics.jsonl


def canonical(value: Any) -> str:
    """Return JSON with sorted keys and no spaces: equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest_of(value: Any) -> str:
    """Return the SHA-256 of a value in canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def identity_of(config_digest: str, candidates_sha256: str) -> str:
    """Return the identity of a run: its configuration and the candidate labels that it is trained on."""
    return hashlib.sha256(f"{config_digest}{candidates_sha256}".encode()).hexdigest()


@dataclass(frozen=True)
class RunSpec:
    """One run: everything that decides its numbers, then its names and the paths of its files on this machine."""

    method: str
    method_config: dict[str, Any] = field(hash=False)  # the fields of the method's Config
    dataset: str
    dataset_settings: dict[str, Any] = field(hash=False)
    data: Data
    train: Train
    backbone: Backbone  # its `weights` are the file's SHA-256
    annotator: Annotator
    seed: int
    method_source: str = ""  # SHA-256 of a plug-in's file; files of the tree are versioned by the commit
    dataset_sha256: str = ""  # of the user's own data
    views: Views = field(default_factory=Views)

    # None of these enters the identity.
    profile: str = ""
    label: str = ""  # see `label_of`
    provenance: dict[str, str] = field(hash=False, default_factory=dict)
    overrides: dict[str, Any] = field(hash=False, default_factory=dict)
    paths: dict[str, str] = field(hash=False, default_factory=dict)  # on this machine: plugin, weights, dataset, …
    purpose: str = ""  # "tuning" of the runs of a grid search, which are no results

    def to_json(self) -> dict[str, Any]:
        """Return the configuration as run.json and the identity have it."""
        method = {"name": self.method, "config": self.method_config}
        views = typed.to_json(self.views)  # younger than stored runs, as a whole
        own = {"sha256": self.dataset_sha256} if self.dataset_sha256 else {}
        return {
            "schema": SCHEMA,
            "method": method | ({"source": self.method_source} if self.method_source else {}),
            "dataset": {"name": self.dataset, **own, "settings": self.dataset_settings, **typed.to_json(self.data)},
            "train": typed.to_json(self.train),
            "backbone": typed.to_json(self.backbone),
            "annotator": typed.to_json(self.annotator),
            **({"views": views} if views else {}),
            "seed": self.seed,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any], **names: Any) -> RunSpec:
        """Read a configuration back from run.json; ValueError for what this version of the program would not write.

        `names` are fields that are not part of the configuration.
        """
        try:
            dataset = dict(values["dataset"])
            name, sha256, settings = dataset.pop("name"), dataset.pop("sha256", ""), dataset.pop("settings")
            method = values["method"]
            tables = {section: dataset if section == "data" else values.get(section, {}) for section in SECTIONS}
            spec = cls(
                method=method["name"],
                method_config=dict(method["config"]),
                method_source=method.get("source", ""),
                dataset=name,
                dataset_sha256=sha256,
                dataset_settings=dict(settings),
                seed=values["seed"],
                **{section: SECTIONS[section](**tables[section]) for section in SECTIONS},
                **names,
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"its configuration is of another version of the program ({error})") from None
        if spec.digest != digest_of(values):
            raise ValueError("its configuration is of another version of the program")
        return spec

    def check(self) -> None:
        """Raise ValueError for a value of a wrong type or out of its range."""
        for name, section in SECTIONS.items():
            values = dataclasses.asdict(getattr(self, name))
            for key, setting in typed.fields_of(section).items():
                setting.check(values[key])

    @property
    def data_seed(self) -> int:
        """Seed of candidate sets, held-out rows and split; initialisation, order and views follow the run's seed."""
        return self.seed if self.data.seed < 0 else self.data.seed

    @functools.cached_property  # every count of a plan asks for it
    def digest(self) -> str:
        """SHA-256 of the configuration in canonical JSON."""
        return digest_of(self.to_json())

    def weight_file(self) -> str:
        """Return the file that replaces published weights, or ""; UsageError if it changed since the plan."""
        path = self.paths.get("weights", "")
        check_unchanged(path, self.backbone.weights)
        return path

    def network_file(self) -> str:
        """Return `FILE.py:CLASS` of a network of the user's, or ""; UsageError if it changed since the plan."""
        named = self.paths.get("network", "")
        check_unchanged(named.rpartition(":")[0], file_digest_of(self.backbone.name))
        return named

    @property
    def runs_user_code(self) -> bool:
        """Return whether the run executes a file of the user: a plug-in or a network."""
        return any(self.paths.get(key) for key in ("plugin", "network", "annotator"))

    def with_train(self, **changes: Any) -> RunSpec:
        """Return the same run with other training settings."""
        return dataclasses.replace(self, train=dataclasses.replace(self.train, **changes))


def values_by_source(config: Mapping[str, Any], provenance: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return every value of a stored configuration, "train.lr=0.05", under where it comes from; the defaults last.

    Nothing for a configuration of another version of the program.
    """
    try:
        spec = RunSpec.from_json(config)
    except ValueError:
        return {}
    sections = {"method": spec.method_config, "dataset": spec.dataset_settings}
    sections |= {name: dataclasses.asdict(getattr(spec, name)) for name in SECTIONS}
    by_source: dict[str, list[str]] = {}
    for section, values in sections.items():
        for key, value in values.items():
            name = f"{section}.{key}"
            source = provenance.get(name) or ("the dataset's settings" if section == "dataset" else "default")
            by_source.setdefault(str(source), []).append(f"{name}={value}")
    return by_source | ({"default": by_source.pop("default")} if "default" in by_source else {})


def label_of(method: str, overrides: Mapping[str, Any]) -> str:
    """Return the method with what was overridden, "cel[alpha=0.1]"."""
    words = (f"{key}={f'{value:g}' if isinstance(value, float) else value}" for key, value in overrides.items())
    return f"{method}[{','.join(words)}]" if overrides else method


def check_unchanged(path: str, digest: str) -> None:
    """Raise UsageError if a file has another SHA-256 than when the runs were planned, of which `digest` is the beginning."""
    if path and not (digest and file_digest(path).startswith(digest)):
        raise UsageError(f"{path} has changed since the runs were planned; rerun the command.")


def file_digest(path: str) -> str:
    """Return the SHA-256 of a file of the user's."""
    try:
        facts = os.stat(path)
        return _digest_of_version(path, facts.st_mtime_ns, facts.st_size)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from None


@functools.lru_cache(maxsize=16)
def _digest_of_version(path: str, changed: int, size: int) -> str:
    """Read once per version of the file, not once per run of a plan."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
