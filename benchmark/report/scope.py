"""Which runs a page is about: those of a profile or of all, of the methods that were named, each in one version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark import store
from benchmark.errors import CandidError, UsageError
from benchmark.plan.profile import APART, Profile
from benchmark.plan.resolution import resolve, source_digest
from benchmark.store import digest_of
from methods.registry import Catalogue, discover

if TYPE_CHECKING:
    from benchmark.report.sections import Run


@dataclass(frozen=True)
class Scope:
    """What was asked for; nothing named means whatever is there."""

    profile: str | None = None
    plugins: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()

    @property
    def profile_name(self) -> str | None:
        return store.profile_name(self.profile) if self.profile else None

    def catalogue(self) -> Catalogue:
        return discover(self.plugins)

    def expects(self, definition: Profile, catalogue: Catalogue) -> Profile:
        """The profile with the methods that the page is to have: those that were named, or its own and the plug-ins'."""
        files = {Path(plugin).resolve() for plugin in self.plugins}
        plugged = [e.name for e in catalogue.entries.values() if e.file.resolve() in files]
        wanted = self.methods or (*definition.with_extensions, *plugged)
        extra = tuple(name for name in wanted if name not in definition.with_extensions and name in catalogue.entries)

        def own(names: Sequence[str]) -> tuple[str, ...]:
            return tuple(name for name in names if name in wanted)

        return replace(
            definition,
            methods=own(definition.methods) + extra,
            controls=own(definition.controls),
            references=own(definition.references),
            extensions=own(definition.extensions),
        )


Documents = list[tuple[store.RunFolder, dict[str, Any]]]


@dataclass(frozen=True)
class Chosen:
    """The runs of a page, those of other profiles that may stand in for missing ones, and what was left out."""

    runs: Documents
    others: Documents
    left_out: dict[str, list[str]]  # by profile, a sentence about runs of older versions of plug-ins


def choose(results: Path, scope: Scope, catalogue: Catalogue) -> Chosen:
    """Read a results folder. A grid search is left out unless it is named: its settings would bury the results."""
    name, runs, others = scope.profile_name, [], []
    for folder, document in store.documents(results):
        profile = str(document.get("profile"))
        wanted = profile == name if name else not profile.endswith(APART)
        if wanted:
            runs.append((folder, document))
        elif document.get("schema") == store.SCHEMA:
            others.append((folder, document))
    if scope.methods:
        _check_known(scope.methods, [document for _, document in (*runs, *others)], results)
        runs, others = ([run for run in part if _named(run[1], scope.methods)] for part in (runs, others))
    given = {e.name: source_digest(e) for e in catalogue.entries.values() if not e.built_in}
    current = store.current_sources((document for _, document in runs), given)
    counting = [run for run in runs if store.source_of(run[1]) == current[str(run[1].get("method"))]]
    old = Counter(str(document.get("profile")) for _, document in runs)
    old.subtract(str(document.get("profile")) for _, document in counting)
    left_out = {profile: [store.older_versions_note(many)] for profile, many in old.items() if many}
    return Chosen(counting, others, left_out)


def _named(document: dict[str, Any], names: Collection[str]) -> bool:
    return document.get("method") in names or document.get("label") in names


def _check_known(names: Sequence[str], documents: Sequence[dict[str, Any]], results: Path) -> None:
    for name in names:
        if not any(_named(document, (name,)) for document in documents):
            there = ", ".join(sorted({str(document.get("method")) for document in documents})) or "none"
            raise UsageError(f"--methods: no run of '{name}' in {results}; there are {there}.")


def lent(definition: Profile, catalogue: Catalogue, own: Sequence[Run], others: Sequence[Run]) -> list[Run]:
    """Finished runs of other profiles that are the same as ones that this profile wants and lacks."""
    have = {run.digest for run in own if run.done}
    lendable = {run.digest: run for run in others if run.done and run.digest not in have}
    found = []
    for dataset in definition.datasets if lendable else ():
        for name in definition.with_extensions:
            try:
                plan = resolve(definition, catalogue.entries[name], dataset, 0).config.to_json()
            except (KeyError, CandidError):
                continue
            digests = [digest_of({**plan, "seed": seed}) for seed in definition.seeds]
            found += [lendable[digest] for digest in digests if digest in lendable]
    return [replace(run, profile=definition.name, label=run.method, setting="", overrides={}) for run in found]


def lenders_note(before: Sequence[Run], runs: Sequence[Run]) -> list[str]:
    """Which profiles have done the runs that were lent."""
    by_digest = {run.digest: run.profile for run in before}
    counts = Counter(by_digest[run.digest] for run in runs)
    return [
        f"{many} run{'s' if many > 1 else ''} of the same identity {'were' if many > 1 else 'was'} done under profile {name}."
        for name, many in sorted(counts.items())
    ]
