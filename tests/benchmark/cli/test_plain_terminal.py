"""A terminal that is not UTF-8 gets question marks, never a traceback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT


def test_a_table_is_printed_on_a_terminal_without_its_characters(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "results/reference/runs", tmp_path / "runs")
    words = ("-m", "benchmark", "table2", "--no-run", "--profile", "quick", "--results", str(tmp_path))
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, text=True, capture_output=True)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert done.stdout.isascii() and "CEL" in done.stdout and "?" in done.stdout
