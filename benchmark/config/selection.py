"""The runs that a command needs: its checked options as a grid of run specifications. Needs no torch."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from benchmark.config.profile import Profile, load_profile
from benchmark.config.resolution import Override, check_overrides, resolve, source_digest
from benchmark.config.sections import LARGEST_SEED, check_key, fit
from benchmark.config.spec import RunSpec, digest_of
from benchmark.errors import UsageError, did_you_mean
from datasets import registry as data_registry
from datasets.base import DataError, Source, settings_of
from methods.registry import Catalogue, Entry, MethodError, Setting, discover

T = TypeVar("T")


@dataclass
class Selection:
    """A profile, restricted and overridden by the command line."""

    profile: Profile
    catalogue: Catalogue
    methods: tuple[str, ...]
    datasets: tuple[str, ...]
    seeds: tuple[int, ...]
    overrides: tuple[Override, ...]
    apart: tuple[str, ...] = ()  # extensions selected by `all` only: shown below the rest and not ranked

    def entry(self, name: str) -> Entry:
        """Return a method; UsageError if it is unknown or its file cannot be read."""
        try:
            return self.catalogue.get(name)
        except MethodError as error:
            raise UsageError(f"{error}{did_you_mean(name, self.catalogue.entries)}") from None

    def source(self, name: str) -> Source:
        """Return the dataset of that name or path; UsageError with a suggestion if there is none."""
        try:
            return data_registry.get(name)
        except DataError as error:
            raise UsageError(f"{error}{did_you_mean(name, data_registry.SOURCES)}") from None

    @property
    def altered(self) -> str:
        """Return what differs from the profile's own, as a part of a file's name; nothing for the profile as it is."""
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
        words += [f"{override.name}={override.text}" for override in self.overrides]
        text = "-".join(words)
        return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 9]}-{digest_of(words)[:8]}"

    def specs(
        self,
        methods: Iterable[str] | None = None,
        datasets: Iterable[str] | None = None,
        variant: Mapping[str, Any] | None = None,
        extra: Sequence[Override] = (),
    ) -> list[RunSpec]:
        """Return the grid of runs, seeds innermost."""
        if methods is None and datasets is None and variant is None and not extra:
            return list(self._grid)
        return [
            resolve(self.profile, self.entry(method), dataset, seed, (*self.overrides, *extra), variant)
            for dataset in (self.datasets if datasets is None else datasets)
            for method in (self.methods if methods is None else methods)
            for seed in self.seeds
        ]

    @functools.cached_property  # asked for when arguments are checked, and again by what needs the runs
    def _grid(self) -> list[RunSpec]:
        return self.specs(self.methods)


def short_list(names: Sequence[str], noun: str) -> str:
    """Return names as a part of a file's name; a longer list is its number and a digest: "4methods-1a2b3c"."""
    text = "-".join(names)
    return text if len(text) <= LONGEST_LIST else f"{len(names)}{noun}-{digest_of(list(names))[:6]}"


LONGEST_LIST = 24  # characters of names in the name of a file
LONGEST_NAME = 60  # of what was typed, in the name of a file
EVERY_METHOD = "all"
MOST_SEEDS = 10_000  # of one range


def sources_of(plugins: Sequence[str]) -> dict[str, str]:
    """Return, by method, the digest of the plug-in file that defines it: its runs are those that count."""
    entries = discover(tuple(plugins)).entries.values() if plugins else ()
    return {entry.name: source_digest(entry) for entry in entries if not entry.built_in}


