"""From a profile and the command line to the exact configuration of every run. Needs no torch.

A value has one of five sources, later ones winning: the default in the code, the profile's [train] and [views] tables, its
entry for the data set, a [[values]] entry of the profile (with its own `source`), and `--set` on the command line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.config import sections as typed
from benchmark.config.profile import VALUE_TABLES, Profile
from benchmark.config.sections import AUTO, SECTIONS, Annotator, Data, Network, Train, Views, fields_of
from benchmark.config.spec import RunConfig, RunSpec, digest_of, file_digest, label_of
from benchmark.errors import UsageError, did_you_mean
from datasets import registry
from datasets.candidates.generators import GENERATORS
from datasets.user import content_of, is_own, name_of
from methods.networks import pretrained
from methods.networks.names import DIGEST, own_file, takes_weights
from methods.registry import Catalogue, Entry, Setting

USER_NETWORKS = (("backbone", "name"), ("annotator", "network"))  # settings that may name a Python file of the user's


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
    """An override that no method of the run has, or that another one undoes, is an error, not a silent nothing."""
    names = [entry.name for entry in entries]
    for place, override in enumerate(overrides):
        same = [o for o in overrides[:place] if (o.scope, o.key) == (override.scope, override.key)]
        if same:
            raise UsageError(
                f"--set {override.scope}.{override.key} is given twice, {same[0].text} and {override.text}; leave one out."
            )
        if override.scope not in (*SECTIONS, "method", "dataset", *names):
            raise UsageError(
                f"--set {override.scope}.{override.key} changes nothing: {override.scope} is not among the methods "
                f"({', '.join(names)})."
            )
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


class Draft:
    """The settings of one run while its sources are read, each value with where it comes from."""

    def __init__(self, profile: Profile, entry: Entry, dataset: str) -> None:
        self.profile, self.entry, self.dataset = profile, entry, dataset
        self.identified = own_data(dataset)
        self.names = (dataset, self.identified["name"])
        self.of_dataset = next((profile.data[name] for name in self.names if name in profile.data), {})
        self.known = {name: fields_of(cls) for name, cls in SECTIONS.items()} | {"method": dict(entry.config)}
        self.sections = {name: {k: s.default for k, s in known.items()} for name, known in self.known.items()}
        self.sections["data"] |= _data_defaults(dataset)
        self.dataset_settings = dict(self.of_dataset.get("settings", {}))
        self.provenance: dict[str, str] = {}
        self.chosen: dict[str, Any] = {}  # what differs from the profile's plain method: the label

    def put(self, section: str, key: str, value: Any, source: str) -> None:
        known = self.known[section]
        if key not in known:
            raise UsageError(f"Profile {self.profile.name}: {section} has no '{key}'.{did_you_mean(key, known)}")
        if (section, key) in USER_NETWORKS and own_file(str(value)):
            raise UsageError(
                f"Profile {self.profile.name}: {section}.{key} is the file {value}; a profile cannot name code. "
                f"Name it on the command line: --set {section}.{key}={value}."
            )
        try:
            self.sections[section][key] = known[key].check(value)
        except ValueError as error:
            raise UsageError(f"Profile {self.profile.name}: {section}.{key}: {error}.") from None
        self.provenance[f"{section}.{key}"] = source

    def read_profile(self) -> None:
        """[train] and [views], then the data set's entry, then the [[values]] of this method and data set."""
        name = f"profile {self.profile.name}"
        for section, values in (("train", self.profile.train), ("views", self.profile.views)):
            for key, value in values.items():
                self.put(section, key, value, name)
        for key in fields_of(Data):
            if key in self.of_dataset:
                self.put("data", key, self.of_dataset[key], f"{name}, {self.dataset}")
        for section in ("train", "backbone", "annotator", "views"):
            for key, value in self.of_dataset.get(section, {}).items():
                self.put(section, key, value, f"{name}, {self.dataset}")
        for values in self.profile.values:
            if values["method"] in (self.entry.name, "*") and values["dataset"] in (*self.names, "*"):
                self.read_values(values)
        self.usual_annotator = dict(self.sections["annotator"])  # as far as no command line is heard

    def read_values(self, values: Mapping[str, Any]) -> None:
        """One [[values]] entry: fields of the method or of [train], and whole tables."""
        source = values["source"]
        for key, value in values.items():
            if key == "settings":
                self.dataset_settings |= value
                self.provenance.update({f"dataset.{name}": source for name in value})
            elif key in VALUE_TABLES:
                for name, part in value.items():
                    self.put(key, name, part, source)
            elif key not in ("method", "dataset", "source"):
                self.put("method" if key in self.entry.config else "train", key, value, source)

    def vary(self, variant: Mapping[str, Any]) -> None:
        """Fields of the method; the profile's own value makes no variant, the run is the plain method's."""
        for key, value in variant.items():
            usual = self.sections["method"].get(key)
            self.put("method", key, value, "variant")
            if self.sections["method"][key] != usual:
                self.chosen[key] = self.sections["method"][key]

    def override(self, override: Override) -> None:
        """One `--set`; what is meant for another method is passed over."""
        if override.scope == "dataset":
            self.dataset_settings[override.key] = literal(override.text)
            self.chosen[f"dataset.{override.key}"] = self.dataset_settings[override.key]
            return
        section = override.scope if override.scope in SECTIONS else "method"
        if section == "method" and override.scope not in ("method", self.entry.name):
            return
        setting = self.known[section][override.key] if section in SECTIONS else _setting(self.entry, override)
        try:
            value = setting.parse(override.text)
        except ValueError as error:
            raise UsageError(f"--set {override.scope}.{override.key}: {error}.") from None
        self.sections[section][override.key] = value
        self.provenance[f"{section}.{override.key}"] = "command line"
        self.chosen[override.key if section == "method" else f"{section}.{override.key}"] = value

    def check(self) -> None:
        """Ranges, and settings that do not go together or have no effect."""
        for section, values in self.sections.items():
            typed.check(section, values)
        encoder = self.sections["backbone"]["name"]
        if encoder and not takes_weights(encoder):
            self.drop("backbone", "pretrained", "weights")
        if not self.sections["backbone"]["frozen"]:
            self.drop("backbone", "draws", "cells", "adapter")
        self.normalise()
        self.settle_annotator()
        source = registry.SOURCES.get(self.dataset)
        if source is not None and source.group == "Tabular":
            self.drop("views", *self.known["views"])  # made for images
        elif self.entry.built_in:  # a plug-in's hooks may ask for a view that its list does not name
            self.drop("views", *(name for name in self.known["views"] if name not in self.entry.views))
        data, usual = self.sections["data"], self.known["data"]
        changed = [key for key in ("noise", "imbalance") if data[key] != usual[key].default]
        if data["generator"] == "own" and changed:
            raise UsageError(
                f"data.{changed[0]} is for candidate sets that are made, and {self.identified['name']} brings its own; "
                f"choose a generator, for example --set data.generator=uniform, or other data."
            )

    def drop(self, section: str, *keys: str) -> None:
        """Settings that this run has no use for: it is the run without them."""
        for key in keys:
            self.sections[section][key] = self.known[section][key].default
            self.provenance.pop(f"{section}.{key}", None)
            self.chosen.pop(f"{section}.{key}", None)

    def settle_annotator(self) -> None:
        """A run without one is the run that says nothing of it; that of the user's own data is chosen by their size."""
        annotator = self.sections["annotator"]
        if not GENERATORS[self.sections["data"]["generator"]].annotator:
            annotator |= self.usual_annotator
            for key in annotator:
                if self.chosen.pop(f"annotator.{key}", None) is not None:
                    self.provenance.pop(f"annotator.{key}", None)
        elif self.identified.get("sha256") and not annotator["network"]:
            annotator["network"] = AUTO

    def normalise(self) -> None:
        """Images are normalised as the weights want it, unless somebody says otherwise."""
        backbone = self.sections["backbone"]
        if backbone["frozen"]:  # whose maps are normalised as they are made
            self.drop("backbone", "normalisation")
        elif not backbone["normalisation"] and (backbone["pretrained"] or backbone["weights"]):
            backbone["normalisation"] = pretrained.normalisation(backbone["name"])
            if backbone["normalisation"]:
                self.provenance["backbone.normalisation"] = f"the weights of {backbone['name']}"

    def spec(self, seed: int) -> RunSpec:
        """The run, once all sources are read."""
        entry, sections, sha256 = self.entry, self.sections, self.identified.get("sha256", "")
        if sections["data"]["seed"] == seed:  # the run's own, so it is the run that says nothing of it
            sections["data"]["seed"] = -1
            self.chosen.pop("data.seed", None)
        weights = sections["backbone"]["weights"]
        network, network_file = named_network(sections["backbone"]["name"])
        annotator, annotator_file = named_network(sections["annotator"]["network"])
        for key, name, file in (
            ("backbone.name", network, network_file),
            ("annotator.network", annotator, annotator_file),
        ):
            if file and key in self.chosen:
                self.chosen[key] = name.partition("#")[0]
        config = RunConfig(
            method=entry.name,
            method_config=_identifying(sections["method"], entry.config),
            # An edited plug-in is another method; files of the tree are versioned by the commit.
            method_source=source_digest(entry),
            dataset=self.identified["name"],
            dataset_settings=self.dataset_settings,
            dataset_sha256=sha256,
            data=Data(**sections["data"]),
            train=Train(**sections["train"]),
            backbone=Network(
                **{**sections["backbone"], "name": network, "weights": file_digest(weights) if weights else ""}
            ),
            annotator=Annotator(**{**sections["annotator"], "network": annotator}),
            views=Views(**sections["views"]),
            seed=seed,
        )
        shown = self.chosen | ({"backbone.weights": Path(weights).name} if "backbone.weights" in self.chosen else {})
        label = label_of(entry.name, shown)
        paths = {  # absolute: a worker elsewhere may stand in another folder
            "weights": str(Path(weights).resolve()) if weights else "",
            "dataset": str(Path(self.dataset).expanduser().resolve()) if sha256 else self.dataset,
            "plugin": "" if entry.built_in else str(entry.file.resolve()),
            **({"network": network_file} if network_file else {}),
            **({"annotator": annotator_file} if annotator_file else {}),
        }
        return RunSpec(self.profile.name, label, config, self.provenance, self.chosen, paths)


