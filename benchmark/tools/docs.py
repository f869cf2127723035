"""Generate the parts of the docs that follow from the code and the stored runs. Needs no torch.

python -m benchmark.tools.docs                          rewrite docs/methods.md, docs/tables and the marked parts of other pages
python -m benchmark.tools.docs --check                  exit 1 if one of them is stale
"""

from __future__ import annotations

import argparse
import ast
import csv
import dataclasses
import inspect
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchmark.config.profile import load_profile
from benchmark.config.sections import SECTIONS, fields_of
from benchmark.files import ROOT, atomic_write
from benchmark.tools import evidence
from methods.registry import Entry, discover

README, METHODS, EVIDENCE = ROOT / "README.md", ROOT / "docs" / "methods.md", ROOT / "docs" / "evidence.md"
VECTORS = ROOT / "tests" / "vectors"
COST = ROOT / "docs" / "cost.json"  # {method: {seconds_per_step_relative_to_proden, measured, …}}
CURVES = (
    "![Test accuracy per epoch, profile quick: CEL, the best three, floor and ceiling](docs/images/curves-quick.png)"
)
NONE = "–"
NOTICE = "<!-- Written by `python -m benchmark.tools.docs`. Change the code, not this page. -->"
OTHERS = "Controls and references"  # heading of docs/methods.md
# The fields of Config that docs/methods.md describes; of a method that is not listed here, the first three.
MAIN_SETTINGS = {
    "cel": ("alpha", "beta", "warmup", "embedding_length"),
    "nepll": ("eta", "warmup", "expand"),
    "pop": ("warm_up", "roll_window", "theta", "purify_rule"),
    "idgp": ("alpha", "warm_up"),
    "able": ("temperature", "loss_weight", "embed_dim"),
    "valen": ("warmup", "beta", "gamma", "correct"),
    "pico": ("warmup", "contrast_weight", "queue_size"),
    "lws": ("lw", "init", "binary_loss"),
    "proden": ("update",),
    "papi": ("tau", "mixup_alpha", "rampup"),
    "crosel": ("warmup", "history", "threshold", "lambda_cr"),
    "cavl": ("outside",),
    "fredis": ("lam", "alpha", "warmup", "update_interval"),
    "solar": ("queue_size", "rho_end", "warmup", "estimate"),
}


# Markdown -----------------------------------------------------------------------------------------------------------
def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; bars inside cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def replaced(text: str, marker: str, content: str) -> str:
    """Replace the text between <!-- marker --> and <!-- /marker -->."""
    start, end = f"<!-- {marker} -->", f"<!-- /{marker} -->"
    before, opening, rest = text.partition(start)
    _, closing, after = rest.partition(end)
    if not opening or not closing:
        raise ValueError(f"A page lacks the markers {start} … {end}.")
    return f"{before}{start}\n{content}\n{end}{after}"


# Facts from the source ----------------------------------------------------------------------------------------------
def ordered() -> list[Entry]:
    """Return every built-in method: those of the paper in its order, controls and references, extensions, then the others."""
    profile = load_profile("paper")
    entries = {name: entry for name, entry in discover().entries.items() if entry.built_in}
    names = [*profile.with_extensions, *sorted(entries.keys() - set(profile.with_extensions))]
    return [entries[name] for name in names]


def docstrings(entry: Entry) -> tuple[str, str]:
    """Return the docstrings of a method's file and of its class."""
    tree = ast.parse(entry.file.read_text(encoding="utf-8"))
    node = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == entry.class_name)
    return ast.get_docstring(tree) or "", ast.get_docstring(node) or ""


def summary(entry: Entry) -> str:
    """Return one line on a method: from its class if it is a control, else from the head of the file."""
    of_file, of_class = docstrings(entry)
    line = (of_class if entry.kind == "control" else of_file).split("\n")[0].rstrip(".")
    for mark in (" — ", ": "):
        head, _, rest = line.partition(mark)
        if rest and head.lower() in (entry.title.lower(), entry.name):
            line = rest
    return line[:1].upper() + line[1:]


