"""What an exhibit is: a table or figure with a name, flags of its own, the runs it needs and how it is made from them."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from benchmark import accuracy, exhibits
from benchmark.analysis.contents import MAIN_KINDS, REFERENCE, TEST_NAMES, Contents, contents_of
from benchmark.errors import MissingRuns
from benchmark.files import file_name
from benchmark.flags import flag
from datasets.base import plural

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from benchmark.analysis.table import Table
    from benchmark.config.selection import Selection
    from benchmark.config.spec import RunSpec
    from benchmark.runner.options import RunOptions
    from benchmark.runner.status import Standing


@dataclass(frozen=True)
class NoFlags:
    """An exhibit or command without flags of its own."""


# Options that several exhibits offer; the `Options` of each exhibit lists those that it has.
def accuracy_flag() -> Any:
    """Return the field of `--accuracy`."""
    return flag("last", "which epochs count; oracle is no result", choices=accuracy.WORDS)


def rank_all_flag() -> Any:
    """Return the field of `--rank-all`."""
    return flag(False, "rank the extensions of --methods all with the rest")


def reference_flag(text: str) -> Any:
    """Return the field of `--reference`; the text says what becomes of the method."""
    return flag(REFERENCE, text)


def test_flag() -> Any:
    """Return the field of `--test`."""
    return flag("paired", "significance test over seeds", choices=tuple(TEST_NAMES))


def competing_methods(selection: Selection, rank_all: bool) -> list[str]:
    """Return the methods that are ranked and compared, as `Contents.main_methods` does."""
    apart = () if rank_all else selection.apart
    return [name for name in selection.methods if selection.entry(name).kind in MAIN_KINDS and name not in apart]


@dataclass
class Need:
    """The runs of one exhibit, and the label under which it looks for each."""

    specs: list[RunSpec] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)  # by config digest
    points: list[tuple[str, str, float | str | bool]] = field(default_factory=list)  # config digest, parameter, value
    sets: list[RunSpec] = field(default_factory=list)  # runs whose candidate sets alone are needed

    def add(self, specs: Sequence[RunSpec], label: str | None = None) -> None:
        self.specs += specs
        self.labels |= {spec.digest: label or spec.method for spec in specs}

    def vary(self, specs: Sequence[RunSpec], parameter: str, value: float) -> None:
        """Runs at one value of a parameter; the default configuration may stand for several parameters at once."""
        self.specs += specs
        self.points += [(spec.digest, parameter, float(value)) for spec in specs]


@dataclass(frozen=True)
class Material:
    """What an exhibit is made from, read from the results folder when it is asked for."""

    selection: Selection
    need: Need
    place: RunOptions

    @functools.cached_property
    def contents(self) -> Contents:
        """With the devices and the numbers of test rows that the finished runs had."""
        if not self.need.specs or not self.place.results.is_dir():
            return contents_of(self.selection, self.place.device)
        from benchmark.analysis.comparisons import devices_in_words

        done = self.runs[self.runs["status"] == "done"]
        plan = contents_of(self.selection, devices_in_words(zip(done["device"], done["device_name"], strict=True)))
        rows = done.dropna(subset="test_rows").groupby("dataset")["test_rows"].max()
        sets = (replace(d, test_rows=int(rows.get(d.name, 0)) or d.test_rows) for d in plan.datasets)
        return replace(plan, datasets=tuple(sets))

    def ranked(self, rank_all: bool) -> Contents:
        """Return the contents, the extensions among the rest where that is asked for."""
        return self.contents.ranking_all() if rank_all else self.contents

    @functools.cached_property
    def standing(self) -> Standing:
        from benchmark.runner.status import standing

        return standing(self.need.specs, self.place.results)

    @functools.cached_property
    def runs(self) -> pandas.DataFrame:
        """The runs of the need under its labels; unknown schemas are refused."""
        from benchmark.runner.status import frame_of
        from benchmark.store import check_schema

        frame = frame_of(self.need.specs, self.place.results, self.need.labels)
        check_schema(frame)
        return frame

    @functools.cached_property
    def epochs(self) -> pandas.DataFrame:
        """The epochs of the need under its labels."""
        from benchmark import store
        from benchmark.runner.status import as_planned

        return store.epoch_frame(as_planned(self.need.specs, self.place.results, self.need.labels))

    @functools.cached_property
    def points(self) -> pandas.DataFrame:
        """Finished runs as points of a sensitivity plot: parameter, value, method, dataset, seed, accuracy."""
        import pandas

        done = self.runs[self.runs["status"] == "done"].set_index("config_digest")
        columns = ["method", "dataset", "seed", "accuracy"]
        rows = [
            {"parameter": key, "value": value, **done.loc[digest, columns].to_dict()}
            for digest, key, value in self.need.points
            if digest in done.index
        ]
        return pandas.DataFrame(rows, columns=["parameter", "value", *columns])

    @property
    def datasets(self) -> dict[str, str]:
        """Titles of the data sets that have runs here, by name."""
        names = dict.fromkeys(spec.dataset for spec in self.need.specs)
        return {name: self.contents.titles[name] for name in names}

    def check_there_is_one(self, name: str) -> None:
        """A drawing without a single finished run would be empty axes."""
        if not self.standing.count("done"):
            raise MissingRuns(
                f"There are no finished runs for {name} in {self.place.results}; run it without --no-run first."
            )

    def signed(self, figure: Figure) -> Figure:
        """With the profile and the state of its runs in the corner."""
        now, state = (
            self.standing,
            f"profile {self.selection.profile.name}, {plural(len(self.selection.seeds), 'seed')}",
        )
        if now.todo:
            state += f", {now.count('done')} of {len(now.specs)} runs done"
        told = "; ".join(filter(None, (figure.get_supxlabel(), state)))
        figure.supxlabel(told, fontsize=7, color="#666666", x=0.99, ha="right")
        return figure

    def annotated(self, table: Table) -> Table:
        """With notes on runs that cannot be paired and on what the command line changed."""
        from benchmark.analysis.comparisons import candidate_notes, device_notes

        notes = candidate_notes(self.runs, self.need.specs) + device_notes(self.runs)
        return replace(table, notes=(*table.notes, *notes, *self.remarks))

    @property
    def remarks(self) -> list[str]:
        """What loading said of the data, and what the command line changed."""
        from benchmark.runner.status import data_notes

        return data_notes(self.need.specs, self.place.results) + self.overridden

    @property
    def overridden(self) -> list[str]:
        """What the command line changed, as a note."""
        changes = ", ".join(f"{o.scope}.{o.key}={o.text}" for o in self.selection.overrides)
        return [f"Overridden on the command line: {changes}."] if changes else []


@dataclass(frozen=True)
class Made:
    """A finished exhibit and the place of its files in the results folder."""

    content: Table | Figure
    folder: str
    stem: str


class Exhibit:
    """One table or figure. Its file in this folder is all that has to be written for it."""

    name: ClassVar[str]
    title: ClassVar[str]
    kind: ClassVar[Literal["table", "figure", "plot"]]  # a plot is drawn by `plot NAME`, the others are commands
    of_paper: ClassVar[bool] = True  # whether the paper has it
    Options: ClassVar[type] = NoFlags  # frozen dataclass whose fields are made by `flag`
    profile: ClassVar[str | None] = None  # that it is made under unless another is named; `all` leaves such ones out

    def usual(self, selection: Selection, place: RunOptions) -> Selection:
        """What it is made of when nobody names data sets, with the folders of those that need not be there."""
        return selection

    def runs(self, selection: Selection, options: Any) -> Need:
        """What must be trained for it; UsageError if these methods and data sets cannot have it."""
        raise NotImplementedError

    def make(self, material: Material, options: Any) -> Table | Figure:
        raise NotImplementedError

    def figure(self, material: Material, options: Any) -> Figure | None:
        """Return the figure that is written beside a table, if there is one."""
        return None

    def stem(self, options: Any, altered: str = "") -> str:
        """Name of its files: what is not as usual, flags and selection, is in it, so that nothing replaces the usual one."""
        chosen = [(f.name, getattr(options, f.name)) for f in fields(options) if getattr(options, f.name) != f.default]
        words = [self.name, *(name if value is True else str(value) for name, value in chosen)]
        return file_name("-".join([*words, altered] if altered else words))

    def without_runs(self, options: Any) -> Made | None:
        """What the flags ask for that needs no profile and no runs."""
        return None


class FolderPlot(Exhibit):
    """A plot that `plot NAME` draws from whatever a results folder holds, without a profile's plan."""

    kind = "plot"

    def draw(self, epochs: pandas.DataFrame, methods: Sequence[str], options: Any) -> Figure:
        """From the tidy frame of epochs; `methods` are those that were named, if any."""
        raise NotImplementedError


@functools.cache
def all_exhibits() -> tuple[Exhibit, ...]:
    """Every exhibit of this folder: tables, then figures, then plots, each by name."""
    found = []
    for module in pkgutil.iter_modules(exhibits.__path__):
        if module.name != "base" and not module.ispkg:
            content = vars(importlib.import_module(f"{exhibits.__name__}.{module.name}")).values()
            own = [c for c in content if isinstance(c, type) and issubclass(c, Exhibit) and "name" in vars(c)]
            found += [exhibit() for exhibit in own]
    order = ("table", "figure", "plot")
    return tuple(sorted(found, key=lambda one: (order.index(one.kind), one.name)))


def chosen(selection: Selection, exhibit: str) -> list[str]:
    """The data sets of a figure: the profile's choice, as far as the command line leaves them in."""
    wanted = selection.profile.figures.get(exhibit, {}).get("datasets", selection.datasets[:2])
    return [name for name in wanted if name in selection.datasets] or list(selection.datasets[:2])
