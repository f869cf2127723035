"""Killed, stopped, alone or in company: the same command ends in the same bytes. Real processes throughout."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmark.trainer import checkpoint
from tests.conftest import ROOT, TinyBenchmark, make_tiny
from tests.support.killing import (
    EPOCHS,
    OFTEN,
    SMALL,
    THIRTEEN,
    documents,
    finish,
    kill_workers,
    locked,
    running,
    wait_until,
)

Make = Callable[..., TinyBenchmark]
ROUNDS = 6  # in which every method must have been killed twice


def by_method(bench: TinyBenchmark) -> dict[str, Any]:
    """Result fields by method."""
    return {key.split("/")[1]: value for key, value in bench.results_only().items()}


def saved_epochs(folder: Path, identity: str) -> list[str]:
    """The lines of metrics.jsonl that the newest checkpoint stands on; they hold measured times, so they are unique."""
    state = checkpoint.load(folder, identity)
    return (folder / "metrics.jsonl").read_text().splitlines()[: state["epoch"]] if state else []


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Thirteen methods in one sweep that nobody disturbs."""
    bench = make_tiny(tmp_path_factory.mktemp("undisturbed"), SMALL)
    done = bench.run("run")
    assert done.returncode == 0, done.stdout + done.stderr
    results = by_method(bench)
    assert sorted(results) == sorted(THIRTEEN.split(","))
    assert all(len(epochs) == EPOCHS for _, _, _, epochs in results.values())
    return results


def test_thirteen_methods_killed_twice_each_end_in_the_same_bytes(
    forked_benchmark: Make, undisturbed: dict[str, Any]
) -> None:
    seed = int(os.environ.get("CANDID_KILL_SEED", random.randrange(10**6)))
    print(f"CANDID_KILL_SEED={seed}")  # shown when the test fails
    rng, resumed = random.Random(seed), 0
    left = set(THIRTEEN.split(","))
    for number in range(ROUNDS):
        bench = forked_benchmark(f"killed-{number}", SMALL)
        words = ("run", "--methods", ",".join(sorted(left)), *OFTEN)
        command = bench.start(*words)
        kill_workers(bench, command, 2, rng)
        code, _, _ = finish(command)
        # A second death gives a run up, with the reason, and the others go on. On a busy machine a fast method may be
        # done before it: then it has its turn again in the next round.
        found = documents(bench)
        states = {document["method"]: document for document in found.values()}
        killed_twice = {name for name, document in states.items() if "died 2 times" in document["reason"]}
        assert code == (1 if killed_twice else 0)
        assert {name: d["status"] for name, d in states.items()} == {
            name: "failed" if name in killed_twice else "done" for name in left
        }
        saved = {folder: saved_epochs(folder, document["identity"]) for folder, document in found.items()}
        again = bench.run(*words)
        assert again.returncode == 0, again.stdout + again.stderr
        assert by_method(bench) == {name: undisturbed[name] for name in left}
        # Resumed, not repeated: epochs recorded before the kill kept their measured times.
        for folder, lines in saved.items():
            assert (folder / "metrics.jsonl").read_text().splitlines()[: len(lines)] == lines
        assert not list(bench.results.glob("runs/**/checkpoint*"))
        resumed += sum(len(lines) > 0 for lines in saved.values())
        left -= killed_twice
        if not left:
            break
    assert not left, f"never killed twice in {ROUNDS} rounds"
    assert resumed >= 4


