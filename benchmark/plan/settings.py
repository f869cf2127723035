"""From a profile and the command line to the exact configuration of every run. Needs no torch.

A value has one of five sources, later ones winning: the default in the code, the profile's [train] table, the profile's
entry for the data set, a [[values]] entry of the profile (with its own `source`), and `--set` on the command line.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_type_hints

from benchmark.errors import UsageError
from datasets import registry
from datasets.own import name_of
from methods.registry import Catalogue, Entry, Setting, did_you_mean

PROFILES = Path(__file__).parent / "profiles"
SCHEMA = 1  # of run.json and metrics.jsonl
TUNING = "-tuning"  # runs of a grid search are kept under the profile's name with this ending, apart from its own


@dataclass(frozen=True)
class Train:
    """How networks are trained: the same for every method of a table unless a [[values]] entry says otherwise."""

    epochs: int = 500
    batch: int = 128
    lr: float = 0.05
    weight_decay: float = 1e-4
    momentum: float = 0.9
    schedule: Literal["cosine", "constant"] = "cosine"  # cosine per epoch to lr/1000
    last_batch: Literal["drop", "keep"] = "drop"  # the last partial batch; a single left-over sample is never a batch
    amp: Literal["off", "bfloat16", "float16"] = "off"
    channels_last: bool = True
    compile: bool = False
    eval_every: int = 1  # epochs between evaluations; the last 2 % always, at least one
    holdout: float = 0.0  # share of the training set kept out, with candidate labels only, for selection without truth
    threads: int = 1  # CPU threads of one run; part of the identity because sums depend on it


@dataclass(frozen=True)
class Data:
    """Which data with which candidate labels."""

    generator: Literal["instance", "hierarchical", "uniform", "own"] = "instance"
    rate: float = 0.1
    target_size: float = 0.0  # average set size to calibrate to; 0 = not calibrated
    split: int = 0  # which split or fold, for data sets that have several; -1 = the run's seed


@dataclass(frozen=True)
class Network:
    """Which encoder."""

    name: str = ""  # empty: the data set's own
    pretrained: bool = True  # only where the encoder has published weights
    weights: str = ""  # a local state-dict file instead of a download


@dataclass(frozen=True)
class Annotator:
    """The clean-label network whose mistakes become instance-dependent candidates."""

    network: str = ""  # empty: the data set's own encoder, whatever the run uses
    epochs: int = 10
    batch: int = 128
    lr: float = 0.05
    weight_decay: float = 5e-4
    mode: Literal["eval", "train"] = "eval"  # "train" imitates the released generators


SECTIONS: dict[str, type] = {"train": Train, "data": Data, "backbone": Network, "annotator": Annotator}


@functools.cache
def fields_of(section: type) -> dict[str, Setting]:
    """Typed settings of one of the dataclasses above."""
    hints = get_type_hints(section)
    names = {int: "int", float: "float", bool: "bool", str: "str"}
    found = {}
    for item in dataclasses.fields(section):
        hint = hints[item.name]
        annotation = names.get(hint) or f"Literal[{', '.join(repr(c) for c in hint.__args__)}]"
        found[item.name] = Setting(annotation, item.default)
    return found


@dataclass(frozen=True)
class Profile:
    """A named protocol: which methods, data sets and seeds, and every value that differs from a default."""

    name: str
    title: str
    seeds: tuple[int, ...]
    methods: tuple[str, ...]
    controls: tuple[str, ...]
    references: tuple[str, ...]
    datasets: tuple[str, ...]
    train: dict[str, Any]
    data: dict[str, dict[str, Any]]  # by data set: settings, generator, rate, …, train, backbone, annotator
    values: tuple[dict[str, Any], ...]
    figures: dict[str, dict[str, Any]]

    @property
    def all_methods(self) -> tuple[str, ...]:
        return (*self.methods, *self.controls, *self.references)


PROFILE_KEYS = {
    "title", "include", "seeds", "methods", "controls", "references", "datasets", "train", "data", "values", "figures",
}  # fmt: skip
DATA_KEYS = {"settings", "train", "backbone", "annotator", *fields_of(Data)}


def profile_names() -> list[str]:
    return sorted(path.stem for path in PROFILES.glob("*.toml"))


def profile_name(given: str) -> str:
    """The name under which runs are kept: of a profile that was given as a file, its stem."""
    return Path(given).stem if given.endswith(".toml") else given


def load_profile(name: str) -> Profile:
    """A profile by name, or from a TOML file of the user's that may `include` others."""
    raw = _read_profile(name, ())
    base = profile_name(name)
    for key in raw:
        if key not in PROFILE_KEYS:
            raise UsageError(f"Profile {base}: unknown key '{key}'.{did_you_mean(key, PROFILE_KEYS)}")
    _check_kinds(base, raw)
    for data_set, entry in raw.get("data", {}).items():
        for key in entry:
            if key not in DATA_KEYS:
                raise UsageError(f"Profile {base}: data.{data_set} has no key '{key}'.{did_you_mean(key, DATA_KEYS)}")
    for entry in raw.get("values", []):
        for key in ("method", "dataset", "source"):
            if key not in entry:
                raise UsageError(f"Profile {base}: every [[values]] entry needs '{key}'; one lacks it: {entry}")
    return Profile(
        name=base,
        title=raw.get("title", base),
        seeds=tuple(raw.get("seeds", (0, 1, 2))),
        methods=tuple(raw.get("methods", ())),
        controls=tuple(raw.get("controls", ())),
        references=tuple(raw.get("references", ())),
        datasets=tuple(raw.get("datasets", ())),
        train=raw.get("train", {}),
        data=raw.get("data", {}),
        values=tuple(raw.get("values", ())),
        figures=raw.get("figures", {}),
    )