def citation(entry: Entry) -> str:
    """Return the reference of a method, or its summary if its file does not begin with 'summary, blank line, reference'.

    A reference reads "Authors: Title, Venue Year"; of the authors the first is named.
    """
    _, _, rest = docstrings(entry)[0].partition("\n\n")
    match = re.match(rf"([^,:]+), [^:]+: (.+?), {entry.venue} {entry.year}", " ".join(rest.split()))
    return f"{match[1]} et al.: {match[2]}, {entry.venue} {entry.year}." if match else f"{summary(entry)}."


def comments_of(source: str) -> dict[str, str]:
    """Return the comments above and beside every field of a class, by field."""
    fields = re.findall(r"((?:^ +# .*\n)*)^ +(\w+): [^#\n]*(?:# (.*))?$", source, flags=re.M)
    return {name: " ".join([*re.findall(r"# (.*)", above), beside]).strip() for above, name, beside in fields}


def config_comments(entry: Entry) -> dict[str, str]:
    """Return the comments on every Config field of a method's file; those of its own class take precedence."""
    source = entry.file.read_text(encoding="utf-8")
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    comments: dict[str, str] = {}
    for node in sorted(classes, key=lambda n: n.name == entry.class_name):
        for item in node.body:
            if isinstance(item, ast.ClassDef) and item.name == "Config":
                comments |= comments_of("\n".join(source.splitlines()[item.lineno : item.end_lineno]))
    return comments


