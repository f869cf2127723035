"""Commands that turn runs into tables, figures, curves, the report page and the export."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.cli.training import announce, selection_of, train
from benchmark.errors import COMPLETE, INCOMPLETE, CandidError, UsageError
from benchmark.files import atomic_write
from benchmark.plan.profile import TUNING
from benchmark.plan.sections import Data, fields_of
from benchmark.plan.spec import Override, RunSpec
from benchmark.store import profile_name

if TYPE_CHECKING:
    import pandas

    from benchmark.analysis.table import Table
    from benchmark.plan.selection import Selection

ACCURACY = {
    "last": "accuracy",
    "last10": "accuracy_last10",
    "oracle": "accuracy_oracle",
    "covering": "accuracy_covering",
    "approximated": "accuracy_approximated",
}
ABLATION: tuple[tuple[str, dict[str, Any]], ...] = (  # Table 4 of the paper
    ("L_cls", {"alpha": 0.0, "beta": 0.0}),
    ("L_cls + L_cal", {"beta": 0.0}),
    ("L_cls + L_cal + L_pdl", {}),
)
SENSITIVITY = {  # Figure 5
    "alpha": (0.1, 0.5, 1.0),
    "beta": (0.1, 0.5, 1.0),
    "gamma1": (0.5, 1.0, 2.0, 5.0),
    "gamma2": (0.5, 1.0, 2.0, 5.0),
}
LENGTHS = (128, 256, 512, 768, 1024)  # Figure 6


@dataclass
class Need:
    """The runs of one table or figure, and the label under which it looks for each."""

    specs: list[RunSpec]
    labels: dict[str, str] = field(default_factory=dict)  # by config digest
    points: list[tuple[str, str, float]] = field(default_factory=list)  # config digest, parameter, value

    def add(self, specs: Sequence[RunSpec], label: str | None = None) -> None:
        self.specs += specs
        self.labels |= {spec.digest: label or spec.method for spec in specs}

    def vary(self, specs: Sequence[RunSpec], parameter: str, value: float) -> None:
        """Runs at one value of a parameter; the default configuration may stand for several parameters at once."""
        self.specs += specs
        self.points += [(spec.digest, parameter, float(value)) for spec in specs]


def need_of(what: str, selection: Selection) -> Need:
    """What a table or figure is made from."""
    need = Need([])
    figures = selection.profile.figures
    if what in ("table2", "table3"):
        need.add(selection.specs())
    elif what == "table4":
        for _, change in ABLATION:
            need.add(selection.specs(["cel"], variant=change), label_of(change))
    elif what == "fig2":
        setting = figures.get("fig2", {})
        method = setting.get("method", "proden")
        for dataset in chosen(selection, setting):
            need.add(selection.specs([method], [dataset]), "IDPLL")
            need.add(selection.specs([method], [dataset], extra=uniform_like(selection, dataset)), "PLL")
    elif what == "fig4":
        dataset = figures.get("fig4", {}).get("dataset") or selection.datasets[0]
        main = [m for m in selection.methods if selection.entry(m).kind in ("PLL", "IDPLL")]
        need.add(selection.specs(main, [dataset if dataset in selection.datasets else selection.datasets[0]]))
    elif what == "fig5":
        for dataset in chosen(selection, figures.get("fig5", {})):
            for key, values in SENSITIVITY.items():
                for value in values:
                    need.vary(selection.specs(["cel"], [dataset], {key: value}), key, value)
    elif what == "fig6":
        setting = figures.get("fig6", {})
        for dataset in chosen(selection, setting):
            for length in setting.get("lengths", LENGTHS):
                need.vary(selection.specs(["cel"], [dataset], {"embedding_length": length}), "embedding_length", length)
    return need


def label_of(change: dict[str, Any]) -> str:
    return "cel" + (f"[{','.join(f'{k}={v:g}' for k, v in change.items())}]" if change else "")


def chosen(selection: Selection, setting: dict[str, Any]) -> list[str]:
    """The data sets of a figure: the profile's choice, as far as the command line leaves them in."""
    wanted = setting.get("datasets", selection.datasets[:2])
    return [name for name in wanted if name in selection.datasets] or list(selection.datasets[:2])


