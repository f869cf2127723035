"""The tables and figures of benchmark/exhibits, `all` and `plot`: train what is missing, then write."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmark.analysis import table as rendering
from benchmark.cli import options as shared
from benchmark.cli.execution import announce, make_sets, report_failures, say_weights, train
from benchmark.cli.options import OneOf, Options, run_options, selection_of
from benchmark.errors import COMPLETE, INCOMPLETE, CandidError, MissingRuns, UsageError
from benchmark.exhibits.base import Exhibit, Inputs, Output, RequiredRuns, all_exhibits
from benchmark.exhibits.curves import Curves
from benchmark.exhibits.parts.style import SUFFIXES, WIDTHS, save, sized
from benchmark.files import file_name

if TYPE_CHECKING:
    from benchmark.config.selection import Selection
    from methods.registry import Entry

Requested = Mapping[Exhibit, Any]  # exhibits with their options
FILES = (("figures", SUFFIXES), ("tables", rendering.SUFFIXES))  # folder and formats of figures and of tables
OF_RUNS = ("methods", "datasets", "seeds", "settings", "plugins")
out = shared.out_option("Output file; the suffix selects the format (no suffix: all formats).")
size = click.option("--size", type=OneOf(tuple(WIDTHS)),
                    help="Width in a two-column paper: one column or the page (default: screen).")  # fmt: skip
with_training = shared.together(
    shared.selection, shared.place, shared.jobs, shared.no_run, shared.dry_run, shared.hidden_quiet
)


def command_of(exhibit: Exhibit) -> click.Command:
    """Return the command of a table or figure, or `plot NAME`."""
    act: Any = one
    decorators: tuple[Any, ...] = (with_training,)
    if isinstance(exhibit, Curves):
        act, help = plot_of_folder, f"{exhibit.title} of the runs in the results folder."
        decorators = (shared.profile, shared.methods, shared.datasets, shared.plugins, shared.results)
    elif exhibit.kind == "plot":
        act, help = plot_of_profile, f"{exhibit.title} of the runs of a profile."
        decorators = (shared.selection, shared.results, shared.device)
    else:
        verb = "write" if exhibit.kind == "table" else "draw"
        where = " of the paper" if exhibit.of_paper and exhibit.profile is None else ""
        help = f"{headline(exhibit)}{where}: train the missing runs, then {verb} it."
    for field in dataclasses.fields(exhibit.Options):
        if field.metadata.get("hidden"):
            help += f"\n\nWith --{field.name.replace('_', '-')}: {field.metadata['help']}."

    def callback(**options: Any) -> int:
        own = exhibit.Options(**{field.name: options.pop(field.name) for field in dataclasses.fields(exhibit.Options)})
        check_out(options["out"], exhibit)
        with sized(options.get("size")):
            return act(exhibit, own, options)

    sizes = () if exhibit.kind == "table" else (size,)
    decorate = shared.together(*decorators, out, *sizes, shared.options_of(exhibit.Options))
    return click.command(exhibit.name, help=help, short_help=help.partition(":")[0])(decorate(callback))


def headline(exhibit: Exhibit) -> str:
    return exhibit.title[0].upper() + exhibit.title[1:]


@click.command("all", short_help="Every table and figure that the data allow")
@with_training
def every(**options: Any) -> int:
    """Train the missing runs of every table and figure that the data allow, and write them all."""
    return make(options, "Every table and figure", every_one())


def one(exhibit: Exhibit, own: Any, options: Options) -> int:
    """Make one table or figure."""
    output = exhibit.without_runs(own)
    if output is not None:
        for parameter in click.get_current_context().command.params:
            if parameter.name in OF_RUNS and options[parameter.name]:
                raise UsageError(f"{parameter.opts[0]} changes nothing here, because no runs are read; leave it out.")
        show(output, options)
        return COMPLETE
    return make(options, headline(exhibit), {exhibit: own})


def every_one() -> Requested:
    """Return what `all` makes: an exhibit with a profile of its own has data of its own too."""
    return {exhibit: exhibit.Options() for exhibit in all_exhibits() if exhibit.profile is None}


def selection_for(options: Options, requested: Requested) -> tuple[Selection, str]:
    """Return the selection, and how file names call its difference from the profile.

    A single exhibit may have a profile and datasets of its own where none are named.
    """
    if len(requested) != 1:
        selection = selection_of(options)
        return selection, selection.altered
    ((exhibit, own),) = requested.items()
    selection = selection_of(options, options["profile"] or exhibit.profile_for(own))
    altered = selection.altered
    if options["datasets"] is None:
        selection = exhibit.default_selection(selection, own, run_options(options))
    return selection, altered


def with_reference(exhibit: Exhibit, own: Any, methods: Sequence[str], entries: Iterable[Entry]) -> Any:
    """Return the exhibit's options with `--reference` as the name of a method; refuse one that is not among these."""
    from benchmark.config.selection import as_known

    if getattr(own, "reference", None) is None:  # the default one may be missing
        return own
    (reference,) = as_known((own.reference,), entries)
    if reference not in methods:
        raise UsageError(f"--reference {reference} is not among the methods of {exhibit.title}: {', '.join(methods)}.")
    return dataclasses.replace(own, reference=reference)