def _check_kinds(base: str, raw: Mapping[str, Any]) -> None:
    """Tables where tables belong, lists where lists do, and no name or seed twice."""
    for key in ("train", "data", "figures"):
        if not isinstance(raw.get(key, {}), dict):
            raise UsageError(f"Profile {base}: '{key}' must be a table, [{key}].")
    for data_set, entry in raw.get("data", {}).items():
        for key in ("", "settings", "train", "backbone", "annotator"):
            if not isinstance(entry.get(key, {}) if key else entry, dict):
                raise UsageError(f"Profile {base}: 'data.{data_set}{'.' + key if key else ''}' must be a table.")
    values = raw.get("values", [])
    if not isinstance(values, list) or not all(isinstance(entry, dict) for entry in values):
        raise UsageError(f"Profile {base}: 'values' must be a list of tables, [[values]].")
    kinds: dict[str, type] = {"seeds": int, **dict.fromkeys(("methods", "controls", "references", "datasets"), str)}
    for key, kind in kinds.items():
        items = raw.get(key, [])
        if not isinstance(items, list) or not all(type(item) is kind for item in items):
            wanted = "whole numbers" if kind is int else "names"
            raise UsageError(f"Profile {base}: '{key}' must be a list of {wanted}, not {items!r}.")
        for item in items:
            if items.count(item) > 1:
                raise UsageError(f"Profile {base}: {key} has {item!r} twice.")
            if kind is int and item < 0:
                raise UsageError(f"Profile {base}: seed {item} is negative.")


def _read_profile(name: str, seen: tuple[str, ...]) -> dict[str, Any]:
    path = Path(name) if name.endswith(".toml") else PROFILES / f"{name}.toml"
    if not path.is_file():
        known = profile_names()
        raise UsageError(
            f"Unknown profile '{name}'.{did_you_mean(name, known)} Known: {', '.join(known)}, or a .toml file."
        )
    if str(path) in seen:
        raise UsageError(f"Profile {path} includes itself.")
    try:
        own = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"Profile {path} is not valid TOML: {error}") from None
    merged: dict[str, Any] = {}
    for included in own.pop("include", []):
        _merge(merged, _read_profile(included, (*seen, str(path))))
    _merge(merged, own)
    return merged


def _merge(into: dict[str, Any], new: Mapping[str, Any]) -> None:
    """Tables merge key by key, [[values]] append, everything else replaces."""
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        elif key == "values":
            into[key] = [*into.get(key, []), *value]
        else:
            into[key] = value