def uniform_like(selection: Selection, dataset: str) -> list[Override]:
    """Uniform candidate labels of the same expected size as the profile's instance-dependent ones."""
    from datasets import registry

    if registry.get(dataset).own_candidates:
        raise UsageError(
            f"{dataset} brings its own candidate sets; Figure 2 compares generated ones, name other data sets."
        )
    data = selection.profile.data.get(dataset, {})
    classes = int(data.get("settings", {}).get("classes") or registry.get(dataset).num_classes or 2)
    size = data.get("target_size") or 1 + data.get("rate", fields_of(Data)["rate"].default) * classes
    rate = (size - 1) / (classes - 1)
    return [
        Override("data", "generator", "uniform"),
        Override("data", "rate", repr(round(rate, 6))),
        Override("data", "target_size", "0.0"),
    ]


def make(arguments: argparse.Namespace) -> int:
    """`table1` … `fig6`, `all`: run what is missing, then write."""
    what = arguments.command
    if what == "table3" and arguments.from_paper:
        return _from_paper(arguments)
    selection = selection_of(arguments)
    names = {"table": "Table ", "fig": "Figure ", "all": "Every table and figure"}
    title = next(
        text + what.removeprefix(key).removeprefix("all") for key, text in names.items() if what.startswith(key)
    )
    announce(arguments, title, selection)
    parts = ["table1", "table2", "table3", "table4", "fig2", "fig4", "fig5", "fig6"] if what == "all" else [what]
    needs = {}
    for part in parts:
        try:
            needs[part] = need_of(part, selection)
        except UsageError as error:  # one figure that these data cannot have does not stop the others
            if what != "all":
                raise
            print(f"{part} is left out: {error}")
    if not arguments.no_run:
        unique = {spec.digest: spec for need in needs.values() for spec in need.specs}
        if unique:
            train(arguments, selection, list(unique.values()))
        elif arguments.dry_run:
            print(f"Plan: {title} needs no training; candidate sets are built if they are missing.")
    if arguments.dry_run:
        return COMPLETE
    complete = True
    for part in needs:
        if part.startswith("table"):
            complete &= write_table(part, arguments, selection, needs[part])
        else:
            complete &= draw_figure(part, arguments, selection, needs[part])
    if what == "all":
        complete &= draw_extras(arguments, selection, needs["table2"])
    return COMPLETE if complete and not selection.unusable else INCOMPLETE


def _from_paper(arguments: argparse.Namespace) -> int:
    from benchmark.exhibits import tables

    test = "student" if arguments.test == "paired" else arguments.test
    try:
        table = tables.table3_from_paper(test=test)
    except ValueError as error:
        raise UsageError(str(error)) from None
    show(table, arguments.results / "tables" / "published", f"table3-from-paper-{test}", arguments.quiet)
    return COMPLETE


def frame_for(selection: Selection, need: Need, results: Path) -> pandas.DataFrame:
    """The runs of a need under its labels; unknown schemas are refused."""
    from benchmark.plan.selection import frame_of
    from benchmark.store import check_schema

    frame = frame_of(need.specs, results, need.labels)
    check_schema(frame)
    return frame


def write_table(name: str, arguments: argparse.Namespace, selection: Selection, need: Need) -> bool:
    """Write one table in all its forms and show it; True if it is complete."""
    from benchmark.exhibits import tables
    from benchmark.plan.selection import check_same_candidates

    folder = arguments.results / "tables" / selection.profile.name
    plan = selection.table_plan()
    if name == "table1":
        from benchmark.train.candidates import measure

        table = tables.table1(measure(selection), plan.datasets, profile=selection.profile.name)
        show(table, folder, name, arguments.quiet)
        return table.complete
    frame = frame_for(selection, need, arguments.results)
    options: dict[str, Any] = {"accuracy": ACCURACY[getattr(arguments, "accuracy", "last")]}
    reference = getattr(arguments, "reference", "cel")
    if name in ("table2", "table3") and reference not in selection.methods:
        if name == "table3" and arguments.command == "table3":
            raise UsageError(f"--reference {reference} is not among the methods of this table.")
        if name == "table3":
            return True
    if name == "table2":
        table = tables.table2(frame, plan, reference=reference, test=getattr(arguments, "test", "paired"), **options)
    elif name == "table3":
        table = tables.table3(frame, plan, reference=reference, test=getattr(arguments, "test", "paired"), **options)
    else:
        rows = [(title, label_of(change)) for title, change in ABLATION]
        table = tables.table4(frame, plan, rows=rows, **options)
    extra = check_same_candidates(frame, need.specs) + overridden(selection)
    table = replace(table, notes=(*table.notes, *extra))
    show(table, folder, name, arguments.quiet)
    return table.complete