def needs_of(requested: Requested, selection: Selection) -> dict[Exhibit, RequiredRuns]:
    """Return the runs of each exhibit. Of several, one that these methods or data do not allow is left out."""
    needs = {}
    for exhibit, own in requested.items():
        try:
            needs[exhibit] = exhibit.required_runs(selection, own)
        except UsageError as error:
            if len(requested) == 1:
                raise
            print(f"{exhibit.name} is left out: {error}")
    return needs


def make(options: Options, title: str, requested: Requested) -> int:
    """Train the missing runs, except with --no-run, then make and write the exhibits."""
    selection, altered = selection_for(options, requested)
    announce(options, title, selection)
    entries = selection.catalogue.entries.values()
    requested = {each: with_reference(each, own, selection.methods, entries) for each, own in requested.items()}
    needs = needs_of(requested, selection)
    out = options.get("out")
    if not options["no_run"]:
        unique = {spec.digest: spec for need in needs.values() for spec in need.specs}
        if unique:
            train(options, selection, list(unique.values()))
        elif options["dry_run"]:
            print(f"Plan: {title} needs no training; candidate sets are built if they are missing.")
        sets = [spec for need in needs.values() for spec in need.sets]
        if not unique:
            say_weights(options, sets)
        if not options["dry_run"]:
            make_sets(options, sets)
    if options["dry_run"]:
        return COMPLETE
    complete = True
    for exhibit, required in needs.items():
        inputs = Inputs(selection, required, run_options(options))
        try:
            content = exhibit.make(inputs, requested[exhibit])
        except MissingRuns as error:
            if len(requested) == 1:
                raise
            print(f"Not drawn: {error}")
            complete = False
            continue
        stem = exhibit.stem(requested[exhibit], altered)
        show(Output(content, selection.profile.name, stem), options)
        figure = None if out is not None and out.suffix else exhibit.figure(inputs, requested[exhibit])
        if figure is not None:  # a file name with a suffix is the table's alone
            show(Output(figure, selection.profile.name, stem), options)
        complete &= content.complete if isinstance(content, rendering.Table) else not inputs.status.todo
    return COMPLETE if complete else INCOMPLETE


def sweep(options: Options, selection: Selection, text: str) -> int:
    """Train every value of `run --sweep`, then write their table and plot."""
    from benchmark.exhibits.parts.sweep import sweep_of, sweep_plot, sweep_table

    the_sweep = sweep_of(text, selection, options["methods"] is not None)
    announce(options, f"Sweep of {the_sweep.name}", selection)
    required = the_sweep.required_runs(selection)
    unique = {spec.digest: spec for spec in required.specs}
    code = report_failures(train(options, selection, list(unique.values())), options["quiet"])
    if options["dry_run"]:
        return code
    inputs = Inputs(selection, required, run_options(options))
    stem = file_name("-".join(["sweep", text, *([selection.altered] if selection.altered else [])]))
    table = sweep_table(the_sweep, inputs)
    show(Output(table, selection.profile.name, stem), options)
    if inputs.status.count("done"):
        show(Output(sweep_plot(the_sweep, inputs), selection.profile.name, stem), options)
    return code or (COMPLETE if table.complete else INCOMPLETE)


# Plots ----------------------------------------------------------------------------------------------------------------