def test_the_whole_program_killed_leaves_free_locks_and_resumes(forked_benchmark: Make) -> None:
    # Long enough that no run ends between the parent's death and its workers' notice of it.
    words = ("run", "--methods", "pico,nepll", "--epochs", str(8 * EPOCHS), *OFTEN)
    undisturbed, bench = forked_benchmark("undisturbed", SMALL), forked_benchmark("program", SMALL)
    undisturbed.run(*words, check=True)
    # First the parent alone: its workers must notice and let go.
    command = bench.start(*words)
    wait_until(lambda: running(bench), 60, "a recorded epoch")
    command.kill()
    wait_until(lambda: not locked(bench), 1.0, "a free lock after the parent was killed")
    finish(command)
    # Then everything at once, as a machine that loses power would.
    command = bench.start(*words)
    wait_until(lambda: len(running(bench, 2)) > 0, 60, "a second epoch")
    os.killpg(command.pid, signal.SIGKILL)
    wait_until(lambda: not locked(bench), 1.0, "a free lock after the group was killed")
    finish(command)
    assert "interrupted" in bench.run("status").stdout
    done = bench.run(*words)
    assert done.returncode == 0, done.stderr
    assert by_method(bench) == by_method(undisturbed)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_command_saves_says_interrupted_and_resumes(
    forked_benchmark: Make, undisturbed: dict[str, Any], number: signal.Signals, code: int
) -> None:
    bench = forked_benchmark("stopped", SMALL)
    words = ("run", "--methods", "idgp,cel")
    command = bench.start(*words)
    wait_until(lambda: running(bench), 60, "a recorded epoch")
    if number == signal.SIGINT:
        os.killpg(command.pid, number)  # a terminal sends Ctrl-C to the whole group
    else:
        command.send_signal(number)
    found, _, err = finish(command)
    assert found == code and "Traceback" not in err
    stopped = [d for d in documents(bench).values() if d["status"] != "done"]
    assert stopped and {d["status"] for d in stopped} == {"interrupted"}
    saved = list(bench.results.glob("runs/*/*/*/checkpoint.pt"))
    assert len(saved) == len(stopped)  # saved when asked to stop, long before a checkpoint was due
    assert bench.run(*words).returncode == 0
    assert by_method(bench) == {name: undisturbed[name] for name in ("idgp", "cel")}


# The command starts the longest runs first; a pool by itself takes them as they come. Arguments: folder, methods.
IN_ORDER = """
import sys
from pathlib import Path
from benchmark.config.selection import select
from benchmark.runner.pool import carry_out, local_slots
from benchmark.runner.options import RunOptions

folder, methods = Path(sys.argv[1]), sys.argv[2].split(",")
place = RunOptions(folder / "results", folder / "data")
selection = select(str(folder / "tiny.toml"))
specs = [spec for name in methods for spec in selection.specs([name])]
done = carry_out(specs, local_slots(["cpu"]), place)
sys.exit(any(outcome.status != "done" for _, outcome in done.outcomes))
"""


@pytest.mark.parametrize("names", ["valen,proden,dirk", pytest.param(THIRTEEN, marks=pytest.mark.soak)])
def test_alone_in_any_order_and_with_more_jobs_methods_give_the_same_bytes(
    forked_benchmark: Make, undisturbed: dict[str, Any], names: str
) -> None:
    methods = names.split(",")
    expected = {name: undisturbed[name] for name in methods}
    alone = forked_benchmark("alone", SMALL)
    for name in methods:
        assert alone.run("run", "--methods", name, "--jobs", "1").returncode == 0
    assert by_method(alone) == expected
    company = forked_benchmark("company", SMALL)
    assert company.run("run", "--methods", f"average,{names}", "--jobs", "3").returncode == 0
    assert {name: by_method(company)[name] for name in methods} == expected
    reverse = forked_benchmark("reverse", SMALL)  # in one worker, each after another neighbour
    command = [sys.executable, "-c", IN_ORDER, str(reverse.folder), ",".join(methods[::-1])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert by_method(reverse) == expected


@pytest.mark.soak
def test_thirteen_methods_killed_twenty_five_times_each(tmp_path: Path) -> None:
    text = SMALL.replace(f"epochs = {EPOCHS}", "epochs = 160")  # the fastest must not end before its 25th
    plain = make_tiny(tmp_path, text)
    assert plain.run("run").returncode == 0
    expected = by_method(plain)
    rng = random.Random(0)
    (tmp_path / "killed").mkdir()
    bench = make_tiny(tmp_path / "killed", text)
    total: dict[str, int] = dict.fromkeys(THIRTEEN.split(","), 0)
    for _ in range(60):
        left = {name for name, count in total.items() if count < 25}
        if not left:
            break
        command = bench.start("run", "--methods", ",".join(sorted(left)), *OFTEN)
        kills = kill_workers(bench, command, 2, rng, seconds=0.15)
        finish(command, 900)
        for name, count in kills.items():
            total[name] += count
    done = bench.run("run", *OFTEN)
    assert done.returncode == 0, done.stdout
    print(total)
    assert min(total.values()) >= 25
    assert by_method(bench) == expected
