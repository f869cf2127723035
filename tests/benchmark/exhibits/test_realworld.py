"""The published real-world tables: which runs they need, and what stands beside the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmark.errors import UsageError
from benchmark.exhibits import agreement, realworld
from benchmark.exhibits.base import Material
from benchmark.plan.selection import Choice, select
from benchmark.run.options import RunOptions
from tests.support.fake_store import write_store

SHORT = realworld.OfSources(short=True)


def material(results: Path, options: realworld.OfSources, **choice: Any) -> Material:
    selection = select("realworld", Choice(**choice))
    return Material(selection, realworld.Realworld().runs(selection, options), RunOptions(results, results / "data"))


def test_the_short_form_is_one_source_and_two_sets(tmp_path: Path) -> None:
    specs = material(tmp_path, SHORT).need.specs
    assert {spec.profile for spec in specs} == {"realworld-p20"} and len(specs) == 10
    assert {spec.dataset for spec in specs} == {"lost", "msrcv2"}


def test_only_methods_with_a_published_number_are_trained(tmp_path: Path) -> None:
    specs = material(tmp_path, realworld.OfSources()).need.specs
    f25 = {spec.method for spec in specs if spec.profile == "realworld-f25"}
    assert f25 == {"proden", "cc", "pop-one-view"} and {spec.dataset for spec in specs} == set(realworld.USUAL_SETS)
    chosen = material(tmp_path, realworld.OfSources("f25"), datasets="yahoo", methods="valen").need.specs
    assert {(spec.method, spec.dataset, spec.train.batch) for spec in chosen} == {("valen", "yahoo", 256)}


@pytest.mark.parametrize(
    ("sources", "choice", "sentence"),
    [
        ("f52", {}, "--sources: unknown 'f52'. Did you mean 'f25'"),
        ("p20", {"methods": "cel"}, "None of these methods and data sets has a published number"),
    ],
)
def test_a_wrong_choice_is_one_sentence(tmp_path: Path, sources: str, choice: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        material(tmp_path, realworld.OfSources(sources), **choice)


def test_every_number_gets_a_verdict_and_incomplete_is_not_complete(tmp_path: Path) -> None:
    write_store(tmp_path, profile="realworld-p20", datasets=["lost"], seeds=range(5), epochs=3, candidates=False)
    made = realworld.Realworld().make(material(tmp_path, SHORT), SHORT)
    verdicts = {record["dataset"]: record["verdict"] for record in made.data}
    assert verdicts["Lost"] in ("agrees", "differs") and verdicts["MSRCv2"] == "incomplete" and not made.complete
    assert "of 1 comparable cells agree" in made.notes[0] and "0 of 5 runs are done" in made.notes[-1]
    figure = agreement.AgreementPlot().make(material(tmp_path, SHORT), SHORT)
    labels = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert labels == ["P20  PRODEN, Lost"]
