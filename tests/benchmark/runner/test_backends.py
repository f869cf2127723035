"""The devices of dask workers."""

from __future__ import annotations

from benchmark.config.selection import select
from benchmark.runner import dask
from benchmark.runner.options import RunOptions
from tests.conftest import TinyBenchmark


def test_a_dask_worker_uses_the_device_that_was_asked_for(tiny_benchmark: TinyBenchmark) -> None:
    options = RunOptions(tiny_benchmark.results, tiny_benchmark.folder / "data", device="cuda:99")
    spec = select(str(tiny_benchmark.profile)).specs()[0]
    for task in ("execute", "prepare"):
        outcome = dask.do_here(task, spec.plain(), dask.as_plain(options), "key")
        assert outcome["status"] == "failed" and "--device cuda:99" in outcome["reason"]
