"""Tables of results/reference as Markdown, for README.md and docs/evidence.md."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from benchmark.analysis.agreement import Agreement, count
from benchmark.analysis.table import Table, to_markdown
from benchmark.config.selection import select
from benchmark.exhibits.base import Exhibit, Material
from benchmark.exhibits.realworld import Realworld, agreements, number
from benchmark.exhibits.realworld import table as realworld_table
from benchmark.exhibits.realworld_all import RealworldAll
from benchmark.exhibits.table2 import Table2
from benchmark.exhibits.table3 import Table3
from benchmark.exhibits.table4 import Table4
from benchmark.files import ROOT
from benchmark.runner.options import RunOptions
from methods.registry import discover

PLACE = RunOptions(ROOT / "results" / "reference", ROOT / "data")
CHOSEN = Realworld.Options("l21,l21-mlp,x23")  # whose learning rates are not published
SETS = "lost,msrcv2,birdsong"


def made(exhibit: Exhibit, options: object, datasets: str | None = None) -> Material:
    """What an exhibit is made from: the reference runs, whatever data this machine has."""
    selection = select(str(exhibit.profile), datasets=datasets)
    return Material(selection, exhibit.runs(selection, options), PLACE)


@functools.cache
def found(options: Realworld.Options) -> list[Agreement]:
    """The numbers that finished runs stand beside."""
    return [one for one in agreements(made(Realworld(), options), options) if one.values]


def summary() -> str:
    """README: how many published numbers agree, source by source, and which do not."""
    known = found(Realworld.Options())
    lines = ["| source | network | methods | cells | agree | differ |", "|---|---|---|--:|--:|---|"]
    for source in dict.fromkeys(one.printed["source"] for one in known):
        cells = [one for one in known if one.printed["source"] == source and one.verdict in ("agrees", "differs")]
        if cells:
            lines.append(_line(source, cells))
    return f"**{count(known)}.**\n\n" + "\n".join(lines)


def _line(source: str, cells: Sequence[Agreement]) -> str:
    models = ", ".join(dict.fromkeys(one.printed["model"].split(" and ")[0] for one in cells))
    methods = ", ".join(dict.fromkeys(_as_here(one.printed) for one in cells))
    apart = [one for one in cells if one.verdict == "differs"]
    words = ", ".join(f"{o.printed['method']} on {o.printed['dataset']} ({number(o.difference)})" for o in apart)
    return f"| {source} | {models} | {methods} | {len(cells)} | {len(cells) - len(apart)} | {words or '–'} |"


def _as_here(printed: Mapping[str, Any]) -> str:
    """Return the source's name of a method, with ours where that is another one."""
    usual = discover().entries[printed["ours"]].title.lower() == printed["method"].lower()
    return printed["method"] + ("" if usual else f" (`{printed['ours']}`)")


def published_table(options: Realworld.Options) -> str:
    """docs/evidence.md: every number beside ours."""
    return _page(realworld_table(found(options)))


def all_methods() -> str:
    """docs/evidence.md: all methods under one protocol."""
    exhibit = RealworldAll()
    options = exhibit.Options()
    return _page(exhibit.make(made(exhibit, options, SETS), options))


def of_frozen(exhibit: Exhibit) -> Table:
    """A table of the paper on photographs, under the profile `frozen`."""
    selection, options = select("frozen"), exhibit.Options()
    made = exhibit.make(Material(selection, exhibit.runs(selection, options), PLACE), options)
    assert isinstance(made, Table)
    return made


def pictures() -> str:
    """README: accuracies on photographs in order, the paper's beside them; floor, ceiling and controls in their places."""
    entries = discover().entries
    records = sorted(of_frozen(Table2()).data, key=lambda record: -record["mean"])
    printed = {r["method"]: r["published_mean"] for r in records if "published_mean" in r}
    theirs = {name: rank for rank, name in enumerate(sorted(printed, key=lambda n: -printed[n]), 1)}
    ours = {name: rank for rank, name in enumerate((r["method"] for r in records if r["method"] in printed), 1)}
    lines = ["| method | here | rank | paper | rank |", "|---|--:|--:|--:|--:|"]
    for record in records:
        name = record["method"]
        own = f"{entries[name].title} | {record['mean']:.2f}±{record['std']:.2f}"
        beside = f"{ours[name]} | {printed[name]:.2f} | {theirs[name]}" if name in printed else "– | – | –"
        lines.append(f"| {own} | {beside} |")
    return "\n".join(lines)


def _page(table: Table) -> str:
    return to_markdown(table).strip()


PARTS = {  # marker in docs/evidence.md -> its content
    "published": lambda: published_table(Realworld.Options()),
    "chosen": lambda: published_table(CHOSEN),
    "all-methods": all_methods,
    "pictures-table2": lambda: _page(of_frozen(Table2())),
    "pictures-table3": lambda: _page(of_frozen(Table3())),
    "pictures-table4": lambda: _page(of_frozen(Table4())),
}
