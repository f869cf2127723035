"""From a profile and the command line to the exact configuration of every run. Needs no torch.

A value has one of five sources, later ones winning: the default in the code, the profile's [train] and [views] tables, its
entry for the dataset, a [[values]] entry of the profile (with its own `source`), and `--set` on the command line.
While they are read, the values of a run are one dictionary by name: "train.lr", "method.alpha", "dataset.split".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.config.profile import VALUE_TABLES, Profile
from benchmark.config.sections import AUTO, SECTIONS, Data, Views, check_key, fields_of, fit, identifying
from benchmark.config.spec import RunSpec, digest_of, file_digest, label_of
from benchmark.errors import UsageError, did_you_mean
from datasets import registry
from datasets.candidates.generators import GENERATORS
from datasets.user import content_of, is_own, name_of
from methods.networks import pretrained
from methods.networks.names import DIGEST, own_file, takes_weights
from methods.registry import Catalogue, Entry, Setting

Settings = Mapping[str, Mapping[str, Setting]]  # by section, then by key
USER_NETWORKS = ("backbone.name", "annotator.network")  # settings that may name a Python file of the user's


@dataclass(frozen=True)
class Override:
    """`--set scope.key=value`; scope is a section, `dataset`, `method` (all methods of the run) or one method's name."""

    scope: str
    key: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.scope}.{self.key}"

    @classmethod
    def of(cls, name: str, text: str) -> Override:
        """Return the override of `scope.key`."""
        scope, _, key = name.partition(".")
        return cls(scope, key, text)

    @classmethod
    def parse(cls, argument: str, catalogue: Catalogue) -> Override:
        name, equals, text = argument.partition("=")
        scope, dot, key = name.partition(".")
        if not equals or not dot or not key:
            raise UsageError(f"--set {argument}: write it as scope.key=value, for example --set method.alpha=0.5.")
        if scope in SECTIONS:
            check_key(f"--set {argument}: {scope}", key, fields_of(SECTIONS[scope]))
        elif scope not in ("method", "dataset") and scope not in catalogue.entries:
            scopes = [*SECTIONS, "method", "dataset", *catalogue.entries]
            raise UsageError(f"--set {argument}: unknown scope '{scope}'.{did_you_mean(scope, scopes)}")
        return cls(scope, key, text)


def check_overrides(overrides: Sequence[Override], entries: Sequence[Entry]) -> None:
    """Raise UsageError for an override that no method of the run has, or that another one undoes."""
    names = [entry.name for entry in entries]
    texts: dict[str, str] = {}
    for override in overrides:
        if override.name in texts:
            both = f"{texts[override.name]} and {override.text}"
            raise UsageError(f"--set {override.name} is given twice, {both}; leave one out.")
        texts[override.name] = override.text
        if override.scope not in (*SECTIONS, "method", "dataset", *names):
            raise UsageError(
                f"--set {override.name} changes nothing: {override.scope} is not among the methods ({', '.join(names)})."
            )
        for entry in entries:
            if override.scope in ("method", entry.name):
                check_key(f"--set {override.name}: method {entry.name}", override.key, entry.config)


