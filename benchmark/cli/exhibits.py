"""`table1` … `fig6` and whatever else exhibits/ holds, and `all`: run what is missing, then write."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.analysis.table import Table
from benchmark.cli.options import TRAINING, Command, Request
from benchmark.cli.training import announce, make_sets, place_of, say_weights, selection_of, train
from benchmark.errors import COMPLETE, INCOMPLETE, CandidError, MissingRuns, UsageError
from benchmark.exhibits.base import Exhibit, Inputs, NoFlags, Output, RequiredRuns, all_exhibits

if TYPE_CHECKING:
    from benchmark.config.selection import Selection

Chosen = Mapping[Exhibit, Any]  # exhibits with their options
OF_RUNS = {
    "methods": "--methods",
    "datasets": "--datasets",
    "seeds": "--seeds",
    "settings": "--set",
    "epochs": "--epochs",
    "plugins": "--plugin",
}


def one(exhibit: Exhibit, request: Request, own: Any) -> int:
    """One table or figure."""
    output = exhibit.without_runs(own)
    if output is not None:
        for name, word in OF_RUNS.items():
            if getattr(request, name):
                raise UsageError(f"{word} changes nothing here, because no runs are read; leave it out.")
        show(output, request)
        return COMPLETE
    return make(under_its_profile(request, exhibit, own), exhibit.title[0].upper() + exhibit.title[1:], {exhibit: own})


def every(request: Request, own: NoFlags) -> int:
    """`all`: those that these data can have, the others are left out with a sentence."""
    return make(request, "Every table and figure", every_one())


def every_one() -> Chosen:
    """What `all` makes: an exhibit with a profile of its own has data of its own too."""
    return {exhibit: options for exhibit, options in with_defaults().items() if exhibit.profile is None}


def under_its_profile(request: Request, exhibit: Exhibit, options: Any) -> Request:
    """Use the default profile of an exhibit that has one, unless another is named."""
    profile = exhibit.profile_for(options)
    return request if request.profile or not profile else replace(request, profile=profile)


def with_defaults() -> Chosen:
    return {exhibit: exhibit.Options() for exhibit in all_exhibits()}


def selection_for(request: Request, chosen: Chosen) -> Selection:
    """What was typed; a single exhibit may have data sets of its own where none are named."""
    selection = selection_of(request)
    if request.datasets is None and len(chosen) == 1:
        ((exhibit, options),) = chosen.items()
        return exhibit.default_selection(selection, options, place_of(request))
    return selection


def with_known_reference(options: Any, selection: Selection) -> Any:
    """`--reference` in any case, as the name that it stands for."""
    if getattr(options, "reference", None) is None:
        return options
    return replace(options, reference=selection.known_as(options.reference))


def check_reference(exhibit: Exhibit, options: Any, methods: Sequence[str]) -> None:
    """Raise UsageError for a named reference that is not there; the usual one may be out of the selection."""
    reference = getattr(options, "reference", None)
    if reference is not None and reference not in methods:
        raise UsageError(f"--reference {reference} is not among the methods of {exhibit.title}: {', '.join(methods)}.")


def needs_of(chosen: Chosen, selection: Selection) -> dict[Exhibit, RequiredRuns]:
    """What each exhibit needs. Of several, one that these methods or data cannot have does not stop the others."""
    needs = {}
    for exhibit, options in chosen.items():
        if len(chosen) == 1:
            check_reference(exhibit, options, selection.methods)
        try:
            needs[exhibit] = exhibit.required_runs(selection, options)
        except UsageError as error:
            if len(chosen) == 1:
                raise
            print(f"{exhibit.name} is left out: {error}")
    return needs


def make(request: Request, title: str, chosen: Chosen) -> int:
    """Run what is missing, unless told not to, then make and write."""
    selection, altered = selection_for(request, chosen), selection_of(request).altered
    announce(request, title, selection)
    chosen = {exhibit: with_known_reference(options, selection) for exhibit, options in chosen.items()}
    needs = needs_of(chosen, selection)
    for exhibit in chosen:
        check_out(request.out, "tables" if exhibit.kind == "table" else "figures")
    if not request.no_run:
        unique = {spec.digest: spec for need in needs.values() for spec in need.specs}
        if unique:
            train(request, selection, list(unique.values()))
        elif request.dry_run:
            print(f"Plan: {title} needs no training; candidate sets are built if they are missing.")
        sets = [spec for need in needs.values() for spec in need.sets]
        if not unique:
            say_weights(request, sets)
        if not request.dry_run:
            make_sets(request, sets)
    if request.dry_run:
        return COMPLETE
    complete = not selection.unusable
    for exhibit, required in needs.items():
        inputs = Inputs(selection, required, place_of(request))
        try:
            content = exhibit.make(inputs, chosen[exhibit])
        except MissingRuns as error:
            if len(chosen) == 1:
                raise
            print(f"Not drawn: {error}")
            complete = False
            continue
        stem = exhibit.stem(chosen[exhibit], altered)
        show(Output(content, selection.profile.name, stem), request)
        named_file = request.out is not None and request.out.suffix  # of the table alone
        figure = None if named_file else exhibit.figure(inputs, chosen[exhibit])
        if figure is not None:
            show(Output(figure, selection.profile.name, stem), request)
        complete &= content.complete if isinstance(content, Table) else not inputs.status.todo
    return COMPLETE if complete else INCOMPLETE


def show(output: Output, request: Request) -> None:
    """Write an exhibit in all its forms; a table is also printed."""
    if not isinstance(output.content, Table):
        from benchmark.exhibits.parts.style import SUFFIXES, save

        folder, stem, forms = target(request, "figures", output, SUFFIXES)
        with writing(folder / stem):
            for path in save(output.content, folder, stem, suffixes=forms):
                print(f"Written: {path}")
        return
    from benchmark.analysis import table as rendering

    folder, stem, forms = target(request, "tables", output, rendering.SUFFIXES)
    print(rendering.to_text(output.content, colour=sys.stdout.isatty()))
    with writing(folder / stem):
        paths = rendering.write(output.content, folder, stem, forms)
    if not request.quiet:
        kinds = ", ".join(path.suffix for path in paths)
        print(f"Written: {folder / stem} ({kinds})")


@contextlib.contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn a full, read-only or forbidden disk into one sentence."""
    try:
        yield
    except OSError as error:
        raise CandidError(f"{target} cannot be written ({error.strerror}); name another place with --out.") from None


