"""From a profile and the command line to the exact configuration of every run. Needs no torch.

A value has one of five sources, later ones winning: the default in the code, the profile's [train] table, the profile's
entry for the data set, a [[values]] entry of the profile (with its own `source`), and `--set` on the command line.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.errors import UsageError
from benchmark.plan import sections as typed
from benchmark.plan.profile import Profile
from benchmark.plan.sections import SECTIONS, Annotator, Data, Network, Train, fields_of
from benchmark.store import SCHEMA, digest_of
from datasets import registry
from datasets.own import name_of
from methods.parts.networks import takes_weights
from methods.registry import Catalogue, Entry, Setting, did_you_mean


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides the numbers of a run."""

    method: str
    method_config: dict[str, Any] = field(hash=False)  # the fields of the method's Config
    dataset: str
    dataset_settings: dict[str, Any] = field(hash=False)
    data: Data
    train: Train
    backbone: Network  # its `weights` are the file's SHA-256
    annotator: Annotator
    seed: int
    method_source: str = ""  # SHA-256 of a plug-in's file; files of the tree are versioned by the commit
    dataset_sha256: str = ""  # of the user's own data

    def to_json(self) -> dict[str, Any]:
        """The configuration as run.json and the identity have it."""
        method = {"name": self.method, "config": self.method_config}
        own = {"sha256": self.dataset_sha256} if self.dataset_sha256 else {}
        return {
            "schema": SCHEMA,
            "method": method | ({"source": self.method_source} if self.method_source else {}),
            "dataset": {"name": self.dataset, **own, "settings": self.dataset_settings, **typed.to_json(self.data)},
            "train": typed.to_json(self.train),
            "backbone": typed.to_json(self.backbone),
            "annotator": typed.to_json(self.annotator),
            "seed": self.seed,
        }


@dataclass(frozen=True)
class RunSpec:
    """One run: its configuration, what it is called, and where its files lie here."""

    profile: str
    label: str  # the method with what was overridden, "cel[alpha=0.1]"
    config: RunConfig
    provenance: dict[str, str] = field(hash=False, default_factory=dict)
    overrides: dict[str, Any] = field(hash=False, default_factory=dict)
    paths: dict[str, str] = field(hash=False, default_factory=dict)  # plugin, weights, dataset: where files lie here

    @property
    def method(self) -> str:
        return self.config.method

    @property
    def dataset(self) -> str:
        return self.config.dataset

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def train(self) -> Train:
        return self.config.train

    @property
    def data(self) -> Data:
        return self.config.data

    @property
    def backbone(self) -> Network:
        return self.config.backbone

    @property
    def annotator(self) -> Annotator:
        return self.config.annotator

    @functools.cached_property  # every count of a plan asks for it
    def digest(self) -> str:
        """SHA-256 of the configuration in canonical JSON."""
        return digest_of(self.config.to_json())

    def weight_file(self) -> str:
        """The file that stands in for published weights, or nothing; refused if it is not the one of the plan."""
        path = self.paths.get("weights", "")
        if path and file_digest(path) != self.backbone.weights:
            raise UsageError(f"{path} has changed since the runs were planned; give the command again.")
        return path

    def with_train(self, **changes: Any) -> RunSpec:
        """The same run with other training settings."""
        train = dataclasses.replace(self.train, **changes)
        return dataclasses.replace(self, config=dataclasses.replace(self.config, train=train))

    def plain(self) -> dict[str, Any]:
        """Plain values, for a process that may not have this program on its path."""
        return dataclasses.asdict(self)

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> RunSpec:
        config = dict(values["config"])
        for name, section in SECTIONS.items():
            config[name] = section(**config[name])
        return cls(**{**values, "config": RunConfig(**config)})


def identity_of(config_digest: str, candidates_sha256: str) -> str:
    """Run identity: the configuration and the candidate labels it is trained on."""
    return hashlib.sha256(f"{config_digest}{candidates_sha256}".encode()).hexdigest()


