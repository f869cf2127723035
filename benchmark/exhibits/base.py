"""The base of all tables and figures: a name, options, the runs that are needed, and how the output is made from them."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from benchmark import accuracy, exhibits
from benchmark.analysis.contents import MAIN_KINDS, REFERENCE, Contents, contents_of
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
    from benchmark.store import PlanStatus, Store


@dataclass(frozen=True)
class NoFlags:
    """Options of an exhibit or command that has none."""


# Options of several exhibits; the `Options` of each exhibit lists those that it has.
def accuracy_flag() -> Any:
    """Return the field of `--accuracy`."""
    return flag(
        "last", "epoch whose test accuracy is reported; oracle is chosen with test labels", choices=accuracy.WORDS
    )


def reference_flag(text: str) -> Any:
    """Return the field of `--reference`; the text says what the exhibit does with the method."""
    return flag(None, f"{text} (default: {REFERENCE})", metavar="METHOD")


def changed_options(options: Any) -> dict[str, Any]:
    """Return the options that differ from their defaults."""
    values = {option: getattr(options, option.name) for option in fields(options)}
    return {option.name: value for option, value in values.items() if value != option.default}


def competing_methods(selection: Selection) -> list[str]:
    """Return the methods that are ranked and compared, as `Contents.main_methods` does."""
    names = selection.methods
    return [name for name in names if selection.entry(name).kind in MAIN_KINDS and name not in selection.apart]


@dataclass
class RequiredRuns:
    """Runs that an exhibit needs, and the label under which it looks for each."""

    specs: list[RunSpec] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)  # by config digest
    points: list[tuple[str, str, float | str | bool]] = field(default_factory=list)  # config digest, parameter, value
    sets: list[RunSpec] = field(default_factory=list)  # runs of which only the candidate sets are needed

    def add(self, specs: Sequence[RunSpec], label: str | None = None) -> RequiredRuns:
        """Add runs, by default under the name of their method."""
        self.specs += specs
        self.labels |= {spec.digest: label or spec.method for spec in specs}
        return self

    def add_point(self, specs: Sequence[RunSpec], parameter: str, value: float | str | bool) -> None:
        """Add runs at one value of a parameter; the default configuration may be a point of several parameters."""
        self.specs += specs
        self.points += [(spec.digest, parameter, value) for spec in specs]


@dataclass(frozen=True)
class Inputs:
    """Inputs of an exhibit, read from the results folder on first use."""

    selection: Selection
    required: RequiredRuns
    place: RunOptions

    @functools.cached_property
    def store(self) -> Store:
        """Read the results folder once."""
        from benchmark.store import Store

        return Store(self.place.results)

    @functools.cached_property
    def status(self) -> PlanStatus:
        return self.store.status(self.required.specs)

    @functools.cached_property
    def runs(self) -> pandas.DataFrame:
        """Return the required runs under their labels."""
        from benchmark.store import run_frame

        return run_frame(self.store.runs_of_plan(self.required.specs, self.required.labels))

    @functools.cached_property
    def epochs(self) -> pandas.DataFrame:
        """Return the epochs of the required runs under their labels."""
        from benchmark.store import epoch_frame

        return epoch_frame(self.store.runs_of_plan(self.required.specs, self.required.labels))

    @property
    def remarks(self) -> list[str]:
        """Return notes on damaged runs, of the data loaders and on settings that the command line changed."""
        return self.store.notes(self.required.specs) + self.overridden

    @functools.cached_property
    def contents(self) -> Contents:
        """Return the contents of a table, with the devices and the numbers of test rows of the finished runs."""
        contents = contents_of(self.selection, self.place.device)
        return contents.of_runs(self.runs) if self.required.specs and self.place.results.is_dir() else contents

    def compared_with(self, reference: str | None) -> Contents:
        """Return the contents with this method in the place of the usual reference."""
        return replace(self.contents, reference=reference or REFERENCE)

    def runs_of(self, specs: Sequence[RunSpec]) -> pandas.DataFrame:
        """Return the runs of these specifications."""
        return self.runs[self.runs["config_digest"].isin({spec.digest for spec in specs})]

    @functools.cached_property
    def points(self) -> pandas.DataFrame:
        """Return finished runs as points of a sensitivity plot, with the columns `parameter` and `value`."""
        import pandas

        points = pandas.DataFrame(self.required.points, columns=["config_digest", "parameter", "value"])
        return points.merge(self.runs[self.runs["status"] == "done"], on="config_digest")

    @property
    def datasets(self) -> dict[str, str]:
        """Return titles of the datasets of the required runs, by name."""
        names = dict.fromkeys(spec.dataset for spec in self.required.specs)
        return {name: self.contents.titles[name] for name in names}

    def with_status(self, figure: Figure) -> Figure:
        """Write the profile and the state of its runs below a figure; below one for a paper only what is missing."""
        from benchmark.exhibits.parts.style import footnote, is_for_paper

        status, seeds = self.status, plural(len(self.selection.seeds), "seed")
        about = "" if is_for_paper() else f"profile {self.selection.profile.name}, {seeds}"
        missing = f"{status.count('done')} of {len(status.specs)} runs done" if status.todo else ""
        text = "; ".join(filter(None, (figure.get_supxlabel().replace("\n", " "), about, missing)))
        if text:
            footnote(figure, text)
        return figure

    def with_notes(self, table: Table) -> Table:
        """Add notes on runs that cannot be paired and on settings that the command line changed."""
        from benchmark.analysis.comparisons import candidate_notes, device_notes

        notes = candidate_notes(self.runs, self.required.specs) + device_notes(self.runs)
        return replace(table, notes=(*table.notes, *notes, *self.remarks))

    @property
    def overridden(self) -> list[str]:
        """Return a note on settings that the command line changed."""
        changes = ", ".join(f"{o.scope}.{o.key}={o.text}" for o in self.selection.overrides)
        return [f"Overridden on the command line: {changes}."] if changes else []


@dataclass(frozen=True)
class Output:
    """Finished exhibit and the place of its files in the results folder."""

    content: Table | Figure
    folder: str
    stem: str


class Exhibit:
    """Base class of a table or figure; a new one needs only its file in this folder."""

    name: ClassVar[str]
    title: ClassVar[str]
    kind: ClassVar[Literal["table", "figure", "plot"]]  # a plot is drawn by `plot NAME`, the others are commands
    of_paper: ClassVar[bool] = True  # whether the paper has it
    Options: ClassVar[type] = NoFlags  # frozen dataclass whose fields are made by `flag`
    profile: ClassVar[str | None] = None  # its own default profile; `all` leaves such exhibits out

    def profile_for(self, options: Any) -> str | None:
        """Return the profile that is used unless another is named; None for the usual one."""
        return self.profile

    def default_selection(self, selection: Selection, options: Any, place: RunOptions) -> Selection:
        """Return the selection to use when the command line names no datasets."""
        return selection

    def required_runs(self, selection: Selection, options: Any) -> RequiredRuns:
        """Return what must be trained; UsageError if these methods and datasets cannot have this exhibit."""
        return RequiredRuns().add(selection.specs())

    def make(self, inputs: Inputs, options: Any) -> Table | Figure:
        raise NotImplementedError

    def figure(self, inputs: Inputs, options: Any) -> Figure | None:
        """Return the figure that is written beside a table, if there is one."""
        return None

    def stem(self, options: Any, altered: str = "") -> str:
        """Return the name of the files; it includes changed options, so that nothing replaces the default files."""
        changes = changed_options(options).items()
        words = [name.replace("_", "-") if value is True else str(value) for name, value in changes]
        return file_name("-".join(filter(None, (self.name, *words, altered))))

    def without_runs(self, options: Any) -> Output | None:
        """Return what these options ask for if it needs no profile and no runs."""
        return None


@functools.cache
def all_exhibits() -> tuple[Exhibit, ...]:
    """Return every exhibit of this folder: tables, then figures, then plots, each by name."""
    instances = []
    for module in pkgutil.iter_modules(exhibits.__path__):
        if module.name != "base" and not module.ispkg:
            content = importlib.import_module(f"{exhibits.__name__}.{module.name}")
            classes = [c for c in vars(content).values() if isinstance(c, type) and c.__module__ == content.__name__]
            instances += [c() for c in classes if issubclass(c, Exhibit)]
    order = ("table", "figure", "plot")
    return tuple(sorted(instances, key=lambda one: (order.index(one.kind), one.name)))


def figure_datasets(selection: Selection, figure: str) -> list[str]:
    """Return the datasets of a figure: those of the profile that the command line selects."""
    of_profile = selection.profile.figures.get(figure, {}).get("datasets", selection.datasets[:2])
    return [name for name in of_profile if name in selection.datasets] or list(selection.datasets[:2])
