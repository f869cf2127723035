"""`benchmark.run`, as in a notebook."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.conftest import ROOT, TinyBenchmark

NOTEBOOK = """
import json, sys
import benchmark
assert not {"torch", "pandas", "numpy"} & sys.modules.keys()
words = dict(profile=sys.argv[1], results=sys.argv[2], seeds=0, jobs=2)
benchmark.run("cc", **words, quiet=True)
import torch  # from now on workers are spawned
runs = benchmark.run(["cc", "proden"], ["digits"], **words)
print(json.dumps(runs[["dataset", "method", "seed", "status", "accuracy"]].values.tolist()))
"""


def test_missing_runs_are_trained_with_a_bar_and_returned_as_a_frame(tiny_benchmark: TinyBenchmark) -> None:
    words = [sys.executable, "-c", NOTEBOOK, str(tiny_benchmark.profile), str(tiny_benchmark.results)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "1/1 [" in done.stdout and "digits cc seed 0" not in done.stdout  # that run was there
    rows = json.loads(done.stdout.splitlines()[-1])
    accuracies = {document["method"]: document["summary"]["accuracy"] for document in tiny_benchmark.documents()}
    assert rows == [["digits", name, 0, "done", accuracies[name]] for name in ("cc", "proden")]
