"""`run --sweep`: the runs of a setting's values, and the table and the plot of their accuracies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmark.accuracy import LAST
from benchmark.analysis.table import Row, Table, row
from benchmark.config.resolution import Override, check_overrides, literal
from benchmark.errors import UsageError
from benchmark.exhibits.base import Inputs, RequiredRuns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmark.config.selection import Selection


@dataclass(frozen=True)
class Sweep:
    """Setting to vary, its values as typed, and the methods that have it."""

    scope: str
    key: str
    values: tuple[str, ...]
    methods: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.scope}.{self.key}"

    def label(self, method: str, value: str) -> str:
        return f"{method} {self.name}={value}"

    def required_runs(self, selection: Selection) -> RequiredRuns:
        """Return a run per method, dataset, seed and value; the profile's own value is the plain method's run."""
        required = RequiredRuns()
        for method in self.methods:
            for value in self.values:
                specs = selection.specs([method], extra=[Override(self.scope, self.key, value)])
                required.add(specs, self.label(method, value))
                required.points += [(spec.digest, self.key, literal(value)) for spec in specs]
        return required


def sweep_of(text: str, selection: Selection, methods_named: bool = False) -> Sweep:
    """Parse `scope.key=a,b,c` and check it like `--set`; `methods_named`: the command line names the methods."""
    name, equals, listed = text.partition("=")
    values = tuple(value.strip() for value in listed.split(",") if value.strip())
    if not equals or len(values) < 2 or len(set(values)) < len(values):
        raise UsageError(f"--sweep {text}: write a setting and at least two different values, as cel.alpha=0.1,0.5,1.")
    first = Override.parse(f"{name}={values[0]}", selection.catalogue)
    if any((o.scope, o.key) == (first.scope, first.key) for o in selection.overrides):
        raise UsageError(f"--sweep {text}: {name} is also given by --set; leave one out.")
    if methods_named and first.scope in selection.catalogue.entries and first.scope not in selection.methods:
        raise UsageError(
            f"--sweep {text}: {first.scope} is not among the methods ({', '.join(selection.methods)}); name it in --methods."
        )
    methods = (first.scope,) if first.scope in selection.catalogue.entries else selection.methods
    check_overrides([first], [selection.entry(method) for method in methods])
    return Sweep(first.scope, first.key, values, methods)


def sweep_table(sweep: Sweep, inputs: Inputs) -> Table:
    """Build the table with a line per value, the best of a method in bold."""
    from benchmark.analysis.comparisons import relevant
    from benchmark.exhibits.parts import cells

    contents = inputs.contents
    runs = relevant(inputs.runs, contents)
    labels = {m: [sweep.label(m, value) for value in sweep.values] for m in sweep.methods}
    lines: list[Row] = []
    data: list[dict[str, Any]] = []
    problems: tuple[str, ...] = ()
    complete = True
    for method, of_method in labels.items():
        grid = cells.grid_of(runs, contents, of_method, of_method, LAST)
        for value, label in zip(sweep.values, of_method, strict=True):
            first = value == sweep.values[0]
            line = grid.line(label, {"method": method, "setting": sweep.name, "value": value})
            title = inputs.selection.entry(method).title if first else ""
            lines.append(row(title, value, *line.cells, rule=first and bool(lines)))
            data += line.records
        problems += tuple(grid.problems(contents.titles))
        complete &= grid.complete
    caption = f"{cells.accuracy_caption(contents, LAST)} Best value of {sweep.name} for a method in bold, second best underlined."
    columns = ("Method", sweep.key, *(d.title for d in contents.datasets))
    summary = cells.summary_of(contents, LAST, "sweep") | {"setting": sweep.name, "values": list(sweep.values)}
    title = f"Sweep of {sweep.name}"
    notes = ("The best value has the highest test accuracy; choose settings with `tune` instead.", *inputs.overridden)
    content = (columns, lines, notes, problems, data, summary, complete)
    return Table(title, caption, *content, text_columns=2, origin=cells.origin(contents))


def sweep_plot(sweep: Sweep, inputs: Inputs) -> Figure:
    """Draw accuracy against the value, a line per method and a row per dataset."""
    from benchmark.exhibits.parts.panels import sensitivity

    titles = {method: inputs.selection.entry(method).title for method in sweep.methods}
    return inputs.with_status(sensitivity(inputs.points, {sweep.key: sweep.name}, inputs.datasets, titles, {}))
