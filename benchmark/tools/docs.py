"""Writes the parts of the docs that the code already knows, so that they cannot drift. Needs no torch.

python -m benchmark.tools.docs                          rewrite docs/methods.md, docs/tables and the marked parts of other pages
python -m benchmark.tools.docs --check                  exit 1 if one of them is stale
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchmark.config.profile import load_profile
from benchmark.config.sections import SECTIONS, fields_of
from benchmark.files import ROOT, atomic_write
from benchmark.tools import evidence
from datasets.base import Source
from datasets.registry import SOURCES
from methods.registry import Entry, Setting, discover

README, METHODS, EVIDENCE = ROOT / "README.md", ROOT / "docs" / "methods.md", ROOT / "docs" / "evidence.md"
OWN_DATA = ROOT / "docs" / "own-data.md"
VECTORS = ROOT / "tests" / "vectors"
COST = ROOT / "docs" / "cost.json"  # {method: {seconds_per_step_relative_to_proden, measured, …}}
CURVES = (
    "![Test accuracy per epoch of all methods, profile quick, bands over three seeds](docs/images/curves-quick.png)"
)
NONE = "–"
NOTICE = "<!-- Written by `python -m benchmark.tools.docs`. Change the code, not this page. -->"


# Markdown -----------------------------------------------------------------------------------------------------------
def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; bars inside cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def replaced(text: str, marker: str, content: str) -> str:
    """`text` with what stands between <!-- marker --> and <!-- /marker --> replaced."""
    start, end = f"<!-- {marker} -->", f"<!-- /{marker} -->"
    before, found, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"A page lacks the markers {start} … {end}.")
    return f"{before}{start}\n{content}\n{end}{after}"


# What the source says -----------------------------------------------------------------------------------------------
def ordered() -> list[Entry]:
    """Every method of the tree: the paper's in the paper's order, its controls and references, the extensions, then the others."""
    profile = load_profile("paper")
    entries = {name: entry for name, entry in discover().entries.items() if entry.built_in}
    known = [entries[name] for name in profile.with_extensions]
    return known + [entry for name, entry in sorted(entries.items()) if name not in profile.with_extensions]


def summary(entry: Entry) -> str:
    """One line on a method: from its class when the file holds several, else from the head of the file."""
    tree = ast.parse(entry.file.read_text(encoding="utf-8"))
    own = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == entry.class_name)
    text = ast.get_docstring(own) if entry.kind == "control" else ast.get_docstring(tree)
    line = (text or "").split("\n")[0].rstrip(".")
    for mark in (" — ", ": "):
        head, found, rest = line.partition(mark)
        if found and head.lower() in (entry.title.lower(), entry.name):
            line = rest
    return line[:1].upper() + line[1:]


def notes(entry: Entry) -> dict[str, str]:
    """The comment beside or above every Config field of a file; those of the method's own class win."""
    source = entry.file.read_text(encoding="utf-8")
    comments = {
        token.start[0]: (token.start[1], token.string.lstrip("# ").strip())
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    lines = source.splitlines()
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    found: dict[str, str] = {}
    for node in sorted(classes, key=lambda n: n.name == entry.class_name):
        config = next((i for i in node.body if isinstance(i, ast.ClassDef) and i.name == "Config"), None)
        for item in config.body if config is not None else []:
            if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
                continue
            first = item.lineno
            while lines[first - 2].lstrip().startswith("#"):
                first -= 1
            inside = [comments[k][1] for k in range(first, (item.end_lineno or item.lineno) + 1) if k in comments]
            found[item.target.id] = " ".join(inside)
    return found


def type_of(setting: Setting) -> str:
    """`float`, or the choices of a Literal."""
    node = ast.parse(setting.annotation, mode="eval").body
    if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "Literal":
        choices = ast.literal_eval(node.slice)
        return ", ".join(f"`{c}`" for c in (choices if isinstance(choices, tuple) else (choices,)))
    return f"`{setting.annotation}`"


def shown(value: Any) -> str:
    """A default as one would type it after `--set`."""
    return f"`{value:.6g}`" if isinstance(value, float) else f"`{value}`"


def cases(subject: str) -> Counter[str]:
    """Golden cases by variant; empty where there is no manifest."""
    manifest = VECTORS / subject / "manifest.json"
    if not manifest.is_file():
        return Counter()
    return Counter(case["variant"] for case in json.loads(manifest.read_text(encoding="utf-8"))["cases"])


def cases_text(subject: str) -> str:
    found = cases(subject)
    parts = ", ".join(f"{found[kind]} {kind}" for kind in ("official", "paper") if found[kind])
    return f"{found.total()} ({parts})" if found else NONE


def costs() -> Mapping[str, Mapping[str, Any]]:
    return json.loads(COST.read_text(encoding="utf-8"))


# The pages ----------------------------------------------------------------------------------------------------------
def methods_page() -> str:
    """docs/methods.md."""
    entries, measured = ordered(), costs()
    head = [
        "name",
        "title",
        "venue",
        "year",
        "type",
        "views",
        "forward passes",
        "extra state",
        "conformance cases",
        "time per step",
    ]
    rows = []
    for entry in entries:
        time = measured.get(entry.name, {}).get("seconds_per_step_relative_to_proden")
        row = [
            f"[`{entry.name}`](#{entry.name})",
            entry.title,
            entry.venue,
            str(entry.year or NONE),
            entry.kind,
            ", ".join(entry.views),
            entry.forwards,
            entry.state,
            cases_text(entry.file.stem) if entry.kind in ("PLL", "IDPLL") else NONE,
            NONE if time is None else f"{time:.2f} ×",
        ]
        rows.append(row)
    dates = " and ".join(sorted({cost["measured"] for cost in measured.values()}))
    total = sum(cases(path.parent.name).total() for path in VECTORS.glob("*/manifest.json"))
    shared = " and ".join(f"{cases(name).total()} on the {what}" for name, what in SHARED.items())
    reading = [
        "* **type**: PLL and IDPLL as in the CEL paper; controls and references stand apart in every table.",
        "* **views**: what the method is handed of each image; see [views](protocol.md#views).",
        "* **forward passes**: of a whole network, per sample and step, with or without gradient.",
        "* **extra state**: what it keeps besides network weights. N samples, C classes.",
        f"* **conformance cases**: golden numbers in `tests/vectors` that its functions must meet at a relative 1e-6. "
        f"`official` comes from the released code, `paper` from a naive loop over the printed equation. "
        f"There are {total} in all, with {shared}. Controls share the cases of the method that they vary.",
        "* **time per step** is relative to PRODEN's, on the small network of `quick` and in processor time. "
        f"Measured on {dates}, see [speed](speed.md).",
    ]
    parts = [
        "# Methods",
        NOTICE,
        "Each method is one file under `methods/`. Add your own as in [add a method](add-a-method.md).",
        table(head, rows),
        "\n".join(reading),
        "## Settings",
        "Every field can be set on the command line, `--set cel.alpha=0.1`, or in a profile. Warm-ups and ramps are "
        "fractions of training. The notes are comments of the source; [protocol](protocol.md) explains what differs "
        "from paper or release.",
        *map(_section, entries),
    ]
    return "\n\n".join(parts) + "\n"


SHARED = {"candidates": "candidate rules", "statistics": "statistics"}


def _section(entry: Entry) -> str:
    where = entry.file.relative_to(ROOT)
    lines = [f"### {entry.name}", f"{summary(entry)}. Source: [`{where}`](../{where})."]
    if not entry.config:
        return "\n\n".join([*lines, "No settings."])
    comments = notes(entry)
    rows = [
        [f"`{name}`", type_of(setting), shown(setting.default), comments.get(name, "")]
        for name, setting in entry.config.items()
    ]
    return "\n\n".join([*lines, table(["field", "type", "default", "note"], rows)])


def method_list() -> str:
    """README's list of methods."""
    rows = [
        [
            f"[`{e.name}`](docs/methods.md#{e.name})",
            e.kind,
            f"{e.venue} {e.year}" if e.year and e.kind != "control" else NONE,
            summary(e),
        ]
        for e in ordered()
    ]
    return table(["name", "type", "venue", "what"], rows)


def dataset_list() -> str:
    """README's list of data sets."""
    return table(["name", "group", "train / test", "classes"], [_dataset_row(source) for source in SOURCES.values()])


def _dataset_row(source: Source) -> list[str]:
    sizes = f"{source.train_size:,} / {source.test_size:,}" if source.train_size and source.test_size else NONE
    return [f"`{source.name}`", source.group, sizes, str(source.num_classes or NONE)]


def settings_table() -> str:
    """docs/own-data.md: every setting of a run, from the sections of the configuration and the comments beside fields."""
    rows = []
    for name, section in SECTIONS.items():
        comments = dict(re.findall(r"^\s+(\w+): .*?  # (.*)$", inspect.getsource(section), flags=re.M))
        for field in dataclasses.fields(section):
            rule, kind = field.metadata.get("rule"), fields_of(section)[field.name].annotation
            choices = re.fullmatch(r"Literal\[(.*)\]", kind)
            values = f"one of {choices[1]}".replace("'", "") if choices else rule.text if rule else kind
            default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
            rows.append([f"`{name}.{field.name}`", default or "empty", values, comments.get(field.name, "")])
    return table(["setting", "default", "may be", "meaning"], rows)


def readme(text: str) -> str:
    """README.md with its generated parts renewed."""
    for marker, content in (
        ("methods", method_list()),
        ("datasets", dataset_list()),
        ("curves", CURVES),
        ("realworld", evidence.agreement_summary()),
        ("pictures", evidence.photographs()),
    ):
        text = replaced(text, marker, content)
    return text


def evidence_page() -> str:
    """Return docs/evidence.md with its tables renewed."""
    text = EVIDENCE.read_text(encoding="utf-8")
    for marker, content in evidence.PARTS.items():
        text = replaced(text, marker, content())
    return text


def main(argv: Sequence[str] | None = None) -> int:
    """Write, or with --check compare."""
    options = argparse.ArgumentParser(prog="python -m benchmark.tools.docs", description="Generated parts of the docs.")
    options.add_argument("--check", action="store_true", help="exit 1 if a generated part is stale")
    arguments = options.parse_args(argv)
    wanted = {
        METHODS: methods_page(),
        README: readme(README.read_text(encoding="utf-8")),
        EVIDENCE: evidence_page(),
        OWN_DATA: replaced(OWN_DATA.read_text(encoding="utf-8"), "settings", settings_table()),
        **{evidence.TABLES / name: content() for name, content in evidence.FILES.items()},
    }
    stale = [p for p, text in wanted.items() if not p.is_file() or p.read_text(encoding="utf-8") != text]
    for path in stale:
        if arguments.check:
            print(f"{path.relative_to(ROOT)} is stale; run `python -m benchmark.tools.docs`.")
        else:
            atomic_write(path, wanted[path])
            print(f"Written: {path.relative_to(ROOT)}")
    return int(arguments.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
