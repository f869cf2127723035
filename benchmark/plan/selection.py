"""Which runs a command needs, and which of them are there. Needs no torch."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark import store
from benchmark.errors import UsageError
from benchmark.plan.profile import Profile, load_profile
from benchmark.plan.spec import Override, RunSpec, check_overrides, literal, resolve
from benchmark.store import RunFolder, runs, state_of
from datasets import registry as data_registry
from datasets.base import DataError, Source
from methods.registry import Catalogue, Entry, MethodError, Setting, did_you_mean, discover

if TYPE_CHECKING:
    import pandas

    from benchmark.analysis.comparisons import DatasetInfo
    from benchmark.analysis.comparisons import Plan as TablePlan
    from benchmark.run.options import RunOptions


@dataclass
class Selection:
    """What the command line chose: a profile, restricted and overridden."""

    profile: Profile
    catalogue: Catalogue
    methods: tuple[str, ...]
    datasets: tuple[str, ...]
    seeds: tuple[int, ...]
    overrides: tuple[Override, ...]
    place: RunOptions
    devices: list[str] = field(default_factory=lambda: ["cpu"])
    unusable: tuple[str, ...] = ()  # broken plug-ins and methods, a sentence each; the others go on without them

    def entry(self, name: str) -> Entry:
        try:
            return self.catalogue.get(name)
        except MethodError as error:
            raise UsageError(str(error)) from None

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

    def table_plan(self) -> TablePlan:
        """The same selection as the tables want it."""
        from benchmark.analysis.comparisons import MethodInfo  # brings scipy, which most commands do without
        from benchmark.analysis.comparisons import Plan as TablePlan

        entries = [self.entry(name) for name in self.methods]
        infos = tuple(MethodInfo(e.name, e.title, e.kind) for e in entries)
        return TablePlan(
            self.profile.name,
            infos,
            tuple(map(dataset_info, self.datasets)),
            self.seeds,
            self.devices[0],
            registered=frozenset(self.catalogue.entries),
        )


def dataset_info(name: str) -> DatasetInfo:
    from benchmark.analysis.comparisons import DatasetInfo

    source = data_registry.get(name)
    return DatasetInfo(source.name, source.title, source.group, source.title)


def select(
    *,
    profile: str,
    place: RunOptions,
    devices: list[str],
    methods: str | None = None,
    datasets: str | None = None,
    seeds: str | None = None,
    plugins: Sequence[str] = (),
    settings: Sequence[str] = (),
    epochs: int | None = None,
    eval_every: int | None = None,
) -> Selection:
    """Check everything a person typed before anything runs."""
    for plugin in plugins:
        if not Path(plugin).is_file():
            raise UsageError(f"Plug-in {plugin} does not exist.")
    catalogue = discover(tuple(plugins), tolerant=True)
    chosen_profile = load_profile(profile)
    names = _words(methods, "--methods") or chosen_profile.all_methods
    if plugins and methods is None:  # a plug-in named on the command line takes part
        own = [e.name for e in catalogue.entries.values() if not e.built_in]
        names = (*names, *(n for n in own if n not in names))
    names, unusable = _without_broken(names, catalogue, plugins)
    sets = _words(datasets, "--datasets") or chosen_profile.datasets
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
        place,
        devices,
        unusable,
    )
    check_overrides(overrides, [selection.entry(name) for name in names])
    try:
        _check_own_names(sets)
        for name in sets:
            _check_settings(data_registry.get(name), chosen_profile, [o for o in overrides if o.scope == "dataset"])
    except DataError as error:
        raise UsageError(str(error)) from None
    selection.specs()
    return selection


def _check_own_names(sets: Sequence[str]) -> None:
    """Results know the user's own data by a short name, which must be one data set's alone."""
    taken = {name: name for name in data_registry.SOURCES}
    for given in sets:
        name = data_registry.get(given).name
        if taken.setdefault(name, given) != given:
            raise UsageError(f"{given} would be called '{name}', as {taken[name]} already is; rename it.")


def _check_settings(source: Source, profile: Profile, overrides: Sequence[Override]) -> None:
    """A data set's own settings are the keyword arguments of its `load`; one that it lacks is an error at once."""
    parameters = inspect.signature(source.load).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return  # passes its settings on to another set's `load`, which will say what it thinks of them
    known = {p.name: Setting(str(p.annotation), p.default) for p in parameters if p.kind is p.KEYWORD_ONLY}
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


