"""The robustness curves: which runs they need, and what is drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from benchmark.config.profile import load_profile
from benchmark.config.selection import select
from benchmark.errors import UsageError
from benchmark.exhibits.base import NoFlags
from benchmark.exhibits.parts.panels import sensitivity
from benchmark.exhibits.robustness import ALWAYS, BOUNDS, TITLES, USUAL, VALUES, Robustness
from methods.registry import discover

EXHIBIT = Robustness()


def test_the_usual_point_is_trained_once_for_all_axes() -> None:
    selection = select("quick", seeds="0")
    need = EXHIBIT.required_runs(selection, NoFlags())
    (base,) = {spec.digest for spec in selection.specs(["alim"], ["fashion"])}
    assert {name for digest, name, _ in need.points if digest == base} == {"noise", "imbalance"}
    settings = 1 + sum(len(values) - (name not in ALWAYS) for name, values in VALUES.items())
    assert len({spec.digest for spec in need.specs}) == settings * len({*USUAL, *BOUNDS})
    worst = {(spec.data.noise, spec.data.imbalance) for spec in need.specs if spec.data.generator == "instance"}
    assert {(0.3, 1.0), (0.0, 100.0)} <= worst
    assert {spec.data.rate for spec in need.specs if spec.data.generator == "uniform"} == {0.1, 0.3, 0.5, 0.7}


@pytest.mark.parametrize(("name", "setting"), [("noise", "data.noise=0.2"), ("imbalance", "data.imbalance=30")])
def test_an_axis_has_its_own_values_whatever_is_set_and_the_other_axes_keep_what_is_set(
    name: str, setting: str
) -> None:
    need = EXHIBIT.required_runs(select("quick", methods="alim", seeds="0", settings=(setting,)), NoFlags())
    by_digest = {spec.digest: spec.data for spec in need.specs}
    along = {(value, getattr(by_digest[digest], name)) for digest, axis, value in need.points if axis == name}
    assert along == {(value, value) for value in VALUES[name]}
    aside = {getattr(by_digest[digest], name) for digest, axis, _ in need.points if axis != name}
    assert aside == {float(setting.partition("=")[2])}


def test_named_methods_take_the_place_of_the_usual_ones_and_keep_floor_and_ceiling() -> None:
    need = EXHIBIT.required_runs(select("quick", methods="cavl", datasets="digits", seeds="0"), NoFlags())
    assert {spec.method for spec in need.specs} == {"cavl", *BOUNDS}
    assert {spec.dataset for spec in need.specs} == {"digits"}


def test_data_with_sets_of_their_own_are_refused() -> None:
    with pytest.raises(UsageError, match="lost has its own candidate sets"):
        EXHIBIT.required_runs(select("quick", datasets="lost", seeds="0"), NoFlags())


def test_own_data_whose_sets_are_made_have_curves(tmp_path: Path) -> None:
    path = tmp_path / "labelled.npz"
    np.savez(path, x=np.zeros((6, 2)), y=np.arange(6) % 3)
    own = select("quick", datasets=str(path), seeds="0", settings=("data.generator=uniform",))
    assert {spec.data.noise for spec in EXHIBIT.required_runs(own, NoFlags()).specs} == {0, 0.1, 0.2, 0.3}


@pytest.mark.parametrize("names", [["noise"], list(VALUES)])
def test_the_legend_of_all_methods_fits_and_no_two_lines_look_alike(names: list[str]) -> None:
    methods = {name: discover().get(name).title for name in load_profile("quick").with_extensions}
    keys = [(axis, v, m, seed) for axis in names for v in VALUES[axis] for m in methods for seed in (0, 2)]
    points = pd.DataFrame(keys, columns=["parameter", "value", "method", "seed"])
    points = points.assign(dataset="fashion", accuracy=50.0 + points["seed"])
    titles = {name: TITLES[name] for name in names}
    figure = sensitivity(points, titles, {"fashion": "Fashion"}, methods, {})
    line = next(line for line in figure.axes[0].lines if line.get_label() == "CEL")
    assert np.asarray(line.get_ydata()).tolist() == [51.0] * 4 and len(figure.axes[0].collections) == len(methods)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == [f"{v:g}" for v in VALUES[names[0]]]
    FigureCanvasAgg(figure).draw()
    (legend,) = figure.legends
    box, plot = legend.get_window_extent(), figure.axes[0].get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width and len(legend.get_texts()) == len(methods)
    assert plot.height > 1.5 * figure.dpi and not box.overlaps(plot)
    looks = {(line.get_color(), str(line.get_linestyle()), line.get_marker()) for line in figure.axes[0].lines}
    assert len(looks) == len(methods)
