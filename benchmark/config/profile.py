"""Profiles: named protocols in TOML, each value with its source. Needs no torch."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.config.sections import Data, fields_of
from benchmark.errors import UsageError, did_you_mean

PROFILES = Path(__file__).parent / "profiles"
LONGEST_PATH = 1000  # characters; the operating system refuses much longer names with an error of its own


@dataclass(frozen=True)
class Profile:
    """A named protocol: which methods, data sets and seeds, and every value that differs from a default."""

    name: str
    title: str
    seeds: tuple[int, ...]
    methods: tuple[str, ...]
    controls: tuple[str, ...]
    references: tuple[str, ...]
    extensions: tuple[str, ...]  # shown apart from the rest, and only when asked for
    datasets: tuple[str, ...]
    train: dict[str, Any]
    data: dict[str, dict[str, Any]]  # by data set: settings, generator, rate, …, train, backbone, annotator
    values: tuple[dict[str, Any], ...]
    figures: dict[str, dict[str, Any]]
    views: dict[str, Any] = field(default_factory=dict)
    beside: str = ""  # how the paper's numbers that stand beside ours differ; `paper` shows them without a word

    @property
    def all_methods(self) -> tuple[str, ...]:
        """What the profile's tables show."""
        return (*self.methods, *self.controls, *self.references)

    @property
    def with_extensions(self) -> tuple[str, ...]:
        """What `--methods all` names."""
        return (*self.all_methods, *self.extensions)


METHOD_LISTS = ("methods", "controls", "references", "extensions")
PROFILE_KEYS = {
    "title", "include", "beside", "seeds", *METHOD_LISTS, "datasets", "train", "views", "data", "values", "figures",
}  # fmt: skip
VALUE_TABLES = ("train", "backbone", "annotator", "views")  # sections that a [[values]] entry may set
DATA_TABLES = ("settings", "train", "backbone", "annotator", "views")
DATA_KEYS = {*DATA_TABLES, *fields_of(Data)}


def profile_name(given: str) -> str:
    """Return the name that runs record: for a profile that was given as a file, its stem."""
    return Path(given).stem if given.endswith(".toml") else given


def profile_names() -> list[str]:
    return sorted(path.stem for path in PROFILES.glob("*.toml"))


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
        for key in ("settings", *VALUE_TABLES):
            if not isinstance(entry.get(key, {}), dict):
                raise UsageError(f"Profile {base}: '{key}' in a [[values]] entry must be a table: {entry}")
    return Profile(
        name=base,
        title=raw.get("title", base),
        seeds=tuple(raw.get("seeds", (0, 1, 2))),
        methods=tuple(raw.get("methods", ())),
        controls=tuple(raw.get("controls", ())),
        references=tuple(raw.get("references", ())),
        extensions=tuple(raw.get("extensions", ())),
        datasets=tuple(raw.get("datasets", ())),
        train=raw.get("train", {}),
        data=raw.get("data", {}),
        values=tuple(raw.get("values", ())),
        figures=raw.get("figures", {}),
        views=raw.get("views", {}),
        beside=raw.get("beside", ""),
    )


def _check_kinds(base: str, raw: Mapping[str, Any]) -> None:
    """Tables where tables belong, lists where lists do, and no name or seed twice."""
    for key in ("train", "views", "data", "figures"):
        if not isinstance(raw.get(key, {}), dict):
            raise UsageError(f"Profile {base}: '{key}' must be a table, [{key}].")
    for data_set, entry in raw.get("data", {}).items():
        for key in ("", *DATA_TABLES):
            if not isinstance(entry.get(key, {}) if key else entry, dict):
                raise UsageError(f"Profile {base}: 'data.{data_set}{'.' + key if key else ''}' must be a table.")
    values = raw.get("values", [])
    if not isinstance(values, list) or not all(isinstance(entry, dict) for entry in values):
        raise UsageError(f"Profile {base}: 'values' must be a list of tables, [[values]].")
    kinds: dict[str, type] = {"seeds": int, **dict.fromkeys((*METHOD_LISTS, "datasets"), str)}
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
    if len(name) > LONGEST_PATH or not path.is_file():
        known = profile_names()
        raise UsageError(
            f"Unknown profile '{name[:80]}'.{did_you_mean(name, known)} Known: {', '.join(known)}, or a .toml file."
        )
    if str(path) in seen:
        raise UsageError(f"Profile {path} includes itself.")
    try:
        own = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"Profile {path} is not valid TOML: {error}") from None
    merged: dict[str, Any] = {}
    includes = own.pop("include", [])
    if not isinstance(includes, list) or not all(isinstance(included, str) for included in includes):
        raise UsageError(f"Profile {path}: 'include' must be a list of names of profiles, not {includes!r}.")
    for included in includes:
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
