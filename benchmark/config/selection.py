"""Which runs a command needs: what was typed, checked, as a grid of run specifications. Needs no torch."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.config.profile import Profile, load_profile
from benchmark.config.resolution import Override, check_overrides, literal, resolve, source_digest
from benchmark.config.spec import RunSpec, digest_of
from benchmark.errors import UsageError, did_you_mean
from datasets import registry as data_registry
from datasets.base import DataError, Source, settings_of
from methods.registry import Catalogue, Entry, MethodError, Setting, discover


@dataclass
class Selection:
    """What the command line chose: a profile, restricted and overridden."""

    profile: Profile
    catalogue: Catalogue
    methods: tuple[str, ...]
    datasets: tuple[str, ...]
    seeds: tuple[int, ...]
    overrides: tuple[Override, ...]
    apart: tuple[str, ...] = ()  # extensions that nobody named one by one: shown below the rest and not ranked
    unusable: tuple[str, ...] = ()  # broken plug-ins and methods, a sentence each; the others go on without them

    def known_as(self, method: str) -> str:
        """The name of a method that somebody wrote in any case, or as tables print it."""
        return as_known((method,), self.catalogue.entries.values())[0]

    def entry(self, name: str) -> Entry:
        try:
            return self.catalogue.get(name)
        except MethodError as error:
            raise UsageError(str(error)) from None

    def source(self, name: str) -> Source:
        return source_of(name)

    @property
    def altered(self) -> str:
        """What differs from the profile's own, as a part of a file's name; nothing for the profile as it is."""
        own = self.profile
        more = [name for name in self.methods if name not in own.all_methods]
        added = tuple(self.methods) == (*own.all_methods, *more)
        methods = f"with-{short_list(more, 'methods')}" if added else short_list(self.methods, "methods")
        kinds = (
            (self.datasets, own.datasets, short_list([self.source(name).name for name in self.datasets], "datasets")),
            (self.methods, own.all_methods, methods),
            (self.seeds, own.seeds, short_list([f"seed{seed}" for seed in self.seeds], "seeds")),
        )
        words = [text for chosen, usual, text in kinds if tuple(chosen) != tuple(usual)]
        words += [f"{override.scope}.{override.key}={override.text}" for override in self.overrides]
        text = "-".join(words)
        return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 9]}-{digest_of(words)[:8]}"

    def specs(
        self,
        methods: Iterable[str] | None = None,
        datasets: Iterable[str] | None = None,
        variant: Mapping[str, Any] | None = None,
        extra: Sequence[Override] = (),
    ) -> list[RunSpec]:
        """The grid of runs, seeds innermost."""
        if methods is None and datasets is None and variant is None and not extra:
            return list(self._grid)
        return self._resolved(methods, datasets, variant, extra)

    @functools.cached_property  # asked for when arguments are checked, and again by what needs the runs
    def _grid(self) -> list[RunSpec]:
        return self._resolved(None, None, None, ())

    def _resolved(
        self,
        methods: Iterable[str] | None,
        datasets: Iterable[str] | None,
        variant: Mapping[str, Any] | None,
        extra: Sequence[Override],
    ) -> list[RunSpec]:
        return [
            resolve(self.profile, self.entry(method), dataset, seed, (*self.overrides, *extra), variant)
            for dataset in (self.datasets if datasets is None else datasets)
            for method in (self.methods if methods is None else methods)
            for seed in self.seeds
        ]


def short_list(names: Sequence[str], noun: str) -> str:
    """Return names as a part of a file's name; a longer list is its number and a digest: "4methods-1a2b3c"."""
    text = "-".join(names)
    return text if len(text) <= LONGEST_LIST else f"{len(names)}{noun}-{digest_of(list(names))[:6]}"


LONGEST_LIST = 24  # characters of names in the name of a file
LONGEST_NAME = 60  # of what was typed, in the name of a file
EVERY_METHOD = "all"


def sources_of(plugins: Sequence[str]) -> dict[str, str]:
    """By method, the digest of the plug-in file that defines it: what `--plugin` says about which version counts."""
    catalogue = discover(tuple(plugins)) if plugins else None
    own = [e for e in catalogue.entries.values() if not e.built_in] if catalogue else []
    return {entry.name: source_digest(entry) for entry in own}


def select(
    profile: str,
    *,
    methods: str | None = None,
    datasets: str | None = None,
    seeds: str | None = None,
    plugins: Sequence[str] = (),
    settings: Sequence[str] = (),
    epochs: int | None = None,
    eval_every: int | None = None,
) -> Selection:
    """Check what the command line says and return the profile, restricted and overridden by it.

    `methods`, `datasets` and `seeds` are comma lists, None for the profile's own; the method `all` adds the profile's
    extensions. `settings` are scope.key=value.
    """
    for plugin in plugins:
        if not Path(plugin).is_file():
            raise UsageError(f"Plug-in {plugin} does not exist.")
    catalogue = discover(tuple(plugins), tolerant=True)
    broken = [catalogue.broken[str(Path(plugin))] for plugin in plugins if str(Path(plugin)) in catalogue.broken]
    if broken:  # it was named: going on without it would train for nothing
        raise UsageError(" ".join(broken))
    chosen_profile = load_profile(profile)
    words = as_known(_words(methods, "--methods"), catalogue.entries.values())
    names = _with_groups(words, chosen_profile) or chosen_profile.all_methods
    if plugins and methods is None:  # a plug-in named on the command line takes part
        own = [e.name for e in catalogue.entries.values() if not e.built_in]
        names = (*names, *(n for n in own if n not in names))
    names, unusable = _without_broken(names, catalogue)
    sets = as_known(_words(datasets, "--datasets"), data_registry.SOURCES.values()) or chosen_profile.datasets
    overrides = [Override.parse(text, catalogue) for text in settings]
    for key, value in (("epochs", epochs), ("eval_every", eval_every)):
        if value is not None:
            overrides.append(Override("train", key, str(value)))
    selection = Selection(
        chosen_profile,
        catalogue,
        tuple(names),
        tuple(sets),
        _seeds(seeds) or chosen_profile.seeds,
        tuple(overrides),
        tuple(name for name in chosen_profile.extensions if name in names and name not in words),
        unusable,
    )
    check_overrides(overrides, [selection.entry(name) for name in names])
    try:
        _check_own_names(sets)
        for name in sets:
            _check_settings(source_of(name), chosen_profile, [o for o in overrides if o.scope == "dataset"])
    except DataError as error:
        raise UsageError(str(error)) from None
    _check_use(overrides, selection.specs())
    return selection