def resolve(
    profile: Profile,
    entry: Entry,
    dataset: str,
    seed: int,
    overrides: Sequence[Override] = (),
    variant: Mapping[str, Any] | None = None,
) -> RunSpec:
    """Return the exact configuration of one run. `variant` sets fields of the method, as ablations and sweeps do."""
    own = own_data(dataset)
    settings: Settings = {name: fields_of(section) for name, section in SECTIONS.items()} | {"method": entry.config}
    defaults = {f"{section}.{key}": s.default for section, fields in settings.items() for key, s in fields.items()}
    values = defaults | _dataset_defaults(dataset)
    provenance: dict[str, str] = {}
    changes: dict[str, Any] = {}  # what differs from the profile's plain method: the label

    for name, value, source in _profile_values(profile, entry, dataset, own["name"]):
        values[name] = _of_profile(profile, settings, name, value)
        if source:
            provenance[name] = source
    usual = dict(values)
    for key, value in (variant or {}).items():
        name = f"method.{key}"
        values[name] = _of_profile(profile, settings, name, value)
        provenance[name] = "variant"
        if values[name] != usual[name]:  # the profile's own value makes no variant, the run is the plain method's
            changes[name] = values[name]
    for override in overrides:
        if override.scope == "dataset":
            values[override.name] = changes[override.name] = literal(override.text)
        elif override.scope in (*SECTIONS, "method", entry.name):  # overrides of other methods are ignored
            section = override.scope if override.scope in SECTIONS else "method"
            name, place = f"{section}.{override.key}", f"--set {override.name}"
            check_key(f"{place}: method {entry.name}", override.key, settings[section])
            values[name] = changes[name] = fit(place, settings[section][override.key].parse, override.text)
            provenance[name] = "command line"

    for name in _unused(values, entry, dataset):
        values[name] = defaults[name]
        provenance.pop(name, None)
        changes.pop(name, None)
    if not values["backbone.frozen"] and not values["backbone.normalisation"]:
        if values["backbone.pretrained"] or values["backbone.weights"]:  # normalise as these weights need it
            values["backbone.normalisation"] = pretrained.normalisation(values["backbone.name"])
        if values["backbone.normalisation"]:
            provenance["backbone.normalisation"] = f"the weights of {values['backbone.name']}"
    if not GENERATORS[values["data.generator"]].annotator:  # without an annotator its settings have no effect
        for name in [name for name in values if name.startswith("annotator.")]:
            values[name] = usual[name]
            if changes.pop(name, None) is not None:
                provenance.pop(name, None)
    elif own.get("sha256") and not values["annotator.network"]:  # chosen by the size of the user's data
        values["annotator.network"] = AUTO
    different = [name for name in ("data.noise", "data.imbalance") if values[name] != defaults[name]]
    if values["data.generator"] == "own" and different:
        raise UsageError(
            f"{different[0]} is for candidate sets that are made, and {own['name']} brings its own; "
            f"choose a generator, for example --set data.generator=uniform, or other data."
        )
    if values["data.seed"] == seed:  # the default, written out
        values["data.seed"] = -1
        changes.pop("data.seed", None)
    return _spec(profile.name, entry, dataset, own, seed, values, provenance, changes)


def _profile_values(profile: Profile, entry: Entry, dataset: str, name: str) -> Iterator[tuple[str, Any, str]]:
    """Yield the name, value and source of each setting of a profile for a run; later ones win. "" is the dataset's own."""
    source, names = f"profile {profile.name}", (dataset, name)
    for section, table in (("train", profile.train), ("views", profile.views)):
        yield from ((f"{section}.{key}", value, source) for key, value in table.items())
    of_dataset = next((profile.data[one] for one in names if one in profile.data), {})
    source = f"{source}, {dataset}"
    yield from ((f"dataset.{key}", value, "") for key, value in of_dataset.get("settings", {}).items())
    yield from ((f"data.{key}", of_dataset[key], source) for key in fields_of(Data) if key in of_dataset)
    for section in VALUE_TABLES:
        yield from ((f"{section}.{key}", value, source) for key, value in of_dataset.get(section, {}).items())
    for table in profile.values:
        if table["method"] not in (entry.name, "*") or table["dataset"] not in (*names, "*"):
            continue
        for key, value in table.items():
            if key in ("settings", *VALUE_TABLES):
                section = "dataset" if key == "settings" else key
                yield from ((f"{section}.{name}", part, table["source"]) for name, part in value.items())
            elif key not in ("method", "dataset", "source"):
                yield f"{'method' if key in entry.config else 'train'}.{key}", value, table["source"]


def _of_profile(profile: Profile, settings: Settings, name: str, value: Any) -> Any:
    """Return a value of a profile in the type of its setting; those of datasets are checked with the selection."""
    section, _, key = name.partition(".")
    if section == "dataset":
        return value
    check_key(f"Profile {profile.name}: {section}", key, settings[section])
    if name in USER_NETWORKS and own_file(str(value)):
        raise UsageError(
            f"Profile {profile.name}: {name} is the file {value}; a profile cannot name code. "
            f"Name it on the command line: --set {name}={value}."
        )
    return fit(f"Profile {profile.name}: {name}", settings[section][key].check, value)


