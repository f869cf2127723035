"""Annotators are runs: killed and resumed, side by side, in `status`, in no frame, and never in the way of what is ready."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from benchmark.config.selection import select
from benchmark.config.spec import RunSpec, digest_of
from benchmark.runner.progress import Lines, Progress
from benchmark.runner.provenance import cpu_name
from benchmark.runner.schedule import CandidateJob, PendingRun, Schedule, candidate_jobs
from benchmark.store import annotators, runs
from tests.conftest import TINY, TinyBenchmark
from tests.support.killing import finish, held_by_another_process, wait_until

Make = Callable[..., TinyBenchmark]
EPOCHS = 30  # enough for three interruptions


def profile(epochs: int) -> str:
    network = f"""generator = "instance"
backbone = {{ name = "small-cnn" }}
annotator = {{ network = "small-cnn", epochs = {epochs}, batch = 8 }}
"""
    return TINY.replace("epochs = 3", "epochs = 1").replace("1500", "1400").replace('generator = "uniform"\n', network)


def epochs_of(bench: TinyBenchmark) -> int:
    return sum(len(run.epochs()) for run in annotators(bench.results))


def sets_of(bench: TinyBenchmark) -> dict[str, str]:
    """SHA-256 of the candidate sets and of the annotator's weights, by file and folder."""
    found = {run.path.name: str(run.document.get("weights_sha256")) for run in annotators(bench.results)}
    for path in sorted(bench.results.glob("candidates/digits/*.npz")):
        with np.load(path) as arrays:
            found[path.name] = json.loads(arrays["meta"].tobytes())["sha256"]
    return found


def test_an_annotator_killed_in_every_way_makes_the_same_sets_and_runs(forked_benchmark: Make) -> None:
    whole, killed = forked_benchmark("whole", profile(EPOCHS)), forked_benchmark("killed", profile(EPOCHS))
    words = ("run", "--jobs", "1", "--seeds", "0", "--methods", "proden", "--checkpoint-seconds", "0.1")
    assert whole.run(*words).returncode == 0
    seen = 0
    for number, code in ((signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGINT, 130)):
        command = killed.start(*words)
        wait_until(lambda least=seen: epochs_of(killed) > least + 1, 120, "an annotator at work")  # type: ignore[misc]
        if number == signal.SIGKILL:
            (running,) = annotators(killed.results)
            assert running.status == "running" and "digits annotator seed 999999: epoch" in killed.run("status").stdout
            os.killpg(command.pid, number)
        else:
            command.send_signal(number)
        assert finish(command)[0] == code
        # A killed worker is gone, and its lock with it, a moment after the command.
        wait_until(lambda: next(annotators(killed.results)).status == "interrupted", 10, "the lock of the killed")
        assert seen < epochs_of(killed) < EPOCHS
        seen = epochs_of(killed)
    assert killed.run(*words).returncode == 0
    assert sets_of(killed) == sets_of(whole) and len(sets_of(whole)) == 2
    assert killed.results_only() == whole.results_only()
    (done,) = annotators(killed.results)
    assert done.status == "done" and len(done.epochs()) == EPOCHS and done.has_model()
    assert set(runs(killed.results).method) == {"proden"}
    assert not list(killed.results.rglob("checkpoint*"))


def test_two_commands_make_different_sets_at_the_same_time(forked_benchmark: Make) -> None:
    """The second passes over what the first is at, instead of waiting for it."""
    first_set = profile(EPOCHS)
    second_set = first_set[first_set.index("[data.digits]") :].replace("digits", "fashion").replace("1400", "100")
    text = first_set.replace('["digits"]', '["digits", "fashion"]') + second_set.replace(
        "test =", "train = 600, test ="
    )
    bench = forked_benchmark("bench", text)
    words = ("run", "--jobs", "1", "--seeds", "0", "--methods", "proden")
    commands = [bench.start(*words) for _ in range(2)]
    wait_until(
        lambda: [run.status for run in annotators(bench.results)] == ["running", "running"], 120, "both annotators"
    )
    ends = [finish(command) for command in commands]
    assert [code for code, _, _ in ends] == [0, 0]
    assert sum(out.count(" % in ") for _, out, _ in ends) == 2


def test_sets_say_where_their_annotator_was_trained_and_can_be_copied(forked_benchmark: Make) -> None:
    here, there = forked_benchmark("here", profile(1)), forked_benchmark("there", profile(1))
    assert here.run("candidates", "--seeds", "0").returncode == 0
    (made,) = here.results.glob("candidates/digits/instance-*.npz")
    file = there.results / "candidates" / "digits" / made.name
    file.parent.mkdir(parents=True)
    shutil.copy(made, file)
    assert there.run("candidates", "--seeds", "0").returncode == 0
    assert list(sets_of(there)) == [file.name]
    assert file.read_bytes() == made.read_bytes()
    with np.load(file) as arrays:
        environment = json.loads(arrays["meta"].tobytes())["environment"]
    assert environment["device"] == "cpu" and environment["device_name"] == cpu_name()
    assert environment["torch"] == torch.__version__ and environment["code_version"]


