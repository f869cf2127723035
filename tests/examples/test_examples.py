"""Every script of examples/ runs and shows what its docstring says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from benchmark import store
from methods.base import Clock
from methods.registry import discover, load
from tests.conftest import ROOT, TinyBenchmark
from tests.support.tiny import TinyOptimiser, tiny_batch, tiny_task, train

EXAMPLES = ROOT / "examples"
REFERENCE = ROOT / "results" / "reference"


def run(name: str, *words: object) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, str(EXAMPLES / name), *map(str, words)]
    return subprocess.run(call, text=True, capture_output=True, timeout=120)


def test_the_list_is_complete() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.py"):
        assert f"[`{path.name}`]({path.name})" in text


def test_ema_teacher_passes_the_check() -> None:
    words = [sys.executable, "-m", "benchmark", "check", str(EXAMPLES / "ema_teacher.py")]
    done = subprocess.run(words, cwd=ROOT, text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ema_teacher_has_the_batch_norm_statistics_of_its_student() -> None:
    task = tiny_task()
    entry = discover((EXAMPLES / "ema_teacher.py",)).entries["ema-teacher"]
    cls = load(entry)
    method: Any = cls(cls.Config(), task)
    train(method, task, TinyOptimiser(method), range(10))
    teacher, student = method.teacher, method.student
    for name, buffer in teacher.named_buffers():
        assert torch.equal(buffer, student.get_buffer(name)), name
    assert any(not torch.equal(p, q) for p, q in zip(teacher.parameters(), student.parameters(), strict=True))
    assert not torch.equal(teacher.backbone.layers[1].running_var, torch.ones(8))
    method.training_step(tiny_batch(task, range(8)), Clock(3, 15, 4, 5))
    assert not teacher.training and student.training


def test_curves_and_tables_agree_with_the_stored_runs(tmp_path: Path) -> None:
    done = run("curves_and_tables.py", REFERENCE, "frozen", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "out" / "accuracy.csv", header=[0, 1], index_col=0)
    runs = store.runs(REFERENCE, "frozen").query("label == 'cel' and status == 'done'")
    assert table.loc["cel", ("mean", "cub200")] == pytest.approx(runs["accuracy"].mean())
    assert table.loc["cel", ("count", "cub200")] == len(runs) > 1
    latex = (tmp_path / "out" / "accuracy.tex").read_text()
    assert f"cel & {runs['accuracy'].mean():.2f}" in latex and r"\toprule" in latex
    assert (tmp_path / "out" / "curves.png").stat().st_size > 10_000


def test_own_data_reaches_a_high_accuracy() -> None:
    done = run("own_data.py")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("test accuracy")]
    assert float(line.split()[2]) > 90


@pytest.mark.parametrize(("network", "dataset"), [("SmallResNet", "digits"), ("FeatureNetwork", "table.csv")])
def test_own_network_trains(tiny_benchmark: TinyBenchmark, network: str, dataset: str) -> None:
    rows = "".join(f"{k % 7},{k % 5},{'cat|lynx' if k % 2 else 'dog|fox'}\n" for k in range(60))
    (tiny_benchmark.folder / "table.csv").write_text("a,b,candidates\n" + rows)
    name = f"backbone.name={EXAMPLES / 'own_network.py'}:{network}"
    if dataset == "digits":
        words = ["run", "--methods", "proden", "--seeds", "0", "--epochs", "1"]
    else:
        words = ["fit", "table.csv", "--method", "proden", "--epochs", "1"]
    done = tiny_benchmark.run(*words, "--set", name, folder=tiny_benchmark.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (document,) = tiny_benchmark.documents()
    assert document["status"] == "done" and f"own_network.py:{network}" in document["label"]


def test_without_arguments_it_says_its_usage() -> None:
    done = run("curves_and_tables.py")
    assert done.returncode == 1 and done.stderr.startswith("usage: ")
