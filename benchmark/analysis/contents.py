"""Contents of a table: methods, datasets and seeds with their titles. Needs neither NumPy nor torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from datasets.base import plural

if TYPE_CHECKING:
    import pandas as pd

    from benchmark.config.selection import Selection
    from datasets.base import Source

REFERENCE = "cel"  # the method under study, unless the command line names another
MAIN_KINDS = ("IDPLL", "PLL")
MARGIN = 0.5  # accuracy points: methods that differ by less are equal in practice
LEAST_DATASETS = 5  # for ranks and for signed-rank tests over datasets; with five the least p is 2 / 2^5 = 0.0625
TEST_NAMES = {
    "paired": "paired t-test over seeds",
    "student": "pooled two-sample t-test",
    "welch": "Welch's t-test",
    "wilcoxon": "Wilcoxon signed-rank test over seeds",
}


@dataclass(frozen=True)
class MethodInfo:
    """Method as tables show it; kind is IDPLL, PLL, control or reference."""

    name: str
    title: str
    kind: str
    apart: bool = False  # an extension: below the rest, and not ranked with it


@dataclass(frozen=True)
class DatasetInfo:
    """Dataset as tables show it, by the title that it has in the paper too."""

    name: str
    title: str
    group: str
    test_rows: int | None = None  # None: not known
    split_by_seed: bool = False  # every seed has its own training and test rows


@dataclass(frozen=True)
class Contents:
    """Methods, datasets and seeds of a table. `registered`: all known method names; None: only `methods`."""

    profile: str
    methods: tuple[MethodInfo, ...]
    datasets: tuple[DatasetInfo, ...]
    seeds: tuple[int, ...]
    device: str
    registered: frozenset[str] | None = None
    reference: str = REFERENCE  # the method that is marked and compared with the others
    beside: str = ""  # the profile's note on how the paper's numbers differ from its own

    @property
    def main_methods(self) -> tuple[MethodInfo, ...]:
        """Methods that are ranked and compared."""
        return tuple(m for m in self.methods if m.kind in MAIN_KINDS and not m.apart)

    @property
    def other_methods(self) -> tuple[MethodInfo, ...]:
        return tuple(m for m in self.methods if m.kind not in MAIN_KINDS and not m.apart)

    @property
    def extensions(self) -> tuple[MethodInfo, ...]:
        return tuple(m for m in self.methods if m.apart)

    def of_runs(self, runs: pd.DataFrame) -> Contents:
        """Return the contents with the devices and the numbers of test rows of the finished runs."""
        done = runs[runs["status"] == "done"]
        device = devices_in_words(zip(done["device"], done["device_name"], strict=True))
        rows = done.dropna(subset="test_rows").groupby("dataset")["test_rows"].max()
        datasets = (replace(d, test_rows=int(rows.get(d.name, 0)) or d.test_rows) for d in self.datasets)
        return replace(self, device=device, datasets=tuple(datasets))

    @property
    def titles(self) -> dict[str, str]:
        """Titles of methods and datasets, by name."""
        return {m.name: m.title for m in self.methods} | {d.name: d.title for d in self.datasets}


def devices_in_words(devices: Iterable[tuple[str, str]]) -> str:
    """Name the devices of runs, from `store.devices_of` of each: "cpu", "cuda NVIDIA A100", or several with their runs.

    A run that was resumed elsewhere is "cpu Xeon then cuda A100".
    """
    from benchmark.store import THEN

    counts = Counter(
        THEN.join(f"{d.split(':')[0]} {n}".strip() for d, n in zip(kinds.split(THEN), names.split(THEN), strict=False))
        for kinds, names in devices
        if kinds
    )
    if len(counts) > 1:
        return " and ".join(f"{place} ({plural(many, 'run')})" for place, many in counts.most_common())
    place = next(iter(counts), "unknown")
    return "cpu" if place.startswith("cpu ") and THEN not in place else place


def contents_of(selection: Selection, device: str) -> Contents:
    """Return the contents of a table of these runs."""
    entries = [selection.entry(name) for name in selection.methods]
    sources = [selection.source(name) for name in selection.datasets]
    return Contents(
        selection.profile.name,
        tuple(MethodInfo(e.name, e.title, e.kind, e.name in selection.apart) for e in entries),
        tuple(
            DatasetInfo(s.name, s.title, s.group, _test_rows(selection, s), _split_by_seed(selection, s))
            for s in sources
        ),
        selection.seeds,
        device,
        registered=frozenset(selection.catalogue.entries),
        beside=selection.profile.beside,
    )


def _test_rows(selection: Selection, source: Source) -> int | None:
    """Return the number that the profile plans; runs record what they really had."""
    return selection.profile.data.get(source.name, {}).get("settings", {}).get("test") or source.test_size


def _split_by_seed(selection: Selection, source: Source) -> bool:
    """Return whether each seed has its own split: a setting may fix one for all."""
    return source.split_by_seed and selection.specs(selection.methods[:1], [source.name])[0].data.split < 0