def plot_of_profile(exhibit: Exhibit, own: Any, options: Options) -> int:
    """Draw a plot of the runs that a profile plans."""
    selection = selection_of(options, options["profile"] or exhibit.profile_for(own))
    own = with_reference(exhibit, own, selection.methods, selection.catalogue.entries.values())
    inputs = Inputs(selection, exhibit.required_runs(selection, own), run_options(options))
    show(Output(exhibit.make(inputs, own), selection.profile.name, exhibit.stem(own, selection.altered)), options)
    return COMPLETE


def plot_of_folder(exhibit: Curves, own: Any, options: Options) -> int:
    """Draw a plot of the stored runs."""
    from benchmark import store
    from benchmark.config.profile import profile_name
    from benchmark.config.selection import as_known, short_list
    from datasets.registry import SOURCES
    from methods.registry import discover

    results, profile = options["results"], options["profile"]
    frame = store.epoch_frame(store.current_runs(results, profile, options["plugins"]))
    if frame.empty:
        raise CandidError(f"There are no runs in {results}; train some first, for example `./reproduce.sh table2`.")
    entries = discover(options["plugins"], tolerant=True).entries.values()
    names_by_column: dict[str, tuple[str, ...]] = {}
    for column, registry in (("method", entries), ("dataset", SOURCES.values())):
        words = [word for word in (options[f"{column}s"] or "").split(",") if word]
        names = names_by_column[column] = as_known(words, registry)
        names_here = {*frame[column], *frame["label"]}
        unknown = [name for name in names if name not in names_here]
        if unknown:
            columns = ", ".join(sorted(set(frame[column])))
            raise UsageError(f"--{column}s: no run of '{unknown[0]}' in {results}; there are {columns}.")
        if names:
            frame = frame[frame[column].isin(names) | frame["label"].isin(names)]
    own = with_reference(exhibit, own, sorted(set(frame["method"])), entries)
    figure = exhibit.draw(frame, names_by_column["method"], {entry.name: entry.title for entry in entries}, own)
    altered = "-".join(short_list(names, f"{column}s") for column, names in names_by_column.items() if names)
    profiles = [profile] if profile else sorted(set(frame["profile"]))
    folder = profile_name(profiles[0]) if len(profiles) == 1 else "all"
    show(Output(figure, folder, exhibit.stem(own, altered)), options)
    return COMPLETE


# Files ----------------------------------------------------------------------------------------------------------------


def show(output: Output, options: Options) -> None:
    """Write an exhibit in all its formats, or as --out says; a table is also printed."""
    content, stem, out = output.content, output.stem, options.get("out")
    is_table = isinstance(content, rendering.Table)
    kind, suffixes = FILES[is_table]
    folder = options["results"] / kind / output.folder
    if out is not None:
        folder, stem = out.parent, out.name.removesuffix(out.suffix)
        suffixes = (out.suffix,) if out.suffix else suffixes
    elif options.get("size") and not is_table:
        stem = f"{stem}-{options['size']}"
    if isinstance(content, rendering.Table):
        print(rendering.to_text(content, colour=sys.stdout.isatty()))
    with shared.writing(folder / stem):
        write: Any = rendering.write if is_table else save
        paths = write(content, folder, stem, suffixes=suffixes)
    if is_table and not options.get("quiet"):
        print(f"Written: {folder / stem} ({', '.join(path.suffix for path in paths)})")
    for path in () if is_table else paths:
        print(f"Written: {path}")


def check_out(out: Path | None, exhibit: Exhibit) -> None:
    """Refuse an unknown format before anything trains."""
    kind, suffixes = FILES[exhibit.kind == "table"]
    if out is not None and out.suffix and out.suffix not in suffixes:
        raise UsageError(f"--out {out}: {kind} are written as {', '.join(suffixes)}; end the name in one, or in none.")


def commands() -> list[click.Command]:
    """Return the paper's tables and figures, `all`, and what goes beyond the paper."""
    exhibits = [exhibit for exhibit in all_exhibits() if exhibit.kind != "plot"]
    of_paper = [exhibit for exhibit in exhibits if exhibit.of_paper and exhibit.profile is None]
    others = sorted((exhibit for exhibit in exhibits if exhibit not in of_paper), key=lambda e: e.profile is None)
    return [*map(command_of, of_paper), every, *map(command_of, others)]