def source_digest(entry: Entry) -> str:
    """SHA-256 of a plug-in's file; nothing for a method of the tree."""
    return "" if entry.built_in else hashlib.sha256(entry.file.read_bytes()).hexdigest()


def named_network(name: str) -> tuple[str, str]:
    """How a network enters the configuration, and its file: one of the user's by file name, class and content."""
    own = own_file(name)
    if own is None:
        return name, ""
    path = Path(own[0]).expanduser().resolve()
    return f"{path.name}:{own[1]}#{file_digest(str(path))[:DIGEST]}", f"{path}:{own[1]}"


def resolve(
    profile: Profile,
    entry: Entry,
    dataset: str,
    seed: int,
    overrides: Sequence[Override] = (),
    variant: Mapping[str, Any] | None = None,
) -> RunSpec:
    """The exact configuration of one run. `variant` sets method fields, as the ablations and sensitivity plots do."""
    draft = Draft(profile, entry, dataset)
    draft.read_profile()
    draft.vary(variant or {})
    for override in overrides:
        draft.override(override)
    draft.check()
    return draft.spec(seed)


def _identifying(values: Mapping[str, Any], settings: Mapping[str, Setting]) -> dict[str, Any]:
    """Without added fields at their default: runs recorded before there was such a field keep their identity."""
    return {key: value for key, value in values.items() if not (settings[key].added and value == settings[key].default)}


def _data_defaults(dataset: str) -> dict[str, Any]:
    """What a data set brings along: its own candidate sets, a split for every seed."""
    path = Path(dataset).expanduser()
    own = is_own(path)
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
    if is_own(path):
        digests = [file_digest(str(file)) for file in content_of(path)]
        return {"name": name_of(path), "sha256": digests[0] if len(digests) == 1 else digest_of(digests)}
    return {"name": dataset}


def literal(text: str) -> Any:
    """A data set's own setting: a number, true/false, or text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
