"""Generate the parts of the docs that follow from the code and the stored runs. Needs no torch.

python -m benchmark.tools.docs                          rewrite docs/tables and the marked parts of the pages
python -m benchmark.tools.docs --check                  exit 1 if one of them is stale
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmark.analysis.table import NONE
from benchmark.config.profile import load_profile
from benchmark.config.sections import SECTIONS, fields_of
from benchmark.files import ROOT, atomic_write
from benchmark.tools import evidence
from benchmark.tools.evidence import markdown
from methods.registry import Entry, discover

VECTORS = ROOT / "tests" / "vectors"
COST = ROOT / "docs" / "cost.json"  # {method: {seconds_per_step_relative_to_proden, measured, …}}
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


def renewed(text: str, parts: Mapping[str, Callable[[], str]]) -> str:
    """Return a page with the text between <!-- marker --> and <!-- /marker --> generated again."""
    for marker, content in parts.items():
        start, end = f"<!-- {marker} -->\n", f"\n<!-- /{marker} -->"
        part = start + content() + end
        text, count = re.subn(f"{start}.*?{end}", lambda _, part=part: part, text, flags=re.S)  # type: ignore[misc]
        if not count:
            raise ValueError(f"A page lacks the markers <!-- {marker} --> … <!-- /{marker} -->.")
    return text


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
    """Return the comments above and beside the fields of classes, by field."""
    fields = re.findall(r"((?:^ +# .*\n)*)^ +(\w+): [^#\n]*(?:# (.*))?$", source, flags=re.M)
    commented = [field for field in fields if field[0] or field[2]]
    return {name: " ".join([*re.findall(r"# (.*)", above), beside]).strip() for above, name, beside in commented}


def shown(value: Any) -> str:
    """Return a default as one would type it after `--set`."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def costs() -> dict[str, dict[str, Any]]:
    return json.loads(COST.read_text(encoding="utf-8"))


# Generated parts ----------------------------------------------------------------------------------------------------
def methods_table() -> str:
    """Return a line per method: views, cost, what it stores."""
    rows = []
    for entry in ordered():
        time = costs().get(entry.name, {}).get("seconds_per_step_relative_to_proden")
        link, views = f"[`{entry.name}`](#{section_of(entry)})", "+".join(entry.views)
        rows.append((link, entry.kind, views, entry.forwards, entry.state, NONE if time is None else f"{time:.2f}"))
    return markdown(("method", "type", "views", "passes", "state", "time"), rows)


def time_note() -> str:
    """Return what the column `time` of the methods is, with the days on which it was measured."""
    days = " and ".join(sorted({cost["measured"] for cost in costs().values()}))
    return (
        "* **time**: of a training step relative to PRODEN, on the small CNN and one CPU thread. "
        f"Measured on {days}, see [speed](speed.md)."
    )


def golden_note() -> str:
    """Return the numbers of golden cases."""
    manifests = [json.loads(path.read_text(encoding="utf-8")) for path in VECTORS.glob("*/manifest.json")]
    variants = Counter(case["variant"] for manifest in manifests for case in manifest["cases"])
    return (
        f"Losses, state updates, candidate rules and statistics match {variants.total()} golden cases to a relative 1e-6: "
        f"{variants['official']} from released code, {variants['paper']} from printed equations."
    )


def has_section(entry: Entry) -> bool:
    """Return whether docs/methods.md has a section on a method: it is neither a control nor a reference."""
    return entry.kind in ("PLL", "IDPLL")


def section_of(entry: Entry) -> str:
    """Return the anchor of docs/methods.md that describes a method."""
    return (entry.title if has_section(entry) else OTHERS).lower().replace(" ", "-")


def _source(entry: Entry) -> str:
    where = entry.file.relative_to(ROOT)
    return f"[{where.name}](../{where})"


def sections() -> str:
    """Return a section on every method but controls and references: citation, idea, main settings."""
    parts = []
    for entry in filter(has_section, ordered()):
        comments, settings = comments_of(entry.file.read_text(encoding="utf-8")), []
        for name in MAIN_SETTINGS.get(entry.name, tuple(entry.config)[:3]):
            note = f" ({comments[name].rstrip('.')})" if comments.get(name) else ""
            settings.append(f"`{name}={shown(entry.config[name].default)}`{note}")
        parts += [f"### {entry.title}", f"{citation(entry)} {_source(entry)}", " ".join(docstrings(entry)[1].split())]
        parts.append(f"Defaults: {', '.join(settings)}." if settings else "No settings.")
    return "\n\n".join(filter(None, parts))


def others() -> str:
    """Return a line per control and reference."""
    entries = (entry for entry in ordered() if not has_section(entry))
    return "\n".join(f"* `{entry.name}` ({_source(entry)}): {summary(entry)}." for entry in entries)


def step_table() -> str:
    """Return the speed of a training step as a share of the bare networks' speed, by method and network."""
    shares = {method: cost["bare_loop"] for method, cost in costs().items()}
    networks = list(next(iter(shares.values())))
    rows = [(method, *(f"{share[network]:.2f}" for network in networks)) for method, share in shares.items()]
    origins = sorted({f"{cost['measured']}: {cost['machine']}" for cost in costs().values()})
    return f"{markdown(('method', *networks), rows)}\n\nLast measured on {'; '.join(origins)}."


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
    return evidence.csv_text(rows, ("setting", "default", "may be", "meaning"))


PARTS: dict[Path, dict[str, Callable[[], str]]] = {  # page -> marker -> what is between it and its end
    ROOT / "README.md": {
        "quick-table": evidence.quick_table,
        "floor": evidence.floor_note,
        "pictures": evidence.photograph_extremes,
    },
    ROOT / "docs" / "evidence.md": {
        "realworld": evidence.agreement_summary,
        "chosen": evidence.chosen_summary,
        "all-methods": evidence.all_methods_summary,
        "selection": evidence.selection_study,
        "photographs": evidence.photograph_ranks,
    },
    ROOT / "docs" / "methods.md": {
        "methods": methods_table,
        "time": time_note,
        "golden": golden_note,
        "sections": sections,
        "others": others,
    },
    ROOT / "docs" / "speed.md": {"steps": step_table},
}


def main(argv: Sequence[str] | None = None) -> int:
    """Write the generated parts, or with --check compare them."""
    parser = argparse.ArgumentParser(prog="python -m benchmark.tools.docs", description="Generated parts of the docs.")
    parser.add_argument("--check", action="store_true", help="exit 1 if a generated part is stale")
    options = parser.parse_args(argv)
    contents = {
        **{page: renewed(page.read_text(encoding="utf-8"), parts) for page, parts in PARTS.items()},
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
