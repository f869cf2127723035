"""What is typed to choose runs: names in any case, ranges, and nothing that would silently change nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmark.config.selection import select
from benchmark.errors import UsageError
from benchmark.exhibits.parts.variants import sweep_of


def test_names_are_understood_in_any_case_and_as_tables_print_them() -> None:
    chosen = select("paper", methods="PRODEN,Cr-DPLL,PiCO", datasets="CIFAR-100,cub200")
    assert chosen.methods == ("proden", "cr-dpll", "pico")
    assert chosen.datasets == ("cifar100", "cub200")
    assert chosen.known_as("PRODEN-2V") == "proden-2v"
    with pytest.raises(UsageError, match="'proden' is named twice"):
        select("quick", methods="PRODEN,proden")


def test_seeds_are_a_list_or_a_range() -> None:
    assert select("quick", seeds="0-2,7").seeds == (0, 1, 2, 7)
    for text, word in (
        ("4-2", "backwards"),
        ("-1", "non-negative integer"),
        ("0-2,1", "named twice"),
        ("1-", "non-negative"),
    ):
        with pytest.raises(UsageError, match=word):
            select("quick", seeds=text)


def test_a_setting_of_an_absent_method_or_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--set cel.alpha changes nothing: cel is not among the methods \(proden\)"):
        select("quick", methods="proden", settings=("cel.alpha=3",))
    with pytest.raises(UsageError, match="lr is given twice, 1 and 2"):
        select("quick", settings=("train.lr=1", "train.lr=2"))


def test_a_named_plug_in_that_cannot_be_loaded_stops_the_command(tmp_path: Path) -> None:
    (tmp_path / "proden.py").write_text("import nothing_like_this(")
    with pytest.raises(UsageError, match="proden"):
        select("quick", methods="proden", plugins=(str(tmp_path / "proden.py"),))


def test_what_differs_from_the_profile_names_its_files() -> None:
    assert select("quick").altered == ""
    assert select("quick", methods="cel,proden", seeds="0").altered == "cel-proden-seed0"
    assert select("quick", settings=("train.lr=0.3",)).altered == "train.lr=0.3"
    assert select("quick", methods="all").altered.startswith("with-")
    long = [select("quick", methods="all", seeds=f"0-{last}").altered for last in (30, 31)]
    assert len(long[0]) <= 60 and long[0] != long[1]


def test_a_sweep_is_every_value_of_a_setting_and_the_profiles_own_is_the_plain_run() -> None:
    selection = select("quick", methods="cel,proden", seeds="0")
    sweep = sweep_of("cel.alpha=0.1,0.5", selection)
    need = sweep.need(selection)
    assert sweep.methods == ("cel",) and len(need.specs) == 2 * len(selection.datasets)
    plain = {spec.digest for spec in selection.specs(["cel"])}
    assert plain & {spec.digest for spec in need.specs}, "alpha is 0.5 unless somebody says otherwise"
    assert sweep_of("train.lr=0.1,0.2", selection).methods == ("cel", "proden")
    for text in ("cel.alpha=1", "cel.alpha", "cel.alpha=1,1", "cel.nothing=1,2", "nothing.alpha=1,2"):
        with pytest.raises(UsageError):
            sweep_of(text, selection)
    assert sweep_of("pop.theta=0.001,0.01", selection).methods == ("pop",)  # a sweep names its method itself
    with pytest.raises(UsageError, match="not among the methods"):
        sweep_of("pop.theta=0.001,0.01", selection, named=True)
