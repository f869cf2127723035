"""The benchmark. `benchmark.run` trains runs from Python, `from benchmark import store` reads results.

docs/architecture.md has the packages and the order in which they import each other; tests/test_architecture.py checks it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas


def run(
    methods: str | Iterable[str] | None = None,
    datasets: str | Iterable[str] | None = None,
    seeds: int | Iterable[int] | None = None,
    profile: str = "quick",
    results: Path | str = "results",
    data: Path | str | None = None,
    plugins: Iterable[str] = (),
    settings: Iterable[str] = (),
    jobs: int | None = None,
    device: str = "auto",
    quiet: bool = False,
) -> pandas.DataFrame:
    """Train the runs of a selection that are missing, with a progress bar, and return one row per run.

    Arguments are as on the command line; lists are allowed, `settings` are those of `--set`. The columns are those of
    `store.runs()`.
    """
    import sys

    from benchmark.config.selection import select
    from benchmark.files import ROOT, ensure_writable
    from benchmark.runner.devices import parse_jobs, resolve
    from benchmark.runner.missing import refuse_missing
    from benchmark.runner.options import RunOptions
    from benchmark.runner.pool import carry_out, local_slots
    from benchmark.runner.progress import Bars
    from benchmark.runner.schedule import cost
    from benchmark.store import Store, run_frame

    def comma_list(names: str | int | Iterable[str | int] | None) -> str | None:
        return str(names) if isinstance(names, str | int) else ",".join(map(str, names)) if names is not None else None

    selection = select(
        profile,
        methods=comma_list(methods),
        datasets=comma_list(datasets),
        seeds=comma_list(seeds),
        plugins=tuple(plugins),
        settings=tuple(settings),
    )
    specs, results, data = selection.specs(), Path(results), Path(data or ROOT / "data")
    todo = sorted(Store(results).status(specs).todo, key=lambda spec: -cost(spec, selection.entry(spec.method)))
    if todo:
        devices = parse_jobs(None if jobs is None else str(jobs), resolve(device))[: len(todo)]
        refuse_missing(todo, data)
        ensure_writable(results)
        slots = local_slots(
            devices, fork="torch" not in sys.modules
        )  # a process that has used torch must not be forked
        place = RunOptions(results, data, devices[0], typed="benchmark.run")
        carry_out(todo, slots, place, None if quiet else Bars(results))
    return run_frame(Store(results).runs_of_plan(specs, {spec.digest: spec.label for spec in specs}))