def _check_use(overrides: Sequence[Override], specs: Sequence[RunSpec]) -> None:
    """Start weights, views or annotators that no run of the selection has a use for are an error, not a silent nothing."""
    for override in overrides:
        name = f"{override.scope}.{override.key}"
        if override.scope not in ("backbone", "views", "annotator") or any(name in spec.overrides for spec in specs):
            continue
        encoders = ", ".join(sorted({spec.backbone.name for spec in specs}))
        reasons = {
            "backbone": f"no encoder here has published weights ({encoders})",
            "annotator": "no data set here has candidate labels that an annotator makes",
            "views": f"no method here sees the view {override.key} of images",
        }
        raise UsageError(f"--set {name}={override.text} changes nothing: {reasons[override.scope]}.")


def source_of(name: str) -> Source:
    """Return the dataset of that name or path; of an unknown one the error suggests names that are close."""
    try:
        return data_registry.get(name)
    except DataError as error:
        raise UsageError(f"{error}{did_you_mean(name, data_registry.SOURCES)}") from None


def _check_own_names(sets: Sequence[str]) -> None:
    """Results know the user's own data by a short name, which must be one data set's alone."""
    taken = {name: name for name in data_registry.SOURCES}
    for given in sets:
        name = source_of(given).name
        if taken.setdefault(name, given) != given:
            raise UsageError(f"{given} would be called '{name}', as {taken[name]} already is; rename it.")


def _check_settings(source: Source, profile: Profile, overrides: Sequence[Override]) -> None:
    """A data set's own settings are the keyword arguments of its `load`; one that it lacks is an error at once."""
    known = {name: Setting(str(p.annotation), p.default) for name, p in settings_of(source).items()}
    given = dict(profile.data.get(source.name, {}).get("settings", {}))
    for entry in profile.values:
        if entry["dataset"] in (source.name, "*"):
            given |= entry.get("settings", {})
    given |= {override.key: literal(override.text) for override in overrides}
    for key, value in given.items():
        if key not in known:
            hint = did_you_mean(key, known) or f" It has: {', '.join(known) or 'none'}."
            raise UsageError(f"Data set {source.name} has no setting '{key}'.{hint}")
        if "Path" in known[key].annotation:
            continue
        try:
            known[key].check(value)
        except ValueError as error:
            raise UsageError(f"Data set {source.name}, setting {key}: {error}.") from None


def _without_broken(names: Sequence[str], catalogue: Catalogue) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names that can be run, and why others cannot. A name that nothing explains is wrong usage."""
    reasons: list[str] = []
    usable = []
    for name in names:
        try:
            usable.append(catalogue.get(name).name)
        except MethodError as error:
            stems = [Path(path).stem.replace("_", "-") for path in catalogue.broken]
            if name not in stems and not reasons:
                raise UsageError(f"{error}{did_you_mean(name, catalogue.entries)}") from None
            if not any(reason in str(error) for reason in reasons):
                reasons.append(str(error))
    if not usable:
        raise UsageError(" ".join(reasons))
    return tuple(usable), tuple(reasons)


def _with_groups(words: Sequence[str], profile: Profile) -> tuple[str, ...]:
    """The names, with what `all` stands for in its place."""
    names = [name for word in words for name in (profile.with_extensions if word == EVERY_METHOD else (word,))]
    return tuple(dict.fromkeys(names))


def as_known(words: Sequence[str], known: Iterable[Entry | Source]) -> tuple[str, ...]:
    """Names in any case and as tables print them: PRODEN is proden, CIFAR-100 cifar100."""
    by_name = {text.lower(): one.name for one in known for text in (one.title, one.name)}
    names = tuple(by_name.get(word.lower(), word) for word in words)
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"'{name}' is named twice.")
    return names


def _words(text: str | None, option: str) -> tuple[str, ...]:
    if text is None:
        return ()
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise UsageError(f"{option} names nothing; write a comma list, for example {option} cel,proden.")
    for word in words:
        if words.count(word) > 1:
            raise UsageError(f"{option}: '{word}' is named twice.")
    return words


def _seeds(text: str | None) -> tuple[int, ...]:
    seeds: list[int] = []
    for word in _words(text, "--seeds"):
        first, dash, last = word.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(
                f"--seeds: '{word}' is no whole number from 0 on; write for example --seeds 0,1,2 or --seeds 0-4."
            )
        named = range(int(first), int(last or first) + 1)
        if not named:
            raise UsageError(f"--seeds: {word} runs backwards; write the smaller number first.")
        for seed in named:
            if seed in seeds:
                raise UsageError(f"--seeds: {seed} is named twice.")
            seeds.append(seed)
    return tuple(seeds)