def shown(value: Any) -> str:
    """Return a default as one would type it after `--set`."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def golden_cases() -> Counter[str]:
    """Return the numbers of golden cases by variant."""
    manifests = [json.loads(path.read_text(encoding="utf-8")) for path in VECTORS.glob("*/manifest.json")]
    return Counter(case["variant"] for manifest in manifests for case in manifest["cases"])


def costs() -> Mapping[str, Mapping[str, Any]]:
    return json.loads(COST.read_text(encoding="utf-8"))


# The pages ----------------------------------------------------------------------------------------------------------
def methods_page() -> str:
    """Return docs/methods.md."""
    entries, measured = ordered(), costs()
    head = ["method", "type", "views", "passes", "state", "time"]
    rows = []
    for entry in entries:
        time = measured.get(entry.name, {}).get("seconds_per_step_relative_to_proden")
        row = [
            f"[`{entry.name}`](#{section_of(entry)})",
            entry.kind,
            "+".join(entry.views),
            entry.forwards,
            entry.state,
            NONE if time is None else f"{time:.2f}",
        ]
        rows.append(row)
    dates = " and ".join(sorted({cost["measured"] for cost in measured.values()}))
    numbers = golden_cases()
    columns = [
        "* **type**: PLL and IDPLL as in the CEL paper. Controls and references are set apart in every table.",
        "* **views**: the [views](protocol.md#views) of an image that the method gets.",
        "* **passes**: forward passes of a whole network per sample and step.",
        "* **state**: what is stored besides network weights, for N samples and C classes.",
        "* **time**: of a training step relative to PRODEN, on the small CNN and one CPU thread. "
        f"Measured on {dates}, see [speed](speed.md).",
    ]
    parts = [
        "# Methods",
        NOTICE,
        "Look up what a method does, what it costs and which settings it has. The first thirteen are those of the CEL "
        "paper, the eight after the references are extensions. Every method is one file under `methods/`, which begins "
        "with reference and equations. See also [add a method](add-a-method.md).",
        table(head, rows),
        "\n".join(columns),
        f"Losses, state updates, candidate rules and statistics match {numbers.total()} golden cases to a relative 1e-6: "
        f"{numbers['official']} from released code, {numbers['paper']} from printed equations.",
        "## Settings",
        "Every field of a method's `Config` can be set in a profile or with `--set cel.alpha=0.1`. "
        "`./reproduce.sh list methods --json` prints all fields with types and defaults; the comments beside them in the "
        "source files say what they mean and where the values come from. The sections below list the most important ones. "
        "Warm-ups and ramps are fractions of training. [Paper and released code](protocol.md#paper-and-released-code) "
        "compares the readings.",
        *(_section(entry) for entry in entries if has_section(entry)),
        f"## {OTHERS}",
        "\n".join(_line(entry) for entry in entries if not has_section(entry)),
        "## Settings of every run",
        "[tables/settings.csv](tables/settings.csv) lists every setting with its default, its possible values and its meaning. Set "
        "it with `--set NAME=VALUE`, or in a profile.",
    ]
    return "\n\n".join(parts) + "\n"


def has_section(entry: Entry) -> bool:
    """Return whether docs/methods.md has a section on a method: it is neither a control nor a reference."""
    return entry.kind in ("PLL", "IDPLL")


def section_of(entry: Entry) -> str:
    """Return the anchor of docs/methods.md that describes a method."""
    return (entry.title if has_section(entry) else OTHERS).lower().replace(" ", "-")


def _source(entry: Entry) -> str:
    where = entry.file.relative_to(ROOT)
    return f"[{where.name}](../{where})"


def _section(entry: Entry) -> str:
    comments, settings = config_comments(entry), []
    for name in MAIN_SETTINGS.get(entry.name, tuple(entry.config)[:3]):
        note = f" ({comments[name].rstrip('.')})" if comments.get(name) else ""
        settings.append(f"`{name}={shown(entry.config[name].default)}`{note}")
    idea = " ".join(docstrings(entry)[1].split())
    defaults = f"Defaults: {', '.join(settings)}." if settings else "No settings."
    return "\n\n".join(filter(None, [f"### {entry.title}", f"{citation(entry)} {_source(entry)}", idea, defaults]))


def _line(entry: Entry) -> str:
    return f"* `{entry.name}` ({_source(entry)}): {summary(entry)}."


def settings_csv() -> str:
    """Return every setting of a run as CSV, from the sections of the configuration and the comments beside fields."""
    rows = []
    for name, section in SECTIONS.items():
        comments = comments_of(inspect.getsource(section))
        for field in dataclasses.fields(section):
            rule, kind = field.metadata.get("rule"), fields_of(section)[field.name].annotation
            choices = re.fullmatch(r"Literal\[(.*)\]", kind)
            values = f"one of {choices[1]}".replace("'", "") if choices else rule.text if rule else kind
            default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
            rows.append([f"{name}.{field.name}", default or "empty", values, comments.get(field.name, "")])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["setting", "default", "may be", "meaning"], *rows])
    return text.getvalue()


def readme(text: str) -> str:
    """Return README.md with its generated parts renewed."""
    for marker, content in (
        ("curves", CURVES),
        ("quick-table", evidence.quick_table()),
        ("floor", evidence.floor_note()),
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
    """Write the generated parts, or with --check compare them."""
    parser = argparse.ArgumentParser(prog="python -m benchmark.tools.docs", description="Generated parts of the docs.")
    parser.add_argument("--check", action="store_true", help="exit 1 if a generated part is stale")
    options = parser.parse_args(argv)
    contents = {
        METHODS: methods_page(),
        README: readme(README.read_text(encoding="utf-8")),
        EVIDENCE: evidence_page(),
        **{evidence.TABLES / name: content() for name, content in evidence.FILES.items()},
        evidence.TABLES / "settings.csv": settings_csv(),
    }
    stale = [p for p, text in contents.items() if not p.is_file() or p.read_text(encoding="utf-8") != text]
    for path in stale:
        if options.check:
            print(f"{path.relative_to(ROOT)} is stale; run `python -m benchmark.tools.docs`.")
        else:
            atomic_write(path, contents[path])
            print(f"Written: {path.relative_to(ROOT)}")
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