def overridden(selection: Selection) -> list[str]:
    """What the command line changed belongs under the table."""
    if not selection.overrides:
        return []
    changes = ", ".join(f"{o.scope}.{o.key}={o.text}" for o in selection.overrides)
    return [f"Overridden on the command line: {changes}."]


def show(table: Table, folder: Path, stem: str, quiet: bool) -> None:
    from benchmark.analysis import table as rendering

    paths = rendering.write(table, folder, stem)
    print(rendering.to_text(table, colour=sys.stdout.isatty()))
    if not quiet:
        kinds = ", ".join(path.suffix for path in paths)
        print(f"Written: {folder / stem} ({kinds})")


def epochs_for(need: Need, results: Path) -> pandas.DataFrame:
    """The epochs of a need under its labels."""
    from benchmark import store
    from benchmark.plan.selection import documents

    profile = need.specs[0].profile
    wanted = {spec.digest for spec in need.specs}
    identity = {doc["identity"]: digest for digest, (_, doc) in documents(results, profile).items() if digest in wanted}
    frame = store.load(results, profile)
    frame = frame[frame["identity"].isin(identity)].copy()
    frame["label"] = frame["identity"].map(lambda i: need.labels[identity[i]])
    return frame


def draw_figure(name: str, arguments: argparse.Namespace, selection: Selection, need: Need) -> bool:
    """Draw one figure of the paper from the runs that are there; True if none is missing."""
    from benchmark.exhibits import figures
    from benchmark.plan.selection import standing

    now = standing(need.specs, arguments.results)
    if not now.count("done"):
        raise CandidError(
            f"There are no finished runs for {name} in {arguments.results}; run it without --no-run first."
        )
    plan = selection.table_plan()
    titles = {d.name: d.title for d in plan.datasets}
    drawn = list(dict.fromkeys(spec.dataset for spec in need.specs))
    if name == "fig2":
        panels = [(titles[d], (d, "PLL"), (d, "IDPLL")) for d in drawn]
        figure = figures.fig2(epochs_for(need, arguments.results), panels)
    elif name == "fig4":
        figure = figures.fig4(epochs_for(need, arguments.results), plan, drawn[0])
    else:
        points = points_of(selection, need, arguments.results)
        shown = {d: titles[d] for d in drawn}
        if name == "fig5":
            defaults = selection.specs(["cel"], drawn[:1])[0].config.method_config
            figure = figures.fig5(points, shown, {key: defaults[key] for key in SENSITIVITY})
        else:
            figure = figures.fig6(points, shown, "embedding_length")
    state = f"profile {selection.profile.name}, {len(selection.seeds)} seeds"
    if now.todo:
        state += f", {now.count('done')} of {len(now.specs)} runs done"
    figure.supxlabel(state, fontsize=7, color="#666666", x=0.99, ha="right")
    report_files(figures.save(figure, arguments.results / "figures" / selection.profile.name, name))
    return not now.todo


def points_of(selection: Selection, need: Need, results: Path) -> pandas.DataFrame:
    """Finished runs as points of a sensitivity plot: parameter, value, dataset, seed, accuracy."""
    import pandas

    frame = frame_for(selection, need, results)
    done = frame[frame["status"] == "done"].set_index("config_digest")
    rows = [
        {"parameter": key, "value": value, **done.loc[digest, ["dataset", "seed", "accuracy"]].to_dict()}
        for digest, key, value in need.points
        if digest in done.index
    ]
    return pandas.DataFrame(rows, columns=["parameter", "value", "dataset", "seed", "accuracy"])


def report_files(paths: Sequence[Path]) -> None:
    for path in paths:
        print(f"Written: {path}")


def draw_extras(arguments: argparse.Namespace, selection: Selection, need: Need) -> bool:
    """The critical-difference diagram, the selection plot and the curves of all methods."""
    complete = True
    for what in ("ranks", "selection", "curves"):
        try:
            draw_summary(what, arguments.results, selection, need)
        except ValueError as error:
            print(f"Not drawn: {error}")
            complete = False
    return complete


