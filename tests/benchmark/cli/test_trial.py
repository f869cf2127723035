"""`trial`: the whole path in short, where no table of results looks, and what the real plan would meet."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmark import store
from benchmark.cli.trial import FOLDER, cut_profile, fresh_folder
from benchmark.errors import UsageError
from benchmark.plan.selection import Choice, select
from tests.conftest import TinyBenchmark


def test_a_trial_goes_the_whole_path_apart_from_all_results(tiny_benchmark: TinyBenchmark) -> None:
    done = tiny_benchmark.run("trial", "--datasets", "digits,cub200", "--jobs", "1")
    assert done.returncode == 3, done.stdout + done.stderr  # one of the sets is not here
    inside = tiny_benchmark.results / FOLDER
    assert (inside / "tables" / "tiny-trial" / "table2.md").is_file()
    runs = store.runs(inside)
    assert list(runs["status"]) == ["done", "done"] and set(runs["profile"]) == {"tiny-trial"}
    assert store.runs(tiny_benchmark.results).empty and not (tiny_benchmark.results / "tables").exists()
    words = [line.split("  ")[0] for line in done.stdout.splitlines()]
    end = words[words.index("Tried") :]
    assert end[:2] == ["Tried", "Missing data"] and {"Time", "Disk", "Memory"} < set(end)
    assert "2 of 2 pairs of method and data set went through" in done.stdout
    broken = tiny_benchmark.run("trial", "--set", "train.lr=1e30", "--seeds", "0", "--methods", "proden", "--jobs", "1")
    assert broken.returncode == 1 and "Fails            proden[train.lr=1e+30] on digits: diverged" in broken.stdout
    assert len(store.runs(inside)) == 1  # what the first trial left is gone


def test_the_paper_is_cut_to_rows_of_every_class_and_a_few_steps() -> None:
    selection = select("paper", Choice(methods="cel", seeds="0"))
    cut = {s.dataset: s.config for s in select_cut(selection)}
    assert cut["cub200"].dataset_settings == {"train": 200, "test": 200}
    assert cut["cifar100"].dataset_settings == {"train": 128, "test": 100}
    assert cut["dogs120"].dataset_settings == {"train": 36, "test": 18}  # all that there is
    train, annotator = cut["cifar100"].train, cut["cifar100"].annotator
    assert (train.epochs, train.steps, train.batch) == (4, 2, 16) and (annotator.epochs, annotator.batch) == (1, 16)
    assert train.lr == 0.05 and cut["cifar100"].data.target_size == 10.82  # the rest as it is


def select_cut(selection):  # type: ignore[no-untyped-def]
    from dataclasses import replace

    sizes = {"cub200": (5994, 5794, 200), "cifar100": (50_000, 10_000, 100), "dogs120": (36, 18, 6)}
    return replace(selection, profile=cut_profile(selection, 2, slow=True, sizes=sizes)).specs()


def test_a_folder_that_a_trial_has_not_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "mine").touch()
    with pytest.raises(UsageError, match="was not made by `trial`"):
        fresh_folder(tmp_path)
    assert (tmp_path / FOLDER / "mine").exists()