def _unused(values: Mapping[str, Any], entry: Entry, dataset: str) -> Iterator[str]:
    """Yield the settings that have no effect on a run: it is the run without them."""
    encoder, source = values["backbone.name"], registry.SOURCES.get(dataset)
    if encoder and not takes_weights(encoder):
        yield from ("backbone.pretrained", "backbone.weights")
    if values["backbone.frozen"]:  # its maps are normalised when they are made
        yield "backbone.normalisation"
    else:
        yield from ("backbone.draws", "backbone.cells", "backbone.adapter")
    views = set(fields_of(Views))
    if source is not None and source.group == "Tabular":
        views = set()  # they are made for images
    elif entry.built_in:  # a plug-in's hooks may ask for a view that its list does not name
        views &= set(entry.views)
    yield from (f"views.{view}" for view in fields_of(Views) if view not in views)


def _spec(
    profile: str,
    entry: Entry,
    dataset: str,
    own: Mapping[str, str],
    seed: int,
    values: Mapping[str, Any],
    provenance: dict[str, str],
    changes: dict[str, Any],
) -> RunSpec:
    """Return the run of these values: files enter it by their SHA-256, and `paths` has their places on this machine."""
    tables: dict[str, dict[str, Any]] = {section: {} for section in (*SECTIONS, "method", "dataset")}
    for name, value in values.items():
        section, _, key = name.partition(".")
        tables[section][key] = value
    weights, sha256 = values["backbone.weights"], own.get("sha256", "")
    paths = {  # absolute, because workers may run in another folder
        "weights": str(Path(weights).resolve()) if weights else "",
        "dataset": str(Path(dataset).expanduser().resolve()) if sha256 else dataset,
        "plugin": "" if entry.built_in else str(entry.file.resolve()),
    }
    tables["backbone"]["weights"] = file_digest(weights) if weights else ""
    for name, path in zip(USER_NETWORKS, ("network", "annotator"), strict=True):
        section, _, key = name.partition(".")
        tables[section][key], file = named_network(values[name])
        if file:
            paths[path] = file
            changes |= {name: tables[section][key].partition("#")[0]} if name in changes else {}
    changes = {name.removeprefix("method."): value for name, value in changes.items()}
    shown = changes | ({"backbone.weights": Path(weights).name} if "backbone.weights" in changes else {})
    return RunSpec(
        method=entry.name,
        method_config=identifying(tables["method"], entry.config),
        method_source=source_digest(entry),  # an edited plug-in is another method
        dataset=own["name"],
        dataset_settings=tables["dataset"],
        dataset_sha256=sha256,
        seed=seed,
        **{name: section(**tables[name]) for name, section in SECTIONS.items()},
        profile=profile,
        label=label_of(entry.name, shown),
        provenance=provenance,
        overrides=changes,
        paths=paths,
    )


def source_digest(entry: Entry) -> str:
    """Return the SHA-256 of a plug-in's file; nothing for a built-in method, which the commit versions."""
    return "" if entry.built_in else hashlib.sha256(entry.file.read_bytes()).hexdigest()


def named_network(name: str) -> tuple[str, str]:
    """Return how a network enters the configuration, one of the user's by file name, class and content, and its file."""
    own = own_file(name)
    if own is None:
        return name, ""
    path = Path(own[0]).expanduser().resolve()
    return f"{path.name}:{own[1]}#{file_digest(str(path))[:DIGEST]}", f"{path}:{own[1]}"


def _dataset_defaults(dataset: str) -> dict[str, Any]:
    """Return what a dataset brings along: its own candidate sets, a split for every seed."""
    own, source = is_own(Path(dataset).expanduser()), registry.SOURCES.get(dataset)
    defaults: dict[str, Any] = {}
    if own or (source is not None and source.own_candidates):
        defaults["data.generator"] = "own"
    if own or (source is not None and source.split_by_seed):
        defaults["data.split"] = -1
    return defaults


def own_data(dataset: str) -> dict[str, str]:
    """Return how a dataset enters the configuration: by name, or the user's own files by stem and content."""
    path = Path(dataset).expanduser()
    if is_own(path):
        digests = [file_digest(str(file)) for file in content_of(path)]
        return {"name": name_of(path), "sha256": digests[0] if len(digests) == 1 else digest_of(digests)}
    return {"name": dataset}


def literal(text: str) -> Any:
    """Return the value of a dataset's own setting: a number, true/false, or text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
