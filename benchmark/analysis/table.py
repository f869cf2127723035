"""A table as an object, and its renderings: aligned text, Markdown, CSV, LaTeX (booktabs), JSON.

Displayed rows are strings with marks. Numbers in full precision, with per-seed values, are in `Table.data`; CSV and JSON
are written from there, so nothing has to be read back out of a rendered cell.
"""

from __future__ import annotations

import csv
import io
import json
import math
import textwrap
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.files import atomic_write

NONE = "–"


@dataclass(frozen=True)
class Cell:
    """Displayed cell: `bold` marks the best, `underline` the second best."""

    text: str
    bold: bool = False
    underline: bool = False


@dataclass(frozen=True)
class Row:
    """Displayed line; `rule` draws a line above it."""

    cells: tuple[Cell, ...]
    rule: bool = False


@dataclass(frozen=True)
class Table:
    """Table that a command prints and writes; `complete` is false if any run is missing."""

    title: str  # "Table 2"
    caption: str
    columns: Sequence[str]
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    problems: Sequence[str] = ()  # runs without a result and why, one line per cell
    data: Sequence[Mapping[str, Any]] = ()  # one record per measured or compared cell
    summary: Mapping[str, Any] = field(default_factory=dict)  # of the whole table: test, alpha, profile …
    complete: bool = True
    text_columns: int = 1  # columns from the left that hold words and are aligned left
    origin: str = ""  # profile, seeds and device: a note, and in LaTeX a comment

    @property
    def heading(self) -> str:
        return f"{self.title}. {self.caption}" if self.title else self.caption

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes and problems, printed below the table."""
        return (*self.notes, *self.problems)

    @property
    def footnotes(self) -> tuple[str, ...]:
        """Remarks and the origin, printed below the table."""
        return (*self.remarks, self.origin) if self.origin else self.remarks


def row(*values: str | Cell, rule: bool = False) -> Row:
    """Return a row of texts and cells."""
    return Row(tuple(v if isinstance(v, Cell) else Cell(v) for v in values), rule)


# text ---------------------------------------------------------------------------------------------------------------
def _width(text: str) -> int:
    """Return the number of columns that a string takes on a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _plain(cell: Cell) -> str:
    return f"*{cell.text}*" if cell.bold else f"_{cell.text}_" if cell.underline else cell.text


def _ansi(cell: Cell, text: str) -> str:
    code = "1" if cell.bold else "4" if cell.underline else ""
    return text.replace(cell.text, f"\x1b[{code}m{cell.text}\x1b[0m", 1) if code and cell.text else text


def padded(rows: Sequence[Sequence[str]], text_columns: int | None = None) -> list[list[str]]:
    """Pad texts to the width of their columns: words on the left, numbers on the right.

    The first `text_columns` contain words, by default all.
    """
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]

    def pad(text: str, i: int) -> str:
        gap = " " * (widths[i] - _width(text))
        return text + gap if text_columns is None or i < text_columns else gap + text

    return [[pad(text, i) for i, text in enumerate(texts)] for texts in rows]


def aligned(rows: Sequence[Sequence[str]], text_columns: int | None = None) -> list[str]:
    """Return rows as lines of aligned columns."""
    return ["  ".join(texts).rstrip() for texts in padded(rows, text_columns)]


def to_text(table: Table, colour: bool = False) -> str:
    """Return aligned text for a terminal: best *so* and second best _so_, or bold and underlined with `colour`."""
    show = (lambda cell: cell.text) if colour else _plain
    head, *body = padded([table.columns, *([show(c) for c in r.cells] for r in table.rows)], table.text_columns)
    line = "─" * _width("  ".join(head))
    wrap = max(len(line), 80)  # the caption of a narrow table is wider than the table
    out = [*textwrap.wrap(table.heading, wrap), line, "  ".join(head).rstrip(), line]
    for source, texts in zip(table.rows, body, strict=True):
        if source.rule:
            out.append(line)
        if colour:
            texts = [_ansi(c, t) for c, t in zip(source.cells, texts, strict=True)]
        out.append("  ".join(texts).rstrip())
    out.append(line)
    marked = any(c.bold or c.underline for r in table.rows for c in r.cells)
    legend = ["Plain text shows bold as *bold* and underlined as _underlined_."] if marked and not colour else []
    for note in [*legend, *table.footnotes]:
        out += textwrap.wrap(f"• {note}", wrap, subsequent_indent="  ")
    return "\n".join(out) + "\n"


