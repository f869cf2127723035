"""Full disks, exhausted memory, losses that are no numbers: one run ends, with its reason, and the others go on."""

from __future__ import annotations

import json
import math
import os
import re
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmark.store import runs
from benchmark.trainer import checkpoint
from benchmark.trainer.guard import GUARD_EVERY, Diverged, Guard
from tests.conftest import TINY, TinyBenchmark, make_tiny
from tests.support.killing import documents
from tests.support.plugins import BIG_STATE, GREEDY, GREEDY_PYTHON, INFINITE, NAN, write_plugin

Make = Callable[..., TinyBenchmark]
TWO = TINY.replace("0, 1", "0").replace(', "cc"', "").replace("epochs = 3", "epochs = 4").replace("1500", "1700")
TWO = TWO.replace("batch = 32", "batch = 16")
FILLS = """
        ballast = {path!r}
        if clock.step == 12 and not os.path.exists(ballast):
            with open(ballast, "wb", buffering=0) as stream:
                try:
                    while True:
                        stream.write(bytes(4096))
                except OSError:
                    pass"""


def by_method(bench: TinyBenchmark) -> dict[str, dict[str, Any]]:
    return {document["method"]: document for document in documents(bench).values()}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes, where this machine allows one to be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs needs root; the test with a file size limit covers the rest")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_ends_the_run_with_its_reason_and_keeps_the_last_checkpoint(
    forked_benchmark: Make, small_disk: Path, tmp_path: Path
) -> None:
    ballast = small_disk / "ballast"
    plugin = write_plugin(tmp_path, "fills", FILLS.format(path=str(ballast)))
    bench = make_tiny(small_disk, TWO)
    words = ("run", "--plugin", str(plugin), "--methods", "fills", "--jobs", "1", "--checkpoint-seconds", "0")
    done = bench.run(*words)
    assert done.returncode == 1
    assert "fills seed 0: failed: no space left on the disk" in done.stdout
    (folder,) = documents(bench)
    state = checkpoint.read(folder / checkpoint.CURRENT, documents(bench)[folder]["identity"])
    assert not list(folder.glob(".*.partial"))
    assert (state["epoch"], state["step_in_epoch"]) == (2, 0)  # step 12, before which the disk was not yet full
    # With the disk still full the command says so before it starts anything.
    full = bench.run(*words)
    assert full.returncode == 1 and "cannot be written (No space left on device)" in full.stderr
    ballast.write_bytes(b"")
    assert bench.run(*words).returncode == 0
    (document,) = documents(bench).values()
    assert document["status"] == "done" and document["time"]["sittings"] == 2


FREEZES = """
        folder = {folder!r}
        if clock.step == 12 and not os.path.exists({marker!r}):
            open({marker!r}, "w").close()
            import glob, subprocess
            subprocess.run(["chattr", "+i", *glob.glob(folder)], check=True)"""


def test_a_folder_that_turns_read_only_ends_its_run_and_keeps_the_last_checkpoint(
    forked_benchmark: Make, tmp_path: Path
) -> None:
    """As a disk that the system mounts read-only after an error, for the folder of one run alone."""
    bench = forked_benchmark("bench", TWO)
    pattern, marker = str(bench.results / "runs/*/freezes/*"), tmp_path / "frozen"
    if subprocess.run(["chattr", "+i", str(bench.folder)], capture_output=True).returncode:
        pytest.skip("this machine does not allow files to be made immutable")
    subprocess.run(["chattr", "-i", str(bench.folder)], check=True)
    plugin = write_plugin(tmp_path, "freezes", FREEZES.format(folder=pattern, marker=str(marker)))
    words = ("run", "--plugin", str(plugin), "--methods", "freezes,proden", "--jobs", "1", "--checkpoint-seconds", "0")
    try:
        done = bench.run(*words)
    finally:
        subprocess.run(["chattr", "-R", "-i", str(bench.results)], check=True)
    (folder,) = bench.results.glob("runs/*/freezes/*")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert re.search(r"freezes seed 0: failed: .*Operation not permitted", done.stdout)
    assert by_method(bench)["proden"]["status"] == "done"
    state = checkpoint.read(folder / checkpoint.CURRENT, documents(bench)[folder]["identity"])
    assert (state["epoch"], state["step_in_epoch"]) == (2, 0)
    assert "freezes seed 0: interrupted" in bench.run("status").stdout  # its record could not be written either
    again = bench.run(*words)
    assert again.returncode == 0, again.stdout
    assert by_method(bench)["freezes"]["time"]["sittings"] == 2