@dataclass(frozen=True)
class Override:
    """`--set scope.key=value`; scope is a section, `method` (all methods of the run) or one method's name."""

    scope: str
    key: str
    text: str

    @classmethod
    def parse(cls, argument: str, catalogue: Catalogue) -> Override:
        name, equals, text = argument.partition("=")
        scope, dot, key = name.partition(".")
        if not equals or not dot or not key:
            raise UsageError(f"--set {argument}: write it as scope.key=value, for example --set method.alpha=0.5.")
        if scope in SECTIONS:
            known = fields_of(SECTIONS[scope])
            if key not in known:
                raise UsageError(f"--set {argument}: {scope} has no '{key}'.{did_you_mean(key, known)}")
        elif scope not in ("method", "dataset") and scope not in catalogue.entries:
            scopes = [*SECTIONS, "method", "dataset", *catalogue.entries]
            raise UsageError(f"--set {argument}: unknown scope '{scope}'.{did_you_mean(scope, scopes)}")
        return cls(scope, key, text)


def check_overrides(overrides: Sequence[Override], entries: Sequence[Entry]) -> None:
    """An override that no method of the run has is an error, not a silent nothing."""
    for override in overrides:
        if override.scope == "method":
            for entry in entries:
                _setting(entry, override)
        for entry in entries:
            if override.scope == entry.name:
                _setting(entry, override)


def _setting(entry: Entry, override: Override) -> Setting:
    if override.key not in entry.config:
        hint = did_you_mean(override.key, entry.config) or f" It has: {', '.join(entry.config) or 'no settings'}."
        raise UsageError(f"--set {override.scope}.{override.key}: method {entry.name} has no '{override.key}'.{hint}")
    return entry.config[override.key]