# Markdown -----------------------------------------------------------------------------------------------------------
def _markdown_escape(text: str) -> str:
    for character in "\\`*_|<>[]":
        text = text.replace(character, "\\" + character)
    return text.replace("\n", " ")


def _markdown_cell(cell: Cell) -> str:
    text = _markdown_escape(cell.text)
    return f"**{text}**" if cell.bold else f"<u>{text}</u>" if cell.underline else text


def to_markdown(table: Table) -> str:
    """Return GitHub Markdown; `<u>` marks the second best, and an empty row separates sections."""
    aligns = [":--" if i < table.text_columns else "--:" for i in range(len(table.columns))]
    lines = [
        _markdown_escape(table.heading),
        "",
        _markdown_row(map(_markdown_escape, table.columns)),
        _markdown_row(aligns),
    ]
    for r in table.rows:
        if r.rule:
            lines.append(_markdown_row(" " for _ in table.columns))
        lines.append(_markdown_row(map(_markdown_cell, r.cells)))
    if table.footnotes:
        lines += ["", *(f"* {_markdown_escape(note)}" for note in table.footnotes)]
    return "\n".join(lines) + "\n"


def _markdown_row(texts: Any) -> str:
    return "| " + " | ".join(texts) + " |"


# LaTeX --------------------------------------------------------------------------------------------------------------
_LATEX = {
    **{c: "\\" + c for c in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    '"': "''",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "—": "---",
    "×": r"$\times$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "°": r"$^\circ$",
    "★": r"$\star$",
    "•": r"$\bullet$",
    "→": r"$\to$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "≠": r"$\ne$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "γ": r"$\gamma$",
    "Δ": r"$\Delta$",
    "…": r"\ldots{}",
    "’": "'",
    "“": "``",
    "”": "''",
    "₁": "$_1$",
    "₂": "$_2$",
}


def latex_escape(text: str) -> str:
    """Return text for bare LaTeX: symbols as mathematics, accents dropped, anything unknown as a question mark."""
    out = []
    for c in text:
        if c in _LATEX:
            out.append(_LATEX[c])
        elif c.isascii():
            out.append(" " if c.isspace() else c)
        else:
            plain = unicodedata.normalize("NFKD", c).encode("ascii", "ignore").decode()
            out.append("".join(_LATEX.get(p, p) for p in plain) or "?")
    return "".join(out)


_ONE_COLUMN = [r"\small", r"\setlength{\tabcolsep}{4pt}"]


def _latex_cell(cell: Cell) -> str:
    text = latex_escape(cell.text)
    return rf"\textbf{{{text}}}" if cell.bold else rf"\underline{{{text}}}" if cell.underline else text


def to_latex(table: Table, label: str = "") -> str:
    """Return a table environment that needs only `\\usepackage{booktabs}`."""
    aligns = "".join("l" if i < table.text_columns else "r" for i in range(len(table.columns)))
    lines = [
        rf"% {latex_escape(table.title)}. Needs \usepackage{{booktabs}}.",
        *([f"% {latex_escape(table.origin)}"] if table.origin else []),
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{latex_escape(table.caption)}}}",
        *([rf"\label{{{label}}}"] if label else []),
        # A table with two datasets fits one column of a two-column page.
        *([r"\scriptsize", r"\setlength{\tabcolsep}{3pt}"] if len(table.columns) > 6 else _ONE_COLUMN),
        rf"\begin{{tabular}}{{{aligns}}}",
        r"\toprule",
        " & ".join(latex_escape(c) for c in table.columns) + r" \\",
        r"\midrule",
    ]
    for r in table.rows:
        if r.rule:
            lines.append(r"\midrule")
        # Without the empty group, a first cell that starts with "[" would be an argument of the line break before it.
        lines.append("{}" + " & ".join(map(_latex_cell, r.cells)) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    if table.remarks:
        lines += ["", r"\smallskip", r"\begin{minipage}{\linewidth}", r"\raggedright"]
        lines += [latex_escape(note) + r"\par" for note in table.remarks]
        lines.append(r"\end{minipage}")
    lines.append(r"\end{table}")
    return "\n".join(lines) + "\n"


# data ---------------------------------------------------------------------------------------------------------------
PER_SEED = {
    "values": "accuracy",
    "covering_rates": "covering_rate",
    "reference_values": "reference_accuracy",
    "method_values": "method_accuracy",
}
PRINTED = (*PER_SEED.values(), "mean", "std", "mean_difference")  # beside the full number, the one that a table shows


def to_csv(table: Table) -> str:
    """Return the records as CSV, a line per seed where they have seeds; blanks separate lists, missing values are empty."""
    lines = [line for record in table.data for line in _by_seed(record)]
    columns = list(dict.fromkeys(key for line in lines for key in line))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _csv_value(value) for key, value in line.items()} for line in lines)
    return out.getvalue()


