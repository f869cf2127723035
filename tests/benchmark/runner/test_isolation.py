"""A plug-in cannot change the numbers of other methods: separate processes, and checked global settings."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmark.config.selection import select
from benchmark.errors import CandidError
from benchmark.runner.options import RunOptions
from benchmark.runner.worker import execute
from benchmark.trainer.device import changed_settings, check_global_state
from tests.conftest import ROOT, TinyBenchmark
from tests.support.broken_plugins import plugin

CHANGES = {
    "dtype": "torch.set_default_dtype(torch.float64)",
    "precise": "torch.set_float32_matmul_precision('medium'); torch.backends.mkldnn.enabled = False; "
    "torch.nn.functional.relu = torch.nn.functional.gelu; "
    "import benchmark.runner.worker as w; w.summarise = lambda records: {'accuracy': 99.9}",
}


def write_plugin(folder: Path, name: str, code: str) -> Path:
    lines = [
        "    def __init__(self, config, task):",
        f"        {code}",
        "        super().__init__(config, task)",
    ]
    path = folder / f"{name}.py"
    path.write_text(plugin(name, init="\n".join([*lines, "        self.network = Classifier(task)"])))
    return path


def test_plugins_change_no_other_run(forked_benchmark: Callable[..., TinyBenchmark], tmp_path: Path) -> None:
    words = ("run", "--jobs", "1", "--epochs", "1")
    alone, beside = forked_benchmark("alone"), forked_benchmark("beside")
    alone.run(*words, check=True)
    plugins = [f"--plugin={write_plugin(tmp_path, name, code)}" for name, code in CHANGES.items()]
    beside.run(*words, *plugins, "--methods", f"{','.join(CHANGES)},proden,cc")
    tried = {document["method"] for document in beside.documents()}
    others = {key: run for key, run in beside.results_only().items() if key.split("/")[1].split("[")[0] not in CHANGES}
    assert tried > set(CHANGES) and others == alone.results_only() and len(others) == 4


def test_check_reports_a_plugin_that_changes_global_settings(tmp_path: Path) -> None:
    path = write_plugin(tmp_path, "precise", "torch.set_float32_matmul_precision('medium')")
    words = [sys.executable, "-m", "benchmark", "check", str(path)]
    done = subprocess.run(words, cwd=ROOT, text=True, capture_output=True, timeout=120)
    line = path.read_text().splitlines().index("        torch.set_float32_matmul_precision('medium')") + 1
    assert done.returncode == 1 and f"precise.py:{line}" in done.stdout and "matmul_precision" in done.stdout


def test_a_run_does_not_start_from_other_global_settings(tiny_benchmark: TinyBenchmark) -> None:
    (spec, *_) = select(str(tiny_benchmark.profile), methods="cc", seeds="0").specs()
    assert not changed_settings()
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(CandidError, match="matmul_precision"):
            check_global_state(torch.device("cpu"))
        outcome = execute(spec, RunOptions(tiny_benchmark.results, tiny_benchmark.folder / "data"))
    finally:
        torch.set_float32_matmul_precision("highest")
    assert outcome.status == "failed" and "matmul_precision" in outcome.reason
    assert not list(tiny_benchmark.results.glob("runs/**/run.json"))
