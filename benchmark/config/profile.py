"""Profiles: named protocols in TOML, each value with its source. Needs no torch."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.config.sections import LARGEST_SEED, Data, check_key, fields_of
from benchmark.errors import UsageError, did_you_mean

PROFILES = Path(__file__).parent / "profiles"
LONGEST_PATH = 1000  # characters; the operating system refuses much longer names with an error of its own


@dataclass(frozen=True)
class Profile:
    """A named protocol: which methods, datasets and seeds, and every value that differs from a default."""

    name: str
    title: str
    seeds: tuple[int, ...] = (0, 1, 2)
    methods: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()  # shown apart from the rest, and only when asked for
    datasets: tuple[str, ...] = ()
    train: dict[str, Any] = field(default_factory=dict)
    data: dict[str, dict[str, Any]] = field(default_factory=dict)  # by dataset: settings, generator, rate, …, train, …
    values: tuple[dict[str, Any], ...] = ()
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)
    views: dict[str, Any] = field(default_factory=dict)
    beside: str = ""  # how the paper's numbers that stand beside ours differ; `paper` shows them without a word

    @property
    def all_methods(self) -> tuple[str, ...]:
        """Return the methods that the profile's tables show."""
        return (*self.methods, *self.controls, *self.references)

    @property
    def with_extensions(self) -> tuple[str, ...]:
        """Return the methods that `--methods all` selects."""
        return (*self.all_methods, *self.extensions)


TEXTS = ("title", "beside", "source")
NAMES = ("methods", "controls", "references", "extensions", "datasets", "include")  # lists of names
TABLES = ("train", "views", "data", "figures")
PROFILE_KEYS = ("title", "beside", "seeds", *NAMES, *TABLES, "values")
VALUE_TABLES = ("train", "backbone", "annotator", "views")  # sections that an entry may set
ENTRY_TABLES = ("settings", *VALUE_TABLES)
DATA_KEYS = (*ENTRY_TABLES, *fields_of(Data))


def profile_name(name: str) -> str:
    """Return the name that runs record: the stem of a profile given as a file."""
    return Path(name).stem if name.endswith(".toml") else name


def profile_names() -> list[str]:
    return sorted(path.stem for path in PROFILES.glob("*.toml"))


def load_profile(name: str) -> Profile:
    """Return a profile by name, or from a TOML file of the user's that may `include` others."""
    content, base = _read_profile(name, ()), profile_name(name)
    lists = {key: tuple(value) for key, value in content.items() if isinstance(value, list)}
    return Profile(**{"name": base, "title": base, **content, **lists})


def _check(place: str, content: Mapping[str, Any]) -> None:
    """Raise UsageError for an unknown key, a value of another kind, or a name or seed that is there twice."""
    _check_table(place, content, PROFILE_KEYS, TABLES)
    for dataset, entry in content.get("data", {}).items():
        if not isinstance(entry, dict):
            raise UsageError(f"{place}: 'data.{dataset}' must be a table.")
        _check_table(f"{place}: data.{dataset}", entry, DATA_KEYS, ENTRY_TABLES)
    values = content.get("values", [])
    if not isinstance(values, list) or not all(isinstance(entry, dict) for entry in values):
        raise UsageError(f"{place}: 'values' must be a list of tables, [[values]].")
    for entry in values:
        for key in ("method", "dataset", "source"):
            if key not in entry:
                raise UsageError(f"{place}: every [[values]] entry needs '{key}'; one lacks it: {entry}")
        _check_table(f"{place}: a [[values]] entry", entry, entry, ENTRY_TABLES)
    for key in ("seeds", *NAMES):
        items, kind = content.get(key, []), int if key == "seeds" else str
        if not isinstance(items, list) or not all(type(item) is kind for item in items):
            word = "integers" if kind is int else "names"
            raise UsageError(f"{place}: '{key}' must be a list of {word}, not {items!r}.")
        for item in items:
            if items.count(item) > 1:
                raise UsageError(f"{place}: {key} has {item!r} twice.")
    for seed in content.get("seeds", []):
        if not 0 <= seed <= LARGEST_SEED:
            raise UsageError(f"{place}: {seed} is not a seed, an integer from 0 to {LARGEST_SEED}.")


def _check_table(place: str, table: Mapping[str, Any], keys: Collection[str], tables: Collection[str]) -> None:
    """Raise UsageError for a key that is not among `keys`, and for one of `tables` that is none."""
    for key, value in table.items():
        check_key(place, key, keys)
        if key in tables and not isinstance(value, dict):
            raise UsageError(f"{place}: '{key}' must be a table.")
        if key in TEXTS and not isinstance(value, str):
            raise UsageError(f"{place}: '{key}' must be text, not {value!r}.")


def _read_profile(name: str, including: tuple[str, ...]) -> dict[str, Any]:
    path = Path(name) if name.endswith(".toml") else PROFILES / f"{name}.toml"
    if len(name) > LONGEST_PATH or not path.is_file():
        names = profile_names()
        raise UsageError(
            f"Unknown profile '{name[:80]}'.{did_you_mean(name, names)} Known: {', '.join(names)}, or a .toml file."
        )
    if str(path) in including:
        raise UsageError(f"Profile {path} includes itself.")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"Profile {path} is not valid TOML: {error}") from None
    _check(f"Profile {profile_name(name)}", content)
    whole: dict[str, Any] = {}
    for included in content.pop("include", []):
        _merge(whole, _read_profile(included, (*including, str(path))))
    _merge(whole, content)
    return whole


def _merge(into: dict[str, Any], new: Mapping[str, Any]) -> None:
    """Merge tables key by key, append [[values]] and replace everything else."""
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        elif key == "values":
            into[key] = [*into.get(key, []), *value]
        else:
            into[key] = value