@dataclass(frozen=True)
class RunSpec:
    """One run: everything that decides its numbers is in `config`."""

    profile: str
    dataset: str
    method: str
    label: str  # the method with what was overridden, "cel[alpha=0.1]"
    seed: int
    config: dict[str, Any] = field(hash=False)
    provenance: dict[str, str] = field(hash=False, default_factory=dict)
    overrides: dict[str, Any] = field(hash=False, default_factory=dict)
    paths: dict[str, str] = field(hash=False, default_factory=dict)  # plugin, weights, dataset: where files lie here

    @functools.cached_property  # every count of a plan asks for it
    def digest(self) -> str:
        """SHA-256 of the configuration in canonical JSON."""
        return digest_of(self.config)


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest_of(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()


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
    typed = {name: fields_of(cls) for name, cls in SECTIONS.items()} | {"method": dict(entry.config)}
    sections["data"] |= _data_defaults(dataset)
    dataset_settings = dict(data_entry.get("settings", {}))

    def put(section: str, key: str, value: Any, source: str) -> None:
        if key not in typed[section]:
            known = typed[section]
            raise UsageError(f"Profile {profile.name}: {section} has no '{key}'.{did_you_mean(key, known)}")
        try:
            sections[section][key] = typed[section][key].check(value)
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
                if key not in ("method", "dataset", "source"):
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
        setting = typed[section][override.key] if section in SECTIONS else _setting(entry, override)
        try:
            value = setting.parse(override.text)
        except ValueError as error:
            raise UsageError(f"--set {override.scope}.{override.key}: {error}.") from None
        sections[section][override.key] = value
        provenance[f"{section}.{override.key}"] = "command line"
        chosen[override.key if section == "method" else f"{section}.{override.key}"] = value
    _check_ranges(sections)
    weights = sections["backbone"]["weights"]
    config: dict[str, Any] = {
        "schema": SCHEMA,
        "method": {"name": entry.name, "config": _identifying(sections["method"], entry.config)},
        "dataset": {**identified, "settings": dataset_settings, **sections["data"]},
        "train": sections["train"],
        "backbone": {**sections["backbone"], "weights": file_digest(weights) if weights else ""},
        "annotator": sections["annotator"],
        "seed": seed,
    }
    if not entry.built_in:  # an edited plug-in is another method; files of the tree are versioned by the commit
        config["method"]["source"] = hashlib.sha256(entry.file.read_bytes()).hexdigest()
    shown = chosen | ({"backbone.weights": Path(weights).name} if "backbone.weights" in chosen else {})
    label = entry.name + (f"[{','.join(f'{k}={_short(v)}' for k, v in shown.items())}]" if shown else "")
    paths = {  # absolute: a worker elsewhere may stand in another folder
        "weights": str(Path(weights).resolve()) if weights else "",
        "dataset": str(Path(dataset).expanduser().resolve()) if "sha256" in identified else dataset,
        "plugin": "" if entry.built_in else str(entry.file.resolve()),
    }
    name = config["dataset"]["name"]
    return RunSpec(profile.name, name, entry.name, label, seed, config, provenance, chosen, paths)


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


def _check_ranges(sections: Mapping[str, Mapping[str, Any]]) -> None:
    for section, values in sections.items():
        for key, value in values.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{section}.{key} is {value}; it must be a finite number.")
    train = sections["train"]
    rules = (
        ("train.epochs", train["epochs"] >= 1, "at least 1"),
        ("train.batch", train["batch"] >= 2, "at least 2, because batch norm needs two samples"),
        ("train.lr", 0 < train["lr"] < float("inf"), "a positive number"),
        ("train.weight_decay", train["weight_decay"] >= 0, "not negative"),
        ("train.momentum", 0 <= train["momentum"] < 1, "in [0, 1)"),
        ("train.eval_every", train["eval_every"] >= 1, "at least 1"),
        ("train.holdout", 0 <= train["holdout"] < 1, "in [0, 1)"),
        ("train.threads", train["threads"] >= 1, "at least 1"),
        ("data.rate", 0 <= sections["data"]["rate"] <= 1, "in [0, 1]"),
        ("data.target_size", sections["data"]["target_size"] >= 0, "not negative"),
        ("annotator.epochs", sections["annotator"]["epochs"] >= 1, "at least 1"),
        ("annotator.batch", sections["annotator"]["batch"] >= 2, "at least 2"),
    )
    for name, fits, wanted in rules:
        if not fits:
            section, key = name.split(".")
            raise UsageError(f"{name} is {sections[section][key]}; it must be {wanted}.")


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
