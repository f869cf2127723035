"""Many processes on one plan: every run once, none lost, a dead worker costs its own run alone. Real processes."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmark.files import Lock, is_locked
from tests.conftest import ROOT, TINY, TinyBenchmark
from tests.support.killing import documents, finish, held_by_another_process, kill, running, wait_until
from tests.support.plugins import CRASHES, DIES, DIES_LATE, DIES_ONCE, SLOW, write_plugin

Make = Callable[..., TinyBenchmark]


def grid(runs: int) -> str:
    seeds = ", ".join(map(str, range(runs // 2)))
    return TINY.replace("0, 1", seeds).replace("epochs = 3", "epochs = 12").replace("32", "16")


def working(bench: TinyBenchmark, groups: list[int]) -> list[tuple[int, Path]]:
    """Which of the commands, given by their process groups, are training right now, and which run."""
    found = []
    for folder in running(bench, 1):
        with contextlib.suppress(ProcessLookupError, KeyError):
            group = os.getpgid(documents(bench)[folder]["time"]["pid"])
            found += [(number, folder) for number, own in enumerate(groups) if own == group]
    return found


def holder(lock: Path) -> int:
    """The process that has a lock, as Linux knows it; 0 if none has."""
    with lock.open("rb") as stream:
        answer = fcntl.fcntl(stream, fcntl.F_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    kind, _, _, _, pid = struct.unpack("hhqqi4x", answer)
    return 0 if kind == fcntl.F_UNLCK else pid


def let_go(lock: Path, owner: int) -> bool:
    return holder(lock) != owner


@pytest.mark.parametrize(
    ("processes", "runs", "kills", "seed"),
    [(4, 8, 3, 0), *(pytest.param(8, 24, 12, seed, marks=pytest.mark.soak) for seed in range(5))],
)
def test_several_processes_with_kills_do_every_run_once(
    forked_benchmark: Make, processes: int, runs: int, kills: int, seed: int
) -> None:
    """Commands on one folder, some of them killed and started again; then every run is there, once."""
    alone, bench = forked_benchmark("alone", grid(runs)), forked_benchmark("together", grid(runs))
    assert alone.run("run").returncode == 0
    rng = random.Random(seed)
    words = ("run", "--jobs", "1", "--checkpoint-seconds", "0.05")
    commands = [bench.start(*words) for _ in range(processes)]
    for _ in range(kills):
        busy = wait_until(lambda: working(bench, [command.pid for command in commands]), 120, "a run in training")
        victim, folder = rng.choice(busy)
        owner = holder(folder / "lock")
        time.sleep(rng.uniform(0, 0.05))
        os.killpg(commands[victim].pid, signal.SIGKILL)
        wait_until(functools.partial(let_go, folder / "lock", owner), 1.0, "a lock without its killed owner")
        finish(commands[victim])
        commands[victim] = bench.start(*words)
    ends = [finish(command, 600) for command in commands]
    assert [code for code, _, _ in ends] == [0] * processes, ends
    found = list(documents(bench).values())
    assert len(found) == runs
    assert {d["status"] for d in found} == {"done"}
    # Once each: a run has more than one sitting only if a kill cut it off, and a kill cuts off one run at most.
    assert sum(d["time"]["sittings"] - 1 for d in found) <= kills
    reported = sum(out.count(" % in ") for _, out, _ in ends)
    assert reported <= runs
    assert bench.results_only() == alone.results_only()


def test_the_lock_of_a_killed_process_is_free_at_once_even_when_it_has_children(tmp_path: Path) -> None:
    with held_by_another_process(tmp_path / "lock") as owner:
        assert is_locked(tmp_path / "lock")
        assert not Lock(tmp_path / "lock").acquire()
        kill(owner)
        wait_until(lambda: not is_locked(tmp_path / "lock"), 1.0, "a free lock")
    lock = Lock(tmp_path / "lock")
    assert lock.acquire()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])  # must not inherit it
    lock.release()
    assert not is_locked(tmp_path / "lock")
    assert Lock(tmp_path / "lock").acquire()
    child.kill()
    child.wait()


def test_asking_whether_a_lock_is_held_never_takes_it(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
    assert lock.acquire()
    lock.release()
    script = (
        "import sys; from pathlib import Path; from benchmark.files import is_locked\n"
        "print('go', flush=True)\nwhile True: is_locked(Path(sys.argv[1]))"
    )
    asking = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "lock")], stdout=subprocess.PIPE, cwd=ROOT)
    assert asking.stdout is not None and asking.stdout.readline()
    try:
        for _ in range(3000):
            assert lock.acquire()
            lock.release()
    finally:
        asking.kill()
        asking.wait()


def test_workers_that_die_twice_cost_their_own_runs_alone(forked_benchmark: Make, tmp_path: Path) -> None:
    bench = forked_benchmark("bench", grid(2))
    bodies = {"dies": DIES, "dies-late": DIES_LATE, "crashes": CRASHES}
    plugins = [f"--plugin={write_plugin(tmp_path, name, body)}" for name, body in bodies.items()]
    done = bench.run("run", *plugins, "--jobs", "2")
    assert done.returncode == 1
    states = {d["method"]: d for d in documents(bench).values()}
    assert {name: d["status"] for name, d in states.items()} == {
        **dict.fromkeys(("proden", "cc"), "done"),
        **dict.fromkeys(bodies, "failed"),
    }
    for name in bodies:
        assert "died 2 times" in states[name]["reason"]
        assert states[name]["time"]["sittings"] == 2
        assert f"{name} seed 0: failed: its worker process died 2 times" in done.stdout


def test_a_worker_that_dies_once_is_replaced_and_its_run_resumed(forked_benchmark: Make, tmp_path: Path) -> None:
    marker = tmp_path / "died"
    plugin = write_plugin(tmp_path, "dies-once", DIES_ONCE.format(marker=str(marker)))
    words = ("run", "--plugin", str(plugin), "--methods", "dies-once", "--seeds", "0", "--checkpoint-seconds", "0")
    bench = forked_benchmark("bench", grid(4))
    done = bench.run(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    (document,) = documents(bench).values()
    assert document["status"] == "done" and document["time"]["sittings"] == 2
    first, second = document["sittings"]
    assert "finished" not in first and second["finished"] == document["time"]["finished"]
    assert first["typed"].startswith("./reproduce.sh run --plugin") and "--checkpoint-seconds 0" in first["typed"]
    assert first["environment"] == second["environment"] == document["environment"]
    assert document["environment"]["cores"] >= 1 and document["environment"]["cpu_capability"]
    untroubled = forked_benchmark("untroubled", grid(4))
    assert untroubled.run(*words).returncode == 0  # the marker is there, so nothing dies
    assert untroubled.results_only() == bench.results_only()


def test_a_run_that_failed_under_a_neighbour_is_not_tried_again_by_those_who_waited(
    forked_benchmark: Make, tmp_path: Path
) -> None:
    bench = forked_benchmark("bench", grid(2))
    body = SLOW.format(seconds=0.3) + "\n        if clock.step == 7:\n            raise ValueError('as asked')"
    plugin = write_plugin(tmp_path, "fails", body)
    words = ("run", "--plugin", str(plugin), "--methods", "fails", "--seeds", "0", "--jobs", "1")
    commands = [bench.start(*words) for _ in range(2)]
    ends = [finish(command) for command in commands]
    assert [code for code, _, _ in ends] == [1, 1]
    assert all("ValueError: as asked" in out for _, out, _ in ends)
    (document,) = documents(bench).values()
    assert document["time"]["sittings"] == 1
    assert bench.run(*words).returncode == 1  # it failed before this command, which tries it again
    (document,) = documents(bench).values()
    assert document["time"]["sittings"] == 2
