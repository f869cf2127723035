"""Styles of figures and their files. matplotlib is imported on first use; no torch.

A method has the same colour, line style and marker in every figure. Colours are from Okabe and Ito's and Tol's
colour-blind-safe sets; line styles and markers tell the methods apart in grey print.
"""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import io
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.errors import MissingRuns
from benchmark.files import atomic_write

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Style:
    """Colour, line style and marker of a method."""

    colour: str
    line: Any
    marker: str


DASH, DOT, DASH_DOT, LONG = (0, (4, 1.5)), (0, (1, 1.3)), (0, (5, 1.5, 1, 1.5)), (0, (8, 2))
STYLES = {
    "cel": Style("#D55E00", "-", "o"),
    "dirk": Style("#0072B2", DASH, "s"),
    "nepll": Style("#009E73", DASH_DOT, "^"),
    "pop": Style("#AA4499", LONG, "D"),
    "idgp": Style("#56B4E9", "-", "v"),
    "able": Style("#882255", DOT, "P"),
    "valen": Style("#999933", DASH, "X"),
    "pico": Style("#332288", "-", "<"),
    "cr-dpll": Style("#CC79A7", DASH_DOT, ">"),
    "lws": Style("#117733", LONG, "p"),
    "proden": Style("#000000", DASH, "h"),
    "rc": Style("#B8860B", DOT, "*"),
    "cc": Style("#666666", "-", "d"),
    "papi": Style("#44AA99", "-", "H"),
    "crosel": Style("#8C564B", DASH, "8"),
    "cavl": Style("#AA3377", DOT, "x"),
    "abs-mae": Style("#6699CC", LONG, "3"),
    "abs-gce": Style("#9B51E0", DASH_DOT, "4"),
    "alim": Style("#CC3311", DASH_DOT, "+"),
    "fredis": Style("#8FA600", DASH, "|"),
    "solar": Style("#E69F00", LONG, "."),
    "average": Style("#5A5A5A", DOT, "1"),
    "supervised": Style("#222222", LONG, "2"),
}
# For plug-ins, variants and the rest: none of the colours above.
_OTHER_COLOURS = (
    "#9467BD", "#EE44BB", "#C5B000", "#7570B3", "#E7298A", "#66A61E", "#17BECF", "#A50026", "#4D4DFF", "#B15928",
)  # fmt: skip
_OTHER_LINES = ("-", DASH, DOT, DASH_DOT, LONG)
_OTHER_MARKERS = ("o", "s", "^", "v", "D", "P", "X", "h")

RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "axes.edgecolor": "#555555",
    "axes.linewidth": 0.8,
    "xtick.color": "#333333",
    "ytick.color": "#333333",
    "legend.frameon": False,
    "pdf.fonttype": 42,
}


def styles_of(names: Iterable[str]) -> dict[str, Style]:
    """Return styles of methods and of labels such as "cel[beta=0]" in one figure: fixed, or else from a digest of the name.

    No two are alike in colour and line, and no colour appears twice while there are others.
    """
    styles: dict[str, Style] = {}
    for name in sorted(set(names)):
        turn = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
        looks = [Style(c, line, _OTHER_MARKERS[turn % 8]) for line in _OTHER_LINES for c in _OTHER_COLOURS]
        looks = [*looks[turn % len(looks) :], *looks[: turn % len(looks)]]
        colours = {style.colour for style in styles.values()}
        pairs = {(style.colour, str(style.line)) for style in styles.values()}
        new_colours = [look for look in looks if look.colour not in colours]
        new_pairs = [look for look in looks if (look.colour, str(look.line)) not in pairs]
        styles[name] = STYLES.get(name) or (new_colours or new_pairs or looks)[0]
    return styles


UNDATED: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
SUFFIXES = tuple(UNDATED)


def save(figure: Figure, folder: Path, stem: str, dpi: int = 150, suffixes: Sequence[str] = SUFFIXES) -> list[Path]:
    """Write `stem` in these forms atomically, without dates in them: the same figure gives the same bytes."""
    paths = []
    for suffix in suffixes:
        buffer = io.BytesIO()
        figure.savefig(buffer, format=suffix[1:], dpi=dpi, metadata=UNDATED[suffix])
        # Not with_suffix: the stem may hold a rate such as 0.1, whose decimals would be taken for a suffix.
        paths.append(folder / f"{stem}{suffix}")
        atomic_write(paths[-1], buffer.getvalue())
    return paths


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Let matplotlib use the settings of `RC`; `@styled()` decorates a function that draws."""
    from matplotlib import rc_context

    with rc_context(RC):
        yield


WIDTHS = {"column": 3.35, "page": 6.9}  # inches: one column and the whole width of a two-column page
_size: contextvars.ContextVar[str | None] = contextvars.ContextVar("size", default=None)


@contextlib.contextmanager
def sized(size: str | None) -> Iterator[None]:
    """Draw the figures of this context as wide as a column or a page of a paper; None for the screen."""
    token = _size.set(size)
    try:
        yield
    finally:
        _size.reset(token)


def panels_per_row(count: int, most: int = 2, in_column: int = 1) -> int:
    """Return how many of `count` panels stand side by side, on the screen or a page and in a column of a paper."""
    return min(in_column if _size.get() == "column" else most, count)


def canvas(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Figure, np.ndarray]:
    """Return a figure without pyplot's global state, and its axes (rows, columns); `width` is that on the screen."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTHS.get(_size.get() or "", width), height), layout="constrained")
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.set(w_pad=0.09, h_pad=0.06)  # type: ignore[call-arg]
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def is_for_paper() -> bool:
    """Say whether the figure has the width of a column or page of a paper."""
    return _size.get() is not None


def footnote(figure: Figure, text: str) -> None:
    """Write small grey text below a figure, in lines that fit its width."""
    characters = int(figure.get_figwidth() * 72 / (0.58 * FOOTNOTE))  # a character of DejaVu Sans is 0.58 em wide
    look: dict[str, Any] = {"fontsize": FOOTNOTE, "color": "#666666", "ha": "right", "multialignment": "left"}
    figure.supxlabel(textwrap.fill(text, characters), x=0.99, **look)


FOOTNOTE = 7  # points
FADED, FADED_TEXT = "#B8B8B8", "#707070"  # curves in the background and their names


def mean_and_band(axes: Axes, x: np.ndarray, stats: pd.DataFrame, style: Style, alpha: float, **look: Any) -> None:
    """Draw the mean over seeds with a band from the smallest to the largest."""
    marker: dict[str, Any] = {"marker": style.marker, "markersize": 4, "markerfacecolor": "white", "clip_on": False}
    axes.plot(x, stats["mean"], color=style.colour, linestyle=style.line, **marker, **look)
    if (stats["max"] > stats["min"]).any():
        axes.fill_between(x, stats["min"], stats["max"], color=style.colour, alpha=alpha, linewidth=0, zorder=2)


def nothing(subject: str) -> MissingRuns:
    return MissingRuns(
        f"There is nothing to draw for {subject}: no finished epoch of such a run is in the results folder."
    )