def draw_summary(what: str, results: Path, selection: Selection, need: Need) -> None:
    from benchmark.analysis import comparisons
    from benchmark.exhibits import figures

    plan = selection.table_plan()
    if what == "curves":
        figure = figures.method_curves(epochs_for(need, results), plan, plan.main_methods)
    else:
        frame = frame_for(selection, need, results)
        if what == "ranks":
            figure = figures.critical_difference(comparisons.rank_analysis(frame, plan))
        else:
            figure = figures.selection(frame, plan)
    report_files(figures.save(figure, results / "figures" / selection.profile.name, what))


def plot(arguments: argparse.Namespace) -> int:
    """`plot curves|selection|ranks` from any results folder."""
    from benchmark import store
    from benchmark.exhibits import figures

    results = arguments.results
    if arguments.what != "curves":
        selection = selection_of(arguments)
        try:
            draw_summary(arguments.what, results, selection, need_of("table2", selection))
        except ValueError as error:
            raise CandidError(str(error)) from None
        return COMPLETE
    frame = store.load(results, arguments.profile)
    if arguments.profile is None:  # a grid search is drawn when it is named, not between the results
        frame = frame[~frame["profile"].str.endswith(TUNING)]
    if frame.empty:
        raise CandidError(f"There are no runs in {results}; train some first, for example `./reproduce.sh table2`.")
    for option, column in (("methods", "method"), ("datasets", "dataset")):
        names = getattr(arguments, option)
        if names:
            wanted = names.split(",")
            there = set(frame[column]) | set(frame["label"])
            unknown = [w for w in wanted if w not in there]
            if unknown:
                known = ", ".join(sorted(set(frame[column])))
                raise UsageError(f"--{option}: no run of '{unknown[0]}' in {results}; there are {known}.")
            frame = frame[frame[column].isin(wanted) | frame["label"].isin(wanted)]
    named = (arguments.methods or "").split(",")
    if frame["method"].nunique() > 1:  # between methods their variants would only clutter, unless they are asked for
        plain = frame["label"] == frame["method"]
        frame = frame[plain | frame["label"].isin(named) | ~frame["method"].isin(set(frame["method"][plain]))]
    if len(frame["profile"].unique()) > 1:  # runs of several profiles side by side are told apart
        frame = frame.assign(label=frame["label"] + " (" + frame["profile"] + ")")
    panels = [
        figures.Panel(str(d), tuple(figures.Curve(label, str(d), label) for label in sorted(set(part["label"]))))
        for d, part in frame.groupby("dataset")
    ]
    try:
        figure = figures.curve_panels(frame, panels, arguments.metric)
    except ValueError as error:
        raise UsageError(str(error)) from None
    folder = results / "figures" / profile_name(arguments.profile or "all")
    out = arguments.out or folder / f"curves-{arguments.metric}.png"
    if out.suffix not in ("", ".png", ".pdf"):
        raise UsageError(f"--out {out}: pictures are written as .png and .pdf.")
    report_files(figures.save(figure, out.parent, out.stem))
    return COMPLETE


def export(arguments: argparse.Namespace) -> int:
    """`export`: one tidy CSV."""
    from benchmark import store

    frame = store.load(arguments.results, arguments.profile)
    if frame.empty:
        raise CandidError(f"There are no runs in {arguments.results} to export.")
    text = frame.to_csv(index=False)
    if str(arguments.out) == "-":
        sys.stdout.write(text)
        return COMPLETE
    out = arguments.out or arguments.results / "epochs.csv"
    atomic_write(out, text)
    print(f"Written: {out} ({len(frame)} epochs of {frame['identity'].nunique()} runs)")
    return COMPLETE


def report(arguments: argparse.Namespace) -> int:
    """`report`: results/report.html."""
    from benchmark.report.page import up_to_date, write_report

    path = arguments.out or arguments.results / "report.html"
    if up_to_date(arguments.results, path, arguments.profile):
        print(f"Unchanged: {path} was made from the same runs by the same code.")
    else:
        print(f"Written: {write_report(arguments.results, path, arguments.profile)}")
    return COMPLETE