# The schedule ----------------------------------------------------------------------------------------------------------


def specs(**words: Any) -> list[RunSpec]:
    return select("quick", methods="proden", datasets=words.get("datasets", "fashion,digits"), seeds="0,1").specs()


def test_a_run_starts_as_soon_as_its_own_set_is_ready() -> None:
    schedule = Schedule(specs(), slots=2)
    fashion, digits = schedule.take(), schedule.take()
    assert (
        isinstance(fashion, CandidateJob)
        and isinstance(digits, CandidateJob)
        and (fashion.dataset, digits.dataset) == ("fashion", "digits")
    )
    for key in fashion.specs:
        assert schedule.prepared(key) == []
    schedule.leave(fashion)
    runs = [schedule.take(), schedule.take()]
    assert [run.spec.dataset for run in runs if isinstance(run, PendingRun)] == ["fashion", "fashion"]
    for key in digits.specs:
        assert [spec.dataset for spec in schedule.prepared(key, usable=False)] == ["digits"]
    for work in (digits, *runs):
        assert work is not None
        schedule.leave(work)
    assert schedule.take() is None


def test_a_single_slot_makes_the_next_set_when_the_runs_of_the_last_are_done() -> None:
    schedule, order = Schedule(specs(), slots=1), []
    while (work := schedule.take()) is not None:
        order.append(f"{work.dataset} sets" if isinstance(work, CandidateJob) else f"{work.spec.dataset} run")
        for key in work.specs if isinstance(work, CandidateJob) else ():
            schedule.prepared(key)
        schedule.leave(work)
    assert order == ["fashion sets", "fashion run", "fashion run", "digits sets", "digits run", "digits run"]


def test_seeds_share_an_annotator_unless_they_are_other_splits() -> None:
    assert [len(sets.specs) for sets in candidate_jobs(specs(datasets="digits"))] == [2]
    split = select("quick", methods="proden", datasets="digits", seeds="0,1", settings=("data.split=-1",))
    assert [len(sets.specs) for sets in candidate_jobs(split.specs())] == [1, 1]


# Shown -----------------------------------------------------------------------------------------------------------------


def test_plain_output_has_a_heartbeat_with_epoch_and_time_left(
    forked_benchmark: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = forked_benchmark("bench", profile(1))
    assert bench.run("candidates", "--seeds", "0").returncode == 0
    progress, lines = Progress(1, preparing={0: "digits"}), Lines(bench.results)
    lines(progress)
    assert capsys.readouterr().out == ""  # only what takes its time is named
    progress.started -= 60
    lines(progress)
    assert capsys.readouterr().out == "digits: drawing its candidate labels\n"
    (folder,) = annotators(bench.results)
    folder.document["config"]["train"]["epochs"] = 30
    digest = digest_of(folder.document["config"])
    folder.write(folder.document | {"status": "running", "config_digest": digest})
    folder.metrics.unlink()
    for epoch in range(10):
        folder.append_epoch({"epoch": epoch, "result": {"loss": 1.0}, "time": {"seconds": 6.0}})
    os.utime(folder.metrics, (time.time() + 60, time.time() + 60))  # a disk whose clock is ahead
    with held_by_another_process(folder.path / "lock"):
        lines(progress)
        lines.next["digits"] -= 60
        lines(progress)
    assert capsys.readouterr().out == "digits annotator: epoch 10/30, 2 min 00 s left\n"
    assert [run.status for run in annotators(bench.results)] == ["interrupted"]


def test_without_runs_no_annotator_is_trained(forked_benchmark: Make) -> None:
    bench = forked_benchmark("bench", profile(1))
    found = bench.run("table1", "--no-run")
    assert found.returncode == 3
    assert "the annotator of digits is not trained; rerun without --no-run" in " ".join(found.stdout.split())
    assert not list(bench.results.glob("candidates/*/*.npz"))
    assert bench.run("table1").returncode == 0


def test_an_annotator_at_chance_is_said_by_every_command_that_trains_on_its_sets(forked_benchmark: Make) -> None:
    bench = forked_benchmark("bench", profile(1).replace("batch = 8", "batch = 8, lr = 1e-7"))
    for _ in range(2):  # also when the sets are there already
        said = bench.run("run", "--seeds", "0,1", "--methods", "proden", "--epochs", "1", "--jobs", "1")
        assert said.returncode == 0
        assert said.stderr.count("warning: digits: the annotator is near chance") == 1
        for path in bench.results.glob("runs/*/proden/*/run.json"):
            path.unlink()
