"""The published real-world tables: which runs they need, and what stands beside the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmark.analysis import published
from benchmark.analysis.table import Table
from benchmark.cli.execution import grouped_runs
from benchmark.config.profile import load_profile
from benchmark.config.resolution import Override
from benchmark.config.selection import select
from benchmark.errors import UsageError
from benchmark.exhibits import realworld, realworld_all
from benchmark.exhibits.base import Inputs
from benchmark.exhibits.table2 import Table2
from benchmark.runner.options import RunOptions
from datasets import fashion
from tests.support.fake_store import write_store

Options = realworld.Realworld.Options
P20 = Options("p20")


def inputs(results: Path, options: Options, **choice: Any) -> Inputs:
    exhibit, place = realworld.Realworld(), RunOptions(results, results / "data")
    selection = select(exhibit.profile_for(options), **choice)
    if options.all_methods:
        selection = exhibit.default_selection(selection, options, place)
    return Inputs(selection, exhibit.required_runs(selection, options), place)


def test_only_methods_with_a_published_number_are_trained(tmp_path: Path) -> None:
    specs = inputs(tmp_path, Options()).required.specs
    f25 = {spec.method for spec in specs if spec.profile == "realworld-f25"}
    assert f25 == {"proden", "cc", "pop-one-view"} and {spec.dataset for spec in specs} == {
        *realworld.USUAL_SETS,
        "fashion-mnist",
    }
    chosen = inputs(tmp_path, Options("f25"), datasets="yahoo", methods="valen").required.specs
    assert {(spec.method, spec.dataset, spec.train.batch) for spec in chosen} == {("valen", "yahoo", 256)}
    both = inputs(tmp_path, Options("f25"), datasets="lost,mirflickr").required.specs
    assert {spec.dataset for spec in both if spec.method == "valen"} == {"mirflickr"}


@pytest.mark.parametrize(
    ("source", "words", "ours"),
    [("f25", "pico,valen", {"pico", "valen"}), ("k25", "POP,cel", {"pop-one-view", "cel-linear"})],
)
def test_cells_left_open_run_when_they_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, words: str, ours: set[str]
) -> None:
    options = Options(source)
    chosen = inputs(tmp_path, options, methods=words)
    assert {spec.method for spec in chosen.required.specs} == ours
    assert {spec.dataset for spec in chosen.required.specs} == {*realworld.USUAL_SETS}
    write_store(tmp_path, profile=f"realworld-{source}", methods=[*ours], datasets=["lost"], seeds=range(5), epochs=3)  # fmt: skip
    made = realworld.Realworld().make(inputs(tmp_path, options, methods=words, datasets="lost"), options)
    left = [record for record in made.data if pd.isna(record["published_mean"])]
    assert left and {(record["verdict"], record["why"]) for record in left} == {
        ("not comparable", "their number is not in results/published")
    }
    known = published.numbers  # now as if somebody had filled the means in
    monkeypatch.setattr(published, "numbers", lambda source: known(source).fillna({"mean": 60.0}))
    made = realworld.Realworld().make(inputs(tmp_path, options, methods=words, datasets="lost"), options)
    assert {record["verdict"] for record in made.data} <= {"agrees", "differs"}


@pytest.mark.parametrize(
    ("sources", "choice", "sentence"),
    [
        ("f52", {}, "--sources: unknown 'f52'. Did you mean 'f25'"),
        ("p20", {"methods": "cel"}, "None of these methods and datasets has a published number"),
        ("p20", {"all_methods": True}, "--sources does not go with --all-methods"),
    ],
)
def test_a_wrong_choice_is_one_sentence(tmp_path: Path, sources: str, choice: dict[str, Any], sentence: str) -> None:
    options = Options(sources, choice.pop("all_methods", False))
    with pytest.raises(UsageError, match=sentence):
        inputs(tmp_path, options, **choice)


def test_every_number_gets_a_verdict_and_incomplete_is_not_complete(tmp_path: Path) -> None:
    write_store(tmp_path, profile="realworld-p20", datasets=["lost"], seeds=range(5), epochs=3)
    made = realworld.Realworld().make(inputs(tmp_path, P20), P20)
    verdicts = {record["dataset"]: record["verdict"] for record in made.data}
    assert verdicts["Lost"] in ("agrees", "differs") and verdicts["MSRCv2"] == "incomplete" and not made.complete
    assert "of 1 comparable cells agree" in made.notes[0] and "0 of 5 runs are done" in made.notes[-1]
    figure = realworld.Realworld().figure(inputs(tmp_path, P20), P20)
    assert figure is not None
    labels = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert labels == ["P20  PRODEN, Lost"]


def test_what_was_odd_about_the_data_what_was_overridden_and_what_no_source_prints_stand_below(tmp_path: Path) -> None:
    def edit(document: dict[str, Any]) -> None:
        document["data_notes"] = ["lost.mat has other features than the known copy"]

    chosen = {"datasets": "lost", "methods": "proden,crosel", "settings": ("train.lr=0.5",)}
    write_store(
        tmp_path, profile="realworld-p20", datasets=["lost"], seeds=range(5), epochs=3, edit=edit,
        overrides=[Override("train", "lr", "0.5")],
    )  # fmt: skip
    notes = realworld.Realworld().make(inputs(tmp_path, P20, **chosen), P20).notes
    assert notes[-2] == "lost: lost.mat has other features than the known copy."
    assert notes[-1] == "Overridden on the command line: train.lr=0.5."
    assert any("crosel" in note and "proden" not in note for note in notes)


def test_table_2_of_a_source_has_its_own_numbers_beside_ours(tmp_path: Path) -> None:
    write_store(tmp_path, profile="realworld-k25", datasets=["lost"], seeds=range(5), epochs=2)
    exhibit, options = Table2(), Table2.Options(reference="proden")
    chosen = select("realworld-k25", methods="proden,cel-linear,valen", datasets="lost")
    made = exhibit.make(Inputs(chosen, exhibit.required_runs(chosen, options), RunOptions(tmp_path, tmp_path)), options)
    printed = {record["method"]: record.get("published_mean") for record in made.data}
    assert printed == {"proden": 73.44, "cel-linear": 74.15, "valen": None}


# All methods under one protocol -------------------------------------------------------------------------------------


def all_methods(results: Path, **choice: Any) -> Table:
    options = Options(all_methods=True)
    return realworld.Realworld().make(inputs(results, options, **choice), options)


def test_both_models_stand_in_one_table_and_extensions_below(tmp_path: Path) -> None:
    for profile in realworld_all.MODELS:
        write_store(
            tmp_path, profile=profile, methods=["cel", "proden", "average", "papi"], datasets=["lost"],
            seeds=range(10), epochs=2,
        )  # fmt: skip
    made = all_methods(tmp_path)
    assert made.columns[2:8] == (
        "Lost, MLP", "MSRCv2, MLP", "BirdSong, MLP", "Lost, linear", "MSRCv2, linear", "BirdSong, linear",
    )  # fmt: skip
    assert not made.complete  # the other methods and sets were never run
    shown = {row.cells[1].text: [cell.text for cell in row.cells[2:]] for row in made.rows}
    assert "±" in shown["PRODEN"][0] and "±" in shown["PRODEN"][3] and shown["PRODEN"][1] == "–"
    assert shown["PRODEN"][-2].endswith("?4")  # four columns that could not be compared
    assert list(shown).index("PaPi") > list(shown).index("Average") and shown["PaPi"][-3:] == ["–"] * 3
    small = all_methods(tmp_path, methods="cel,proden", datasets="lost")
    assert small.complete and {record["dataset"] for record in small.data} == {"lost, MLP", "lost, linear"}


@pytest.mark.parametrize("options", [Options(), Options(all_methods=True)])
def test_a_set_takes_part_when_its_file_is_there(tmp_path: Path, monkeypatch, options: Options) -> None:
    monkeypatch.setattr(fashion, "DEBIAN", tmp_path / "no-package")
    exhibit, place = realworld.Realworld(), RunOptions(tmp_path, tmp_path / "data")
    chosen = select(exhibit.profile_for(options))
    assert exhibit.default_selection(chosen, options, place).datasets == realworld.USUAL_SETS
    (tmp_path / "data" / "yahoo").mkdir(parents=True)
    (tmp_path / "data" / "yahoo" / "Yahoo News.mat").write_bytes(b"0" * 200)
    assert exhibit.default_selection(chosen, options, place).datasets == (*realworld.USUAL_SETS, "yahoo")
    if not options.all_methods:  # pictures take part when their runs are there
        write_store(tmp_path, profile="realworld-l21-fashion", seeds=[0], epochs=2)
        assert "fashion-mnist" in exhibit.default_selection(chosen, options, place).datasets


def test_no_profile_refuses_a_set_that_is_not_at_hand_for_rows_without_their_true_label() -> None:
    for source in ("f25", "k25", "p20", "v21", "l21", "l21-mlp", "x23", "all", "all-linear"):
        specs = select(f"realworld-{source}", seeds="0").specs()
        kept = {s.dataset: s.dataset_settings.get("missing_truth", "refuse") for s in specs}
        assert "refuse" not in {rule for name, rule in kept.items() if name not in realworld.USUAL_SETS}, (source, kept)


def test_a_plan_of_several_sources_names_each_with_its_seeds(tmp_path: Path) -> None:
    specs = inputs(tmp_path, Options("p20,v21"), datasets="lost", methods="proden").required.specs
    assert grouped_runs(specs) == [
        "To do            lost, realworld-p20: 5 runs of proden, seeds 0, 1, 2, 3, 4",
        "To do            lost, realworld-v21: 5 runs of proden, seeds 0, 1, 2, 3, 4",
    ]


def test_the_tuned_profiles_hold_a_choice_for_every_method_and_set() -> None:
    for name in realworld_all.MODELS:
        profile = load_profile(name)
        chosen = {(v["method"], v["dataset"]) for v in profile.values if v["source"].startswith("tuned: ")}
        assert chosen == {(m, d) for m in profile.with_extensions for d in realworld.USUAL_SETS}
