"""Where runs are carried out: found by file, chosen by word, on the device that was asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmark.config.selection import select
from benchmark.runner.backends import dask
from benchmark.runner.options import RunOptions
from tests.conftest import ROOT, TinyBenchmark

THIRD = """
from benchmark.runner.backends.base import Backend
from benchmark.runner.progress import Progress


class Nowhere(Backend):
    name, title = "nowhere", "no runs at all"

    def run(self, specs, options, display=None):
        return Progress(len(specs))


BACKEND = Nowhere
"""
ASK = """
import sys
import benchmark.runner.backends as package
package.__path__.append(sys.argv[1])
found = package._found()
package.BACKENDS.update(found)
from benchmark.cli.main import main
sys.exit(main(["run", "--help"]))
"""


def test_a_file_is_a_back_end_that_the_command_line_offers(tmp_path: Path) -> None:
    (tmp_path / "nowhere.py").write_text(THIRD)
    done = subprocess.run([sys.executable, "-c", ASK, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "no runs at all" in " ".join(done.stdout.split()) and "nowhere" in done.stdout
    assert "torch" not in done.stderr


def test_a_dask_worker_uses_the_device_that_was_asked_for(tiny_benchmark: TinyBenchmark) -> None:
    options = RunOptions(tiny_benchmark.results, tiny_benchmark.folder / "data", device="cuda:99")
    spec = select(str(tiny_benchmark.profile)).specs()[0]
    outcome = dask.execute_here(spec.plain(), dask.as_plain(options))
    assert outcome["status"] == "failed" and "--device cuda:99" in outcome["reason"]
    prepared = dask.prepare_here({"a": spec.plain()}, dask.as_plain(options), False)
    assert prepared["a"]["status"] == "failed" and "--device cuda:99" in prepared["a"]["reason"]
