"""The user's own data and the real-world tables, from the file to the table through the real command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from PIL import Image

from benchmark.cli import main as cli
from benchmark.config.selection import select
from benchmark.runner.options import RunOptions
from benchmark.runner.worker import execute
from tests.conftest import TinyBenchmark, make_tiny

PROFILE = """
title = "tiny"
seeds = [0, 1]
methods = ["proden", "average"]

[train]
epochs = 2
batch = 16

[data.lost]
settings = { check_sizes = false }

[data.pics]
backbone = { name = "small-cnn" }
settings = { short_side = 32 }
"""
CLASSES = 3
KEEP = ("data.missing_truth=keep",)


def candidates_of(y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    matrix = rng.random((len(y), CLASSES)) < 0.4
    matrix[np.arange(len(y)), y] = True
    return matrix


def write_npz(path: Path, nan: bool = False) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, 80)
    x = rng.normal(size=(80, 6)) + 4 * np.eye(CLASSES, 6)[y]
    x[3, 2] = np.nan if nan else 0.0
    np.savez(path, x=x, y=y, candidates=candidates_of(y, rng), class_names=np.array(["a $x$", "b", "c"]))


def write_images(folder: Path) -> None:
    """Three colours; one image is grey, one has transparency."""
    rng = np.random.default_rng(1)
    (folder / "a b").mkdir(parents=True)
    y = np.arange(40) % CLASSES
    lines = ["file,label,candidates"]
    for i, (label, row) in enumerate(zip(y, candidates_of(y, rng), strict=True)):
        pixels = rng.integers(0, 90, (34 + i, 40, 3)) + 160 * np.eye(CLASSES, dtype=int)[label]
        mode = {0: "L", 1: "RGBA"}.get(i, "RGB")
        Image.fromarray(pixels.astype(np.uint8)).convert(mode).save(folder / "a b" / f"{i}.png")
        lines.append(f"a b/{i}.png,{label},{'|'.join(map(str, row.nonzero()[0]))}")
    (folder / "candidates.csv").write_text("\n".join(lines) + "\n")


def write_mat(path: Path) -> None:
    """The usual form of the published tables: data n×d, both label matrices q×n, one of them sparse."""
    rng = np.random.default_rng(2)
    y = rng.integers(0, CLASSES, 60)
    x = rng.normal(size=(60, 5)) + 3 * np.eye(CLASSES, 5)[y]
    partial = scipy.sparse.csc_matrix(candidates_of(y, rng).T.astype(float))
    path.parent.mkdir(parents=True)
    scipy.io.savemat(path, {"data": x, "partial_target": partial, "target": np.eye(CLASSES)[y].T})


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> TinyBenchmark:
    """Table 2 on a file, a folder of images, a table and a file with a NaN, by one real command."""
    made = make_tiny(tmp_path_factory.mktemp("own"), PROFILE)
    write_npz(made.folder / "mine.npz")
    write_npz(made.folder / "broken.npz", nan=True)
    write_images(made.folder / "pics")
    write_mat(made.folder / "data" / "lost" / "Lost.mat")
    done = made.run("table2", "--reference", "proden", *sets(made, "broken.npz", "mine.npz", "pics", "lost"))
    (made.folder / "screen.txt").write_text(f"{done.returncode}\n{done.stdout}{done.stderr}")
    return made


def sets(bench: TinyBenchmark, *names: str) -> tuple[str, str]:
    return "--datasets", ",".join(name if name == "lost" else str(bench.folder / name) for name in names)


def test_the_table_holds_every_cell_under_the_short_names(bench):
    records = json.loads((bench.results / "tables" / "tiny" / "table2-proden-broken-mine-pics-lost.json").read_text())
    text = (bench.results / "tables" / "tiny" / "table2-proden-broken-mine-pics-lost.md").read_text()
    assert all(name in text for name in ("mine", "pics", "Lost")) and str(bench.folder) not in json.dumps(records)
    documents = bench.documents()
    assert len(documents) == 12 and {d["status"] for d in documents} == {"done"}
    assert {d["dataset"] for d in documents} == {"mine", "pics", "lost"}
    assert all(d["config"]["dataset"]["generator"] == "own" for d in documents)
    # Well separated classes: a method that is handed the right rows and labels learns them in two epochs.
    assert all(d["summary"]["accuracy"] > 60 for d in documents if d["dataset"] != "pics")


def test_the_users_folder_is_left_as_it_was(bench):
    assert sorted(p.name for p in (bench.folder / "pics").iterdir()) == ["a b", "candidates.csv"]
    assert len(list((bench.folder / "data" / "cache").glob("pics-*/*.pixels"))) == 1
    assert {p.name for p in bench.folder.iterdir()} == {
        "tiny.toml", "mine.npz", "broken.npz", "pics", "data", "results", "screen.txt",
    }  # fmt: skip


def test_moved_data_are_the_same_data(bench, tmp_path, capsys):
    shutil.copy(bench.folder / "mine.npz", tmp_path / "mine.npz")
    words = bench.arguments("run", "--dry-run", "--datasets", str(tmp_path / "mine.npz"))[3:]
    assert cli.main(words) == 0
    assert "Plan: 4 runs, 4 done, 0 to do" in capsys.readouterr().out


def test_table_1_and_cards_of_what_is_there(bench, capsys):
    names = sets(bench, "mine.npz", "pics", "lost", "broken.npz")
    assert cli.main(bench.arguments("table1", *names)[3:]) == 3
    text = " ".join(capsys.readouterr().out.split())
    assert "mine 64 16 6 features 3 –" in text and "pics 32 8" in text and "Lost 54 6 5 features 3 –" in text
    assert "broken has no numbers" in text and "row 4, column 3" in text
    assert cli.main(bench.arguments("candidates", *sets(bench, "mine.npz", "pics", "broken.npz"))[3:]) == 3
    output = capsys.readouterr()
    assert "mine: candidate sets of 64 rows, 3 classes (its own)" in output.out
    assert "pics: candidate sets of 32 images" in output.out
    assert len(output.err.splitlines()) == 1 and "broken has no card" in output.err
    assert not (bench.results / "cards" / "mine.png").exists()  # rows have the text alone
    with Image.open(bench.results / "cards" / "pics.png") as card:
        assert card.width > 1000


def test_a_broken_file_does_not_stop_the_others(bench):
    code, *lines = (bench.folder / "screen.txt").read_text().splitlines()
    told = [line for line in lines if "broken proden seed 0" in line and "failed" in line]
    assert code == "3" and "1 feature value NaN or infinite, the first in row 4, column 3." in told[0]
    assert "Traceback" not in "".join(lines)


@pytest.mark.parametrize(
    ("command", "names", "sentence"),
    [
        ("run", "{folder}/none.npz", "cannot be read (No such file or directory)"),
        ("run", "{folder}/data", "candidates.csv nor answers.csv"),
        ("run", "{folder}/mine.npz,{folder}/data/../mine.npz", "already is; rename it"),
        ("run", "{folder}/results/lost.npz", "would be called 'lost', as lost already is"),
        ("fig2", "{folder}/mine.npz", "has its own candidate sets"),
        ("fig2", "lost", "has its own candidate sets"),
    ],
)
def test_wrong_input_is_one_sentence(bench, capsys, command, names, sentence):
    shutil.copy(bench.folder / "mine.npz", bench.results / "lost.npz")
    words = bench.arguments(command, "--quiet", "--datasets", names.format(folder=bench.folder))[3:]
    assert cli.main(words) == 2
    error = capsys.readouterr().err.strip()
    assert sentence in error and len(error.splitlines()) == 1


def test_own_sets_without_the_truth_are_refused_or_kept_and_counted(tmp_path, capsys):
    bench = make_tiny(tmp_path, PROFILE)
    write_npz(tmp_path / "clean.npz")
    write_mat(tmp_path / "data" / "lost" / "Lost.mat")
    with np.load(tmp_path / "clean.npz") as stored:
        arrays = dict(stored)
    arrays["candidates"][:20] = np.eye(CLASSES)[(arrays["y"][:20] + 1) % CLASSES]
    np.savez(tmp_path / "crowd.npz", **arrays, x_test=arrays["x"], y_test=arrays["y"])
    table = scipy.io.loadmat(tmp_path / "data" / "lost" / "Lost.mat", variable_names=("data", "target"))
    wrong = {"data": table["data"], "target": table["target"], "partial_target": 1 - table["target"]}
    scipy.io.savemat(tmp_path / "data" / "lost" / "Lost.mat", wrong)
    words = bench.arguments("candidates", "--datasets", f"{tmp_path / 'crowd.npz'},lost")[3:]
    assert cli.main(words) == 3
    refused = capsys.readouterr().err
    assert (
        "20 rows whose candidates do not contain the true label, the first is row 1; --set data.missing_truth=keep"
        in refused
    )
    assert "60 rows whose" in refused and len(refused.splitlines()) == 2
    assert cli.main([*words, "--set", "data.missing_truth=keep"]) == 0
    kept = capsys.readouterr().out
    assert "without true label 25.0% of the rows" in kept and "without true label 100.0% of the rows" in kept
    chosen = select(
        str(bench.profile), methods="proden", datasets=str(tmp_path / "crowd.npz"), seeds="0", settings=KEEP
    )
    (spec,) = chosen.specs()
    assert execute(spec, RunOptions(bench.results, tmp_path / "data")).status == "done"
    (document,) = bench.documents()
    assert document["summary"]["true_labels_missing"] == 25.0
    assert document["config"]["dataset"]["missing_truth"] == "keep"