def test_on_an_accelerator_a_loss_that_is_no_number_is_noticed_within_fifty_steps() -> None:
    """There the losses are looked at together, because each look waits for the device; the step named is the first."""
    assert GUARD_EVERY <= 50
    for first in range(60):
        guard = Guard(GUARD_EVERY)
        with pytest.raises(Diverged, match=rf"at step {first} \(training rows {first}, 7\)"):
            for step in range(first + 50):
                loss = torch.tensor(math.nan if step >= first else 1.0)
                guard.watch(step, loss, torch.tensor([step, 7]))


def test_a_file_that_may_not_grow_fails_its_own_run_alone(forked_benchmark: Make, tmp_path: Path) -> None:
    """The limit on file sizes acts like a full disk for large checkpoints only."""
    plugin = write_plugin(tmp_path, "big", BIG_STATE)
    bench = forked_benchmark("bench", TWO)
    words = ("run", "--plugin", str(plugin), "--jobs", "1", "--checkpoint-seconds", "0")
    done = bench.run(*words, limit=(resource.RLIMIT_FSIZE, 3 << 20))
    states = by_method(bench)
    assert done.returncode == 1
    assert states["proden"]["status"] == "done"
    assert states["big"]["status"] == "failed" and "File too large" in states["big"]["reason"]


def test_a_loss_that_is_no_number_is_diverged_and_never_a_number_in_a_table(
    forked_benchmark: Make, tmp_path: Path
) -> None:
    bench = forked_benchmark("bench", TWO)
    plugins = [
        f"--plugin={write_plugin(tmp_path, name, body)}" for name, body in (("nan", NAN), ("infinite", INFINITE))
    ]
    done = bench.run("table2", *plugins)
    assert done.returncode == 3
    states = by_method(bench)
    assert states["proden"]["status"] == "done"
    frame = runs(bench.results).set_index("method")
    for name, word in (("nan", "nan"), ("infinite", "inf")):
        document = states[name]
        assert document["status"] == "diverged"
        assert f"the loss became {word} at step 7" in document["reason"] and "training rows" in document["reason"]
        assert "summary" not in document
        assert frame.loc[name, "status"] == "diverged"
        assert frame.loc[name, ["accuracy", "accuracy_last10", "accuracy_oracle"]].isna().all()
        line = next(line for line in done.stdout.splitlines() if line.lstrip().startswith(name))
        assert not any(character.isdigit() for character in line.replace("0/1", ""))
    # The same seed would diverge again: it is not repeated, and still not complete.
    again = bench.run("run", *plugins)
    assert again.returncode == 1 and "diverged" in again.stdout
    assert {d["time"]["sittings"] for d in by_method(bench).values()} == {1}


def test_exhausted_memory_is_oom_with_its_peak_and_frees_the_slot(forked_benchmark: Make, tmp_path: Path) -> None:
    bench = forked_benchmark("bench", TWO)
    plugins = {name: write_plugin(tmp_path, name, b) for name, b in (("greedy", GREEDY), ("greedy2", GREEDY_PYTHON))}
    words = ("run", *(f"--plugin={path}" for path in plugins.values()), "--methods", "greedy,greedy2,proden")
    done = bench.run(*words, "--jobs", "1", limit=(resource.RLIMIT_AS, 12 << 30))
    assert done.returncode == 1
    states = by_method(bench)
    assert {name: d["status"] for name, d in states.items()} == {"greedy": "oom", "greedy2": "oom", "proden": "done"}
    for name in plugins:
        assert "out of memory (peak" in states[name]["reason"]
        assert states[name]["config"]["train"]["batch"] == 16
    assert len({d["time"]["pid"] for d in states.values()}) == 3  # runs of plug-ins have processes of their own


def test_results_that_cannot_be_written_are_one_sentence(forked_benchmark: Make) -> None:
    bench = forked_benchmark("bench", TWO)
    (bench.folder / "file").write_text("")
    for place in (bench.folder / "file" / "results", Path("/proc/candid")):
        done = bench.run("run", "--results", str(place))
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1 and "cannot be written" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_read_only_disk_can_be_read_and_is_refused_for_writing(forked_benchmark: Make) -> None:
    bench = forked_benchmark("bench", TWO)
    assert bench.run("run").returncode == 0
    bind = ["mount", "--bind", str(bench.results), str(bench.results)]
    if subprocess.run(bind, capture_output=True).returncode:
        pytest.skip("this machine does not allow mounts")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(bench.results)], check=True)
        assert "1 done" in bench.run("status").stdout
        more = bench.run("run", "--seeds", "1")
        assert more.returncode == 1 and "cannot be written (Read-only file system)" in more.stderr
        document = next(bench.results.glob("runs/*/*/*/run.json"))
        assert json.loads(document.read_text())["status"] == "done"
    finally:
        subprocess.run(["umount", str(bench.results)], check=True)
