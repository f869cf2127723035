"""Claims on the figures, on small synthetic results; how they look was judged by eye."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as some
from matplotlib.backends.backend_agg import FigureCanvasAgg

from benchmark.analysis.comparisons import rank_analysis
from benchmark.analysis.contents import Contents, DatasetInfo, MethodInfo
from benchmark.errors import CandidError
from benchmark.exhibits.curves import Curves
from benchmark.exhibits.fig5 import Figure5
from benchmark.exhibits.parts import panels, style
from benchmark.exhibits.parts.panels import Curve, Panel, curve_panels, method_curves, sensitivity
from benchmark.exhibits.ranks import critical_difference

METHODS = (MethodInfo("cel", "CEL", "IDPLL"), MethodInfo("proden", "PRODEN", "PLL"), MethodInfo("mine", "Mine", "PLL"))
DATASETS = (DatasetInfo("letter", "Letter", "Common"), DatasetInfo("digits", "Digits", "Common"))
CONTENTS = Contents("quick", METHODS, DATASETS, (0, 1, 2), "cpu")


def make_epochs() -> pd.DataFrame:
    keys = [(m.name, d.name, s, e) for m in METHODS for d in DATASETS for s in range(3) for e in range(6)]
    frame = pd.DataFrame(keys, columns=["method", "dataset", "seed", "epoch"])
    frame["profile"], frame["label"], frame["identity"] = "quick", frame["method"], "x"
    frame["test_accuracy"] = 50.0 + 5 * frame["epoch"] + frame["seed"] + frame["method"].str.len()
    frame["loss"] = 3.0 - 0.1 * frame["epoch"]
    return frame


def make_runs() -> pd.DataFrame:
    last = make_epochs().query("epoch == 5").copy()
    last["status"], last["reason"], last["overrides"] = "done", "", "{}"
    last["accuracy"], last["epochs"] = last["test_accuracy"], 30
    return last


def make_points() -> pd.DataFrame:
    keys = [(p, v, d.name, s) for p in Figure5.titles for v in (0.5, 1.0, 2.0) for d in DATASETS for s in range(3)]
    points = pd.DataFrame(keys, columns=["parameter", "value", "dataset", "seed"])
    return points.assign(method="cel", accuracy=70 + points["value"] + points["seed"])


def over_datasets(many: int) -> tuple[pd.DataFrame, Contents]:
    """The same runs on several datasets."""
    sets = tuple(DatasetInfo(f"set{k}", f"Set {k}", "Common") for k in range(many))
    runs = make_runs().query("dataset == 'letter'")
    return pd.concat([runs.assign(dataset=d.name) for d in sets]), replace(CONTENTS, datasets=sets)


TITLES = {d.name: d.title for d in DATASETS}
DEFAULTS = {"alpha": 0.5, "beta": 1.0, "gamma1": 1.0, "gamma2": 1.0}
CURVES = tuple(Curve(m.title, "letter", m.name) for m in METHODS)
DRAWINGS = {
    "curves": lambda: method_curves(make_epochs(), CONTENTS),
    "loss": lambda: method_curves(make_epochs(), CONTENTS, "loss"),
    "panel": lambda: curve_panels(make_epochs(), [Panel("Letter", CURVES)]),
    "fig5": lambda: sensitivity(make_points(), Figure5.titles, TITLES, {"cel": "CEL"}, DEFAULTS),
    "ranks": lambda: critical_difference(rank_analysis(*over_datasets(5))),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_every_figure_is_written_as_png_and_pdf_without_a_date(name: str, tmp_path: Path) -> None:
    png, pdf = style.save(DRAWINGS[name](), tmp_path, name)
    assert png.read_bytes().startswith(b"\x89PNG") and pdf.read_bytes().startswith(b"%PDF")
    assert b"CreationDate" not in pdf.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{name}.pdf", f"{name}.png"]
    if name == "panel":  # the same results give the same bytes
        again = style.save(DRAWINGS[name](), tmp_path / "again", name)
        assert [path.read_bytes() for path in again] == [png.read_bytes(), pdf.read_bytes()]


def test_the_band_spans_the_seeds_that_have_a_value() -> None:
    epochs = make_epochs()
    epochs = epochs[~((epochs.seed == 2) & (epochs.epoch > 3))]
    line = panels.series(epochs, Curve("", "letter", "cel"), "test_accuracy")
    assert line["count"].tolist() == [3, 3, 3, 3, 2, 2]
    assert (line["max"] - line["min"]).tolist() == [2, 2, 2, 2, 1, 1]
    epochs.loc[epochs.epoch == 2, "test_accuracy"] = math.nan
    assert 2 not in panels.series(epochs, Curve("", "letter", "cel"), "test_accuracy").index


def test_no_runs_and_an_unknown_metric_are_one_sentence_each() -> None:
    with pytest.raises(CandidError, match="nothing to draw"):
        method_curves(make_epochs().iloc[:0], CONTENTS)
    with pytest.raises(CandidError, match="nothing to draw"):
        sensitivity(make_points().iloc[:0], Figure5.titles, TITLES, {"cel": "CEL"}, DEFAULTS)
    with pytest.raises(CandidError, match="recorded are loss, test_accuracy"):
        curve_panels(make_epochs(), [Panel("Letter", CURVES)], "accuracy")


@given(some.lists(some.floats(0, 100), min_size=1, max_size=15))
def test_labels_do_not_overlap_and_keep_their_order(positions: list[float]) -> None:
    placed = panels.spread(positions, 5.0, 0.0, 100.0)
    order = np.argsort(positions, kind="stable")
    assert (np.diff(np.array(placed)[order]) >= 5.0 - 1e-6).all()
    assert min(placed) >= -1e-6 and max(placed) <= 100 + 1e-6


def test_what_depends_on_who_is_drawn_says_so() -> None:
    assert "Adding or removing methods" in DRAWINGS["ranks"]().get_supxlabel().replace("\n", " ")
    with pytest.raises(CandidError, match="at least 5 datasets"):
        critical_difference(rank_analysis(*over_datasets(4)))


def test_no_two_methods_of_a_figure_look_alike() -> None:
    known = list(style.STYLES.values())
    assert len({s.marker for s in known}) == len({s.colour for s in known}) == len(known)
    names = ["cel", "able", "mine", "protoalign", "cel[align=1]", "cel[align=0.25]", "papi", "cavl"]
    styles = style.styles_of(names)
    assert len({s.colour for s in styles.values()}) == len(names)
    assert styles["cel"] == style.STYLES["cel"]
    many = style.styles_of(f"variant{k}" for k in range(30))
    assert len({(s.colour, str(s.line)) for s in many.values()}) == 30


def test_the_axes_hold_every_seed_of_every_epoch() -> None:
    epochs = make_epochs()
    epochs.loc[(epochs["epoch"] == 0) & (epochs["seed"] == 1), "test_accuracy"] = 3.0
    low, high = method_curves(epochs, CONTENTS).axes[0].get_ylim()
    assert low < 3 and high > epochs["test_accuracy"].max()


def crowd() -> tuple[pd.DataFrame, Panel]:
    """Nine methods, better in the order of the names; the last one is a control."""
    names = ("cel", "average", "supervised", "m1", "m2", "m3", "m4", "m5", "control")
    parts = [make_epochs().query("method == 'cel'").assign(label=n, test_accuracy=k) for k, n in enumerate(names)]
    curves = tuple(Curve(name, "letter", name, competes=name != "control") for name in names)
    return pd.concat(parts), Panel("Letter", curves)


@pytest.mark.parametrize("metric", ["test_accuracy", "loss"])
def test_the_reference_the_bounds_and_the_three_most_accurate_methods_are_in_colour(metric: str) -> None:
    epochs, panel = crowd()
    best = {"cel", "average", "supervised", "m3", "m4", "m5"}
    assert panels.highlighted(panel, epochs, metric, "cel") == best
    for everyone, grey in ((False, 3), (True, 0)):
        texts = curve_panels(epochs, [panel], metric, all_in_colour=everyone).axes[0].texts
        assert [text.get_color() for text in texts].count(style.FADED_TEXT) == grey


@pytest.mark.parametrize("size", ["column", "page"])
@pytest.mark.parametrize("name", ["crowd", "ranks", "fig5"])
def test_nothing_leaves_a_figure_of_a_paper_s_width(name: str, size: str) -> None:
    epochs, panel = crowd()
    with style.sized(size):
        figure = curve_panels(epochs, [panel]) if name == "crowd" else DRAWINGS[name]()
        if name == "crowd":
            style.footnote(figure, f"{panels.BAND}; 12 of 51 runs done; some more words that need a line of their own")
    assert figure.get_figwidth() == style.WIDTHS[size]
    FigureCanvasAgg(figure).draw()
    box = figure.get_tightbbox()
    assert box.x0 >= 0 and box.x1 <= figure.get_figwidth() and box.y0 >= 0


def test_panels_come_in_the_order_of_the_profile_s_tables() -> None:
    drawn = Curves().draw(make_epochs().assign(status="done"), (), {m.name: m.title for m in METHODS}, Curves.Options())
    assert [axes.get_title("left") for axes in drawn.axes] == ["Letter", "Digits"]
    assert [text.get_text() for text in drawn.axes[0].texts] == ["CEL", "Mine", "PRODEN"]


def test_the_axis_begins_with_the_first_evaluated_epoch() -> None:
    epochs = make_epochs()
    late = epochs[epochs["epoch"] >= 2]
    curve = panels.Panel("Late", (panels.Curve("CEL", "digits", "cel"),))
    drawn = [panels.curve_panels(part, [curve]).axes[0].get_xlim() for part in (epochs, late, late[late["epoch"] == 2])]
    assert [low for low, _ in drawn] == [1, 3, 2.5] and drawn[0][1] == drawn[1][1]