def _without_broken(
    names: Sequence[str], catalogue: Catalogue, plugins: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names that can be run, and why others cannot. A name that nothing explains is wrong usage."""
    reasons = [catalogue.broken[str(Path(plugin))] for plugin in plugins if str(Path(plugin)) in catalogue.broken]
    usable = []
    for name in names:
        try:
            usable.append(catalogue.get(name).name)
        except MethodError as error:
            stems = [Path(path).stem.replace("_", "-") for path in catalogue.broken]
            if name not in stems and not reasons:
                raise UsageError(str(error)) from None
            if not any(reason in str(error) for reason in reasons):
                reasons.append(str(error))
    if not usable:
        raise UsageError(" ".join(reasons))
    return tuple(usable), tuple(reasons)


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
    seeds = []
    for word in _words(text, "--seeds"):
        if not word.isdecimal():
            raise UsageError(f"--seeds: '{word}' is no whole number; write for example --seeds 0,1,2.")
        if int(word) in seeds:
            raise UsageError(f"--seeds: {int(word)} is named twice.")
        seeds.append(int(word))
    return tuple(seeds)


@dataclass
class Standing:
    """How far a set of runs is."""

    specs: list[RunSpec]
    states: dict[str, str]  # by config digest: done | running | … | missing
    reasons: dict[str, str]

    def count(self, state: str) -> int:
        return sum(self.states[s.digest] == state for s in self.specs)

    @property
    def todo(self) -> list[RunSpec]:
        return [s for s in self.specs if self.states[s.digest] not in ("done",)]


def documents(results: Path, profile: str) -> dict[str, tuple[RunFolder, dict[str, Any]]]:
    """Every run of a profile by the digest of its configuration; a finished one wins over others of the same digest."""
    found: dict[str, tuple[RunFolder, dict[str, Any]]] = {}
    for folder, document in store.documents(results, profile):
        digest = document.get("config_digest", "")
        if digest not in found or document["status"] == "done":
            found[digest] = (folder, document)
    return found


def standing(specs: Sequence[RunSpec], results: Path) -> Standing:
    unique = {spec.digest: spec for spec in specs}
    known: dict[str, tuple[RunFolder, dict[str, Any]]] = {}
    for profile in {spec.profile for spec in specs}:
        known |= documents(results, profile)
    states, reasons = {}, {}
    for digest in unique:
        if digest in known:
            states[digest] = state_of(*known[digest])
            reasons[digest] = known[digest][1].get("reason", "")
        else:
            states[digest] = "missing"
    return Standing(list(unique.values()), states, reasons)


def frame_of(specs: Sequence[RunSpec], results: Path, labels: Mapping[str, str]) -> pandas.DataFrame:
    """The runs of a plan, labelled as the table wants them (by config digest); refuses mixed candidate labels."""
    frame = runs(results, specs[0].profile if specs else None)
    wanted = {spec.digest for spec in specs}
    frame = frame[frame["config_digest"].isin(wanted)].copy()
    frame["label"] = frame["config_digest"].map(lambda digest: labels.get(digest, ""))
    return frame.sort_values("status", key=lambda s: s != "done", kind="stable").drop_duplicates("config_digest")


def check_same_candidates(frame: pandas.DataFrame, specs: Sequence[RunSpec]) -> list[str]:
    """One candidate set for all: runs on other labels in the same cell of the plan are not comparable."""
    by_key: dict[tuple[Any, ...], set[str]] = {}
    sections = {s.digest: (s.dataset, s.seed, repr(s.config.dataset_settings), s.data, s.annotator) for s in specs}
    for row in frame[frame["status"] == "done"].to_dict("records"):
        by_key.setdefault(sections[row["config_digest"]], set()).add(row["candidates_sha256"])
    notes = []
    for (dataset, seed, *_), seen in by_key.items():
        if len(seen) > 1:
            notes.append(
                f"Warning: runs on {dataset}, seed {seed}, were trained on {len(seen)} different candidate sets "
                f"(made on different machines); their rows are not paired."
            )
    return notes


def cost(spec: RunSpec, entry: Entry) -> float:
    """A number that grows with the length of a run, to start the longest first: passes × pictures × epochs."""
    return (1 + 2 * passes_of(entry)) * pictures_of(spec) * spec.train.epochs


def passes_of(entry: Entry) -> float:
    """Forward passes of a whole network per sample and step, as the method declares them."""
    digits = "".join(c if c.isdigit() or c == "." else " " for c in entry.forwards).split()
    return float(digits[0]) if digits else 1.0


def pictures_of(spec: RunSpec) -> float:
    """Training pictures of a run, as far as it can be told without loading them."""
    source = data_registry.get(spec.paths.get("dataset") or spec.dataset)
    return float(spec.config.dataset_settings.get("train") or source.train_size or 1000)
