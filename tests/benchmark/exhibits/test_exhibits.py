"""An exhibit is one file: whoever adds one finds it on the command line, in `all` and in `estimate`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmark.accuracy import ACCURACIES, Accuracy
from benchmark.cli.main import main
from benchmark.config.selection import select
from benchmark.exhibits.base import Inputs, RequiredRuns, all_exhibits
from benchmark.exhibits.table2 import table2
from benchmark.runner.options import RunOptions
from tests.conftest import ROOT, make_tiny
from tests.support.fake_store import write_store

NEW = '''
"""How many runs there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmark.analysis.table import Table, row
from benchmark.exhibits.base import Exhibit, Inputs, RequiredRuns
from benchmark.flags import flag


class Count(Exhibit):
    name, title, kind = "count", "Table 99", "table"

    @dataclass(frozen=True)
    class Options:
        word: str = flag("runs", "how to call them")

    def required_runs(self, selection: Any, options: Options) -> RequiredRuns:
        return RequiredRuns().add(selection.specs(["cc"], selection.datasets[:1], extra=()))

    def make(self, inputs: Inputs, options: Options) -> Table:
        return Table("Table 99", "Counted.", ("what", "many"), (row(options.word, str(len(inputs.runs))),))
'''
PROFILE = """
title = "tiny"
seeds = [0]
methods = ["proden"]
datasets = ["digits"]

[train]
epochs = 1

[data.digits]
generator = "uniform"
rate = 0.2
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the program with one exhibit more."""
    folder = tmp_path_factory.mktemp("tree")
    for name in ("benchmark", "datasets", "methods"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "results").mkdir()
    shutil.copytree(ROOT / "results" / "published", folder / "results" / "published")
    (folder / "benchmark" / "exhibits" / "count.py").write_text(NEW)
    return folder


def candid(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        [sys.executable, "-m", "benchmark", *words], cwd=tree, env=environment, capture_output=True, text=True
    )


def test_one_file_more_is_on_the_command_line_in_all_and_in_estimate(tree: Path, tmp_path: Path) -> None:
    assert "Table 99" in candid(tree, "--help").stdout
    assert "How to call them." in candid(tree, "count", "--help").stdout
    place = ("--results", str(tmp_path / "results"), "--profile", str(make_tiny(tmp_path, PROFILE).profile))
    words = (*place, "--device", "cpu", "--dry-run")
    alone = candid(tree, "estimate", "count", *words)
    assert alone.returncode == 0 and many(alone.stdout) == 1
    more, less = candid(tree, "all", *words), candid(ROOT, "all", *words)
    assert more.returncode == less.returncode == 0, more.stderr
    assert many(more.stdout) == many(less.stdout) + 1  # cc is in no other exhibit of this profile
    (tmp_path / "results").mkdir()
    made = candid(tree, "count", "--no-run", "--word", "things", *words[:-1])
    assert made.returncode == 0, made.stderr
    assert "Table 99. Counted." in made.stdout and "things" in made.stdout
    assert (tmp_path / "results" / "tables" / "tiny" / "count-things.md").is_file()


def test_every_exhibit_has_a_name_of_its_own_and_reads_its_flags_without_pandas() -> None:
    names = [exhibit.name for exhibit in all_exhibits()]
    assert len(set(names)) == len(names) and {"table1", "fig6", "curves", "ranks", "selection"} <= set(names)
    code = (
        "import sys; from benchmark.cli.main import main; main(['table2', '--help']);"
        "sys.exit(bool({'numpy', 'pandas', 'matplotlib', 'scipy', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def many(text: str) -> int:
    """Runs of a plan or an estimate."""
    line = next(line for line in text.splitlines() if line.startswith("Plan:"))
    return int(line.replace(",", " ").split()[1])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    write_store(folder, profile="quick", methods=["cel", "proden"], epochs=12)
    return folder


@pytest.mark.parametrize("table", ["table2", "table3"])
@pytest.mark.parametrize("accuracy", ACCURACIES, ids=lambda accuracy: accuracy.word)
def test_every_accuracy_can_be_asked_for(
    store: Path, table: str, accuracy: Accuracy, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--no-run", "--profile", "quick", "--methods", "cel,proden", "--results", str(store))
    assert main([table, "--accuracy", accuracy.word, *words]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert accuracy.caption in text
    loud = "ORACLE: best test epoch, chosen with test labels; not a result." in text
    assert loud == (accuracy.word == "oracle")
    # neither a variant nor a choice of methods replaces the usual table's file
    stem = table + f"-{accuracy.word}" * (accuracy.word != "last") + "-cel-proden"
    assert f'"accuracy": "{accuracy.key}"' in (store / "tables" / "quick" / f"{stem}.json").read_text()


@pytest.mark.parametrize(
    "command",
    [
        ("table2", "--no-run"),
        ("table3", "--no-run"),
        ("comparisons", "--no-run"),
        ("plot", "curves"),
        ("plot", "ranks"),
    ],
)
def test_a_reference_outside_the_exhibit_is_refused_where_it_is_named(
    store: Path, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--profile", "quick", "--methods", "proden,cel", "--results", str(store))
    assert main([*command, "--reference", "RC", *words]) == 2
    assert "--reference rc is not" in capsys.readouterr().err


def test_ranks_are_drawn_from_five_datasets_on(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "ranks", "--profile", "quick", "--results", str(store)]) == 2
    assert "at least 5 datasets" in capsys.readouterr().err
    write_store(tmp_path, profile="paper", methods=["cel", "proden"], epochs=2)
    words = ("plot", "ranks", "--profile", "paper", "--methods", "CEL,Proden", "--results", str(tmp_path))
    assert main([*words, "--reference", "PRODEN"]) == 0
    assert "ranks-proden-cel-proden.png" in capsys.readouterr().out
    for name in ("cars196", "cub200"):
        shutil.rmtree(tmp_path / "runs" / name)
    assert main(words) == 1 and "cars196, cub200" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (["variance"], "run --sweep data.seed"),
        (["measures"], "export --runs"),
        (["realworld-all"], "realworld --all-methods"),
        (["plot", "selection"], "selection"),
    ],
)
def test_a_removed_command_names_what_to_use_instead(
    words: list[str], instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2 and f"`{instead}" in capsys.readouterr().err


def test_realworld_writes_its_figure_beside_its_table(tmp_path: Path) -> None:
    write_store(tmp_path, profile="realworld-p20", datasets=["lost"], seeds=range(5), epochs=2)
    words = ("realworld", "--sources", "p20", "--datasets", "lost", "--no-run", "--results", str(tmp_path))
    assert main(words) == 0
    names = {path.name for path in tmp_path.glob("*/realworld/*")}
    assert {path.rpartition(".")[2] for path in names} == {"csv", "json", "md", "tex", "pdf", "png"}
    assert len({name.rpartition(".")[0] for name in names}) == 1
    assert main([*words, "--out", str(tmp_path / "alone.csv")]) == 0
    assert [path.name for path in tmp_path.glob("alone*")] == ["alone.csv"]


def test_a_caption_names_the_devices_of_the_runs_not_the_one_that_prints_it(tmp_path: Path) -> None:
    """Runs of a GPU and of a CPU, and documents whose fields are of a wrong kind, read on this machine."""

    def elsewhere(document: dict[str, Any]) -> None:
        if document["seed"] == 1:
            document["environment"] |= {"device": "cpu", "device_name": "EPYC"}
        document["test_rows"] = 400 if document["seed"] else "many"

    methods = ["cel", "proden"]
    write_store(tmp_path, profile="quick", methods=methods, datasets=["digits"], epochs=2, edit=elsewhere)
    selection = select("quick", methods="cel,proden", datasets="digits")
    inputs = Inputs(selection, RequiredRuns().add(selection.specs()), RunOptions(tmp_path, tmp_path, "cpu"))
    contents = inputs.contents
    assert contents.device == "cuda Fake GPU 24 GB (4 runs) and cpu EPYC (2 runs)"
    assert contents.datasets[0].test_rows == 400
    table = table2(inputs.runs, contents)
    assert f"device {contents.device}." in table.origin and "(400 rows)" in " ".join(table.notes)