def resolve(
    profile: Profile,
    entry: Entry,
    dataset: str,
    seed: int,
    overrides: Sequence[Override] = (),
    variant: Mapping[str, Any] | None = None,
) -> RunSpec:
    """The exact configuration of one run. `variant` sets method fields, as the ablations and sensitivity plots do."""
    provenance: dict[str, str] = {}
    chosen: dict[str, Any] = {}
    identified = own_data(dataset)
    data_entry = profile.data.get(dataset, profile.data.get(identified["name"], {}))
    sections = {name: {k: s.default for k, s in fields_of(cls).items()} for name, cls in SECTIONS.items()}
    sections["method"] = {k: s.default for k, s in entry.config.items()}
    known = {name: fields_of(cls) for name, cls in SECTIONS.items()} | {"method": dict(entry.config)}
    sections["data"] |= _data_defaults(dataset)
    dataset_settings = dict(data_entry.get("settings", {}))

    def put(section: str, key: str, value: Any, source: str) -> None:
        if key not in known[section]:
            raise UsageError(f"Profile {profile.name}: {section} has no '{key}'.{did_you_mean(key, known[section])}")
        try:
            sections[section][key] = known[section][key].check(value)
        except ValueError as error:
            raise UsageError(f"Profile {profile.name}: {section}.{key}: {error}.") from None
        provenance[f"{section}.{key}"] = source

    for key, value in profile.train.items():
        put("train", key, value, f"profile {profile.name}")
    for key in fields_of(Data):
        if key in data_entry:
            put("data", key, data_entry[key], f"profile {profile.name}, {dataset}")
    for section in ("train", "backbone", "annotator"):
        for key, value in data_entry.get(section, {}).items():
            put(section, key, value, f"profile {profile.name}, {dataset}")
    for values in profile.values:
        if values["method"] in (entry.name, "*") and values["dataset"] in (dataset, identified["name"], "*"):
            for key, value in values.items():
                if key == "settings":
                    dataset_settings |= value
                    provenance.update({f"dataset.{name}": values["source"] for name in value})
                elif key == "backbone":
                    for name, part in value.items():
                        put("backbone", name, part, values["source"])
                elif key not in ("method", "dataset", "source"):
                    put("method" if key in entry.config else "train", key, value, values["source"])
    for key, value in (variant or {}).items():
        usual = sections["method"].get(key)
        put("method", key, value, "variant")
        if sections["method"][key] != usual:  # the profile's own value makes no variant: the run is the plain method's
            chosen[key] = sections["method"][key]
    for override in overrides:
        if override.scope == "dataset":
            dataset_settings[override.key] = literal(override.text)
            chosen[f"dataset.{override.key}"] = dataset_settings[override.key]
            continue
        section = override.scope if override.scope in SECTIONS else "method"
        if section == "method" and override.scope not in ("method", entry.name):
            continue
        setting = known[section][override.key] if section in SECTIONS else _setting(entry, override)
        try:
            value = setting.parse(override.text)
        except ValueError as error:
            raise UsageError(f"--set {override.scope}.{override.key}: {error}.") from None
        sections[section][override.key] = value
        provenance[f"{section}.{override.key}"] = "command line"
        chosen[override.key if section == "method" else f"{section}.{override.key}"] = value
    for section, values in sections.items():
        typed.check(section, values)
    encoder = sections["backbone"]["name"]
    if encoder and not takes_weights(encoder):  # no use for these two: the run is the one without them
        for key in ("pretrained", "weights"):
            sections["backbone"][key] = known["backbone"][key].default
            provenance.pop(f"backbone.{key}", None)
            chosen.pop(f"backbone.{key}", None)
    changed = [key for key in ("noise", "imbalance") if sections["data"][key] != known["data"][key].default]
    if sections["data"]["generator"] == "own" and changed:
        raise UsageError(
            f"data.{changed[0]} is for candidate sets that are made, and {identified['name']} brings its own; "
            f"choose a generator, for example --set data.generator=uniform, or other data."
        )
    weights = sections["backbone"]["weights"]
    backbone = Network(**{**sections["backbone"], "weights": file_digest(weights) if weights else ""})
    config = RunConfig(
        method=entry.name,
        method_config=_identifying(sections["method"], entry.config),
        # An edited plug-in is another method; files of the tree are versioned by the commit.
        method_source="" if entry.built_in else hashlib.sha256(entry.file.read_bytes()).hexdigest(),
        dataset=identified["name"],
        dataset_settings=dataset_settings,
        dataset_sha256=identified.get("sha256", ""),
        data=Data(**sections["data"]),
        train=Train(**sections["train"]),
        backbone=backbone,
        annotator=Annotator(**sections["annotator"]),
        seed=seed,
    )
    shown = chosen | ({"backbone.weights": Path(weights).name} if "backbone.weights" in chosen else {})
    label = entry.name + (f"[{','.join(f'{k}={_short(v)}' for k, v in shown.items())}]" if shown else "")
    paths = {  # absolute: a worker elsewhere may stand in another folder
        "weights": str(Path(weights).resolve()) if weights else "",
        "dataset": str(Path(dataset).expanduser().resolve()) if "sha256" in identified else dataset,
        "plugin": "" if entry.built_in else str(entry.file.resolve()),
    }
    return RunSpec(profile.name, label, config, provenance, chosen, paths)


def _identifying(values: Mapping[str, Any], settings: Mapping[str, Setting]) -> dict[str, Any]:
    """Without added fields at their default: runs recorded before there was such a field keep their identity."""
    return {key: value for key, value in values.items() if not (settings[key].added and value == settings[key].default)}


def _data_defaults(dataset: str) -> dict[str, Any]:
    """What a data set brings along: its own candidate sets, a split for every seed."""
    path = Path(dataset).expanduser()
    own = path.suffix == ".npz" or (path / "candidates.csv").is_file()
    source = registry.SOURCES.get(dataset)
    defaults: dict[str, Any] = {}
    if own or (source is not None and source.own_candidates):
        defaults["generator"] = "own"
    if own or (source is not None and source.split_by_seed):
        defaults["split"] = -1
    return defaults


def own_data(dataset: str) -> dict[str, str]:
    """How a data set enters the configuration: by name, or for the user's own files by stem and content."""
    path = Path(dataset).expanduser()
    if path.suffix == ".npz":
        return {"name": name_of(path), "sha256": file_digest(str(path))}
    if path.is_dir() and (path / "candidates.csv").is_file():
        return {"name": name_of(path), "sha256": file_digest(str(path / "candidates.csv"))}
    return {"name": dataset}


def literal(text: str) -> Any:
    """A data set's own setting: a number, true/false, or text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def file_digest(path: str) -> str:
    """SHA-256 of a file of the user's."""
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