def select(
    profile: str,
    *,
    methods: str | None = None,
    datasets: str | None = None,
    seeds: str | None = None,
    plugins: Sequence[str] = (),
    settings: Sequence[str] = (),
    epochs: int | None = None,
) -> Selection:
    """Check the command line and return the profile, restricted and overridden by it.

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
    groups = [chosen_profile.with_extensions if word == EVERY_METHOD else (word,) for word in words]
    names = tuple(dict.fromkeys(itertools.chain(*groups))) or chosen_profile.all_methods
    if plugins and methods is None:  # a plug-in named on the command line takes part
        own = [e.name for e in catalogue.entries.values() if not e.built_in]
        names = (*names, *(n for n in own if n not in names))
    sets = as_known(_words(datasets, "--datasets"), data_registry.SOURCES.values()) or chosen_profile.datasets
    overrides = [Override.parse(text, catalogue) for text in settings]
    if epochs is not None:
        overrides.append(Override("train", "epochs", str(epochs)))
    selection = Selection(
        chosen_profile,
        catalogue,
        tuple(names),
        tuple(sets),
        _seeds(seeds) or chosen_profile.seeds,
        tuple(overrides),
        tuple(name for name in chosen_profile.extensions if name in names and name not in words),
    )
    check_overrides(overrides, [selection.entry(name) for name in names])
    _check_datasets(selection)
    _check_use(selection)
    return selection


def _check_use(selection: Selection) -> None:
    """Raise UsageError for weights, views or annotators that no run of the selection has a use for."""
    specs = selection.specs()
    encoders = ", ".join(sorted({spec.backbone.name for spec in specs}))
    for override in selection.overrides:
        reasons = {
            "backbone": f"no encoder here has published weights ({encoders})",
            "annotator": "no dataset here has candidate labels that an annotator makes",
            "views": f"no method here sees the view {override.key} of images",
        }
        if override.scope in reasons and not any(override.name in spec.overrides for spec in specs):
            raise UsageError(f"--set {override.name}={override.text} changes nothing: {reasons[override.scope]}.")


def _check_datasets(selection: Selection) -> None:
    """Check the datasets' own settings, the keyword arguments of `load`; each name is one dataset's alone in results."""
    paths = {name: name for name in data_registry.SOURCES}
    for path in selection.datasets:
        source = selection.source(path)
        if paths.setdefault(source.name, path) != path:
            raise UsageError(f"{path} would be called '{source.name}', as {paths[source.name]} already is; rename it.")
    for spec in selection.specs():
        source = selection.source(paths[spec.dataset])
        settings = {name: Setting(str(p.annotation), p.default) for name, p in settings_of(source).items()}
        for key, value in spec.dataset_settings.items():
            check_key(f"Dataset {source.name}", key, settings)
            if "Path" not in settings[key].annotation:
                fit(f"Dataset {source.name}, setting {key}", settings[key].check, value)


def as_known(words: Sequence[str], entries: Iterable[Entry | Source]) -> tuple[str, ...]:
    """Return names that are written in any case or as tables print them: PRODEN is proden, CIFAR-100 cifar100."""
    by_name = {text.lower(): one.name for one in entries for text in (one.title, one.name)}
    return _once(by_name.get(word.lower(), word) for word in words)


def _once(items: Iterable[T], where: str = "") -> tuple[T, ...]:
    """Return the items; UsageError if one is there twice."""
    (*items,) = items
    for item, count in Counter(items).items():
        if count > 1:
            raise UsageError(f"{where}'{item}' is named twice.")
    return tuple(items)


def _words(text: str | None, option: str) -> tuple[str, ...]:
    if text is None:
        return ()
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise UsageError(f"{option} is empty; write a comma list, for example {option} cel,proden.")
    return words


def _seeds(text: str | None) -> tuple[int, ...]:
    seeds: list[int] = []
    for word in _words(text, "--seeds"):
        first, dash, last = word.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(f"--seeds: '{word}' is not a non-negative integer or a range such as 0-4.")
        if max(len(first), len(last)) > 10 or int(last or first) > LARGEST_SEED:
            raise UsageError(f"--seeds: {word} is too large; the largest seed is {LARGEST_SEED}.")
        if int(last or first) < int(first):
            raise UsageError(f"--seeds: {word} runs backwards; write the smaller number first.")
        if int(last or first) - int(first) >= MOST_SEEDS:
            raise UsageError(f"--seeds: {word} has more than {MOST_SEEDS} seeds; write a shorter range.")
        seeds += range(int(first), int(last or first) + 1)
    return _once(seeds, "--seeds: ")