def _by_seed(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a record once per seed, or once without seeds, with numbers in full and as printed."""
    split = {key: record[key] for key in PER_SEED if isinstance(record.get(key), Mapping)}
    rest = {key: value for key, value in record.items() if key not in split}
    seeds = list(dict.fromkeys(seed for values in split.values() for seed in values))
    for seed in seeds or [None]:
        line = {**rest, **({"seed": seed} if split else {})}
        line |= {PER_SEED[key]: values.get(seed) for key, values in split.items()}
        numbers = {key: line[key] for key in PRINTED if isinstance(line.get(key), float) and math.isfinite(line[key])}
        yield line | {f"{key}_printed": f"{value:.2f}" for key, value in numbers.items()}


def _csv_value(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, Mapping):
        return " ".join(f"{k}:{_csv_value(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return " ".join(_csv_value(v) for v in value)
    return repr(float(value)) if isinstance(value, float) else str(value)


def _json_value(value: Any) -> Any:
    """Return a value as JSON can store it: nan becomes null, infinity its name."""
    if isinstance(value, Mapping):
        return {str(k): _json_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return None if math.isnan(value) else value if math.isfinite(value) else ("inf" if value > 0 else "-inf")
    return value


def to_json(table: Table) -> str:
    """Return the whole table as JSON, in full precision."""
    content = {
        "caption": table.heading,
        "complete": table.complete,
        "summary": table.summary,
        "columns": table.columns,
        "rows": [[vars(c) for c in r.cells] for r in table.rows],
        "notes": table.footnotes,
        "data": table.data,
    }
    return json.dumps(_json_value(content), ensure_ascii=False, indent=1, allow_nan=False) + "\n"


SUFFIXES = (".md", ".csv", ".tex", ".json")


def write(table: Table, folder: str | Path, stem: str, suffixes: Sequence[str] = SUFFIXES) -> list[Path]:
    """Write `stem` in these forms into `folder`, each atomically; returns their paths."""
    forms = {".md": to_markdown, ".csv": to_csv, ".tex": lambda t: to_latex(t, f"tab:{stem}"), ".json": to_json}
    paths = []
    for suffix in suffixes:
        path = Path(folder) / f"{stem}{suffix}"
        atomic_write(path, forms[suffix](table))
        paths.append(path)
    return paths
