"""How far a set of runs is, read from the results folder. Needs no torch."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark import artifacts, store
from benchmark.config.spec import SCHEMA, RunSpec
from benchmark.store import RunFolder
from datasets import registry as data_registry
from methods.registry import Entry

if TYPE_CHECKING:
    import pandas


@dataclass
class Standing:
    """How far a set of runs is."""

    specs: list[RunSpec]
    states: dict[str, str]  # by config digest: done | running | … | missing
    reasons: dict[str, str]
    lenders: dict[str, str] = field(default_factory=dict)  # by config digest: another profile that has done the run

    def count(self, state: str) -> int:
        return sum(self.states[s.digest] == state for s in self.specs)

    @property
    def borrowed(self) -> str:
        """'3 by profile quick' and so on, or nothing."""
        counts = Counter(self.lenders.values())
        return ", ".join(f"{many} by profile {name}" for name, many in sorted(counts.items()))

    @property
    def todo(self) -> list[RunSpec]:
        return [s for s in self.specs if self.states[s.digest] != "done"]


def documents(results: Path, profile: str) -> dict[str, tuple[RunFolder, dict[str, Any]]]:
    """Every run of a profile by the digest of its configuration; a finished one wins over others of the same digest."""
    found: dict[str, tuple[RunFolder, dict[str, Any]]] = {}
    for folder, document in store.documents(results, profile):
        digest = document.get("config_digest", "")
        if digest not in found or document["status"] == "done":
            found[digest] = (folder, document)
    return found


def matching(specs: Sequence[RunSpec], runs: store.Runs) -> dict[str, tuple[RunFolder, dict[str, Any]]]:
    """Pick one of the runs for every specification, by digest: a finished one, preferably of its own profile, or else
    an unfinished one of its own profile."""
    profiles = {spec.digest: spec.profile for spec in specs}
    best: dict[str, tuple[RunFolder, dict[str, Any]]] = {}
    ranks: dict[str, int] = {}
    for folder, document in runs:
        digest = document.get("config_digest", "")
        if digest in profiles:
            rank = 2 * (document["status"] == "done") + (document.get("profile") == profiles[digest])
            if rank and rank >= ranks.get(digest, 0):
                best[digest], ranks[digest] = (folder, document), rank
    return best


def found(specs: Sequence[RunSpec], results: Path) -> dict[str, tuple[RunFolder, dict[str, Any]]]:
    """The run of every specification that has one, by digest: of its own profile, or a finished one of another."""
    profiles = sorted({spec.profile for spec in specs})
    known = matching(specs, (run for profile in profiles for run in store.documents(results, profile)))
    if any(spec.digest not in known or known[spec.digest][1]["status"] != "done" for spec in specs):
        known = matching(specs, store.documents(results))
    return known


def standing(specs: Sequence[RunSpec], results: Path, keep_model: bool = False) -> Standing:
    """How far the runs are; with `keep_model` one that has thrown its model away is not done."""
    unique = {spec.digest: spec for spec in specs}
    known = found(specs, results)
    states, reasons, lenders = {}, {}, {}
    for digest, spec in unique.items():
        states[digest] = store.state_of(*known[digest]) if digest in known else "missing"
        if keep_model and states[digest] == "done":
            folder, document = known[digest]
            if not all(artifacts.is_whole(folder.path, name, document) for name in artifacts.MODEL_FILES):
                states[digest] = "without its model"
        if digest in known:
            reasons[digest] = known[digest][1].get("reason", "")
            if known[digest][1]["profile"] != spec.profile:
                lenders[digest] = known[digest][1]["profile"]
    return Standing(list(unique.values()), states, reasons, lenders)


def as_planned(
    specs: Sequence[RunSpec], results: Path, labels: Mapping[str, str]
) -> list[tuple[RunFolder, dict[str, Any]]]:
    """The runs of a plan under its profile and labels, by config digest, whichever profile has done them."""
    known, profiles = found(specs, store.existing(results)), {spec.digest: spec.profile for spec in specs}
    ordered = sorted(known.items(), key=lambda item: str(item[1][0].path))
    return [
        (folder, document | {"profile": profiles[digest], "label": labels.get(digest, "")})
        for digest, (folder, document) in ordered
    ]


def frame_of(specs: Sequence[RunSpec], results: Path, labels: Mapping[str, str]) -> pandas.DataFrame:
    """The runs of a plan, labelled as the table wants them."""
    return store.run_frame(as_planned(specs, results, labels))


def data_notes(specs: Sequence[RunSpec], results: Path) -> list[str]:
    """What loading said of the data of these runs, a sentence each: rows left out, a file that is not as known."""
    wanted = {spec.digest for spec in specs}
    found: dict[str, None] = {}
    for profile in dict.fromkeys(spec.profile for spec in specs):
        for digest, (_, document) in documents(results, profile).items():
            notes = document.get("data_notes")
            if digest in wanted and isinstance(notes, list):
                found |= {f"{document['dataset']}: {note}.": None for note in notes}
    return list(found)


def cost(spec: RunSpec, entry: Entry) -> float:
    """A number that grows with the length of a run, to start the longest first: passes × images × epochs."""
    return (1 + 2 * passes_of(entry)) * images_of(spec) * spec.train.epochs


def passes_of(entry: Entry) -> float:
    """Forward passes of a whole network per sample and step, as the method declares them."""
    digits = "".join(c if c.isdigit() or c == "." else " " for c in entry.forwards).split()
    return float(digits[0]) if digits else 1.0


def images_of(spec: RunSpec) -> float:
    """Training images of a run, as far as it can be told without loading them."""
    source = data_registry.get(spec.paths.get("dataset") or spec.dataset)
    return float(spec.config.dataset_settings.get("train") or source.train_size or 1000)


def readable(results: Path, profile: str | None) -> Iterator[tuple[RunFolder, dict[str, Any], str]]:
    """Every run of this schema with its document and its state now."""
    other = 0
    for folder, document in store.documents(results, profile):
        if document.get("schema", SCHEMA) == SCHEMA:
            yield folder, document, store.state_of(folder, document)
        else:
            other += 1
    if other:
        print(f"warning: {other} run(s) of another schema than {SCHEMA} are not shown.", file=sys.stderr)