def check_out(out: Path | None, kind: str) -> None:
    """A form that there is not is refused before anything trains."""
    from benchmark.analysis import table as rendering
    from benchmark.exhibits.parts import style

    forms = rendering.SUFFIXES if kind == "tables" else style.SUFFIXES
    if out is not None and out.suffix and out.suffix not in forms:
        raise UsageError(f"--out {out}: {kind} are written as {', '.join(forms)}; end the name in one, or in none.")


def target(request: Request, kind: str, output: Output, forms: tuple[str, ...]) -> tuple[Path, str, tuple[str, ...]]:
    """Folder, name and forms of what is written: those of --out, or the usual place in the results folder."""
    out = request.out
    if out is None:
        return request.results / kind / output.folder, output.stem, forms
    check_out(out, kind)
    return out.parent, out.name.removesuffix(out.suffix), (out.suffix,) if out.suffix else forms


COMMANDS = (
    *(
        Command(
            exhibit.name,
            f"run what is missing for {exhibit.title}{' of the paper' * (exhibit.of_paper and exhibit.profile is None)}, then {'write' if exhibit.kind == 'table' else 'draw'} it",
            partial(one, exhibit),
            (*TRAINING, "no_run", "out"),
            exhibit.Options,
        )
        for exhibit in all_exhibits()
        if exhibit.kind != "plot"
    ),
    Command("all", "every table and figure", every, (*TRAINING, "no_run")),
)
