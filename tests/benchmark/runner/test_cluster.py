"""Several machines, as far as one machine can show it: a real dask scheduler with real workers, a real Slurm."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmark.config.selection import select
from benchmark.errors import CandidError
from benchmark.runner import dask
from benchmark.runner.options import RunOptions
from tests.conftest import ROOT, TINY, TinyBenchmark, make_tiny
from tests.support.killing import documents, finish, kill, running, wait_until
from tests.support.plugins import DIES_LATE, DIES_ONCE, write_plugin

Make = Callable[..., TinyBenchmark]
Cluster = tuple[str, subprocess.Popen[bytes], list[subprocess.Popen[bytes]]]  # address, scheduler, workers
EIGHT = TINY.replace("[0, 1]", "[0, 1, 2, 3]").replace("epochs = 3", "epochs = 9")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The eight runs of one command on this machine."""
    bench = make_tiny(tmp_path_factory.mktemp("alone"), EIGHT)
    assert bench.run("run").returncode == 0
    return bench.results_only()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def dask_cluster(
    folder: Path, workers: int, threads: int = 1, deaths: int = 3, preload: tuple[str, ...] = ()
) -> Iterator[Cluster]:
    """A scheduler and workers as they are started by hand, on loopback, in a folder that is not the checkout's.

    After more than so many deaths of its workers dask gives a task up. `preload`: code that a worker begins with.
    """
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    environment = os.environ | {
        "DASK_DISTRIBUTED__WORKER__DAEMON": "False",
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(deaths),
        "TMPDIR": str(folder),  # where workers say which card they have
    }
    processes: list[subprocess.Popen[bytes]] = []

    def start(module: str, *words: str) -> subprocess.Popen[bytes]:
        log = (folder / f"{module}-{len(processes)}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{module}", *words], cwd=folder, stdout=log, stderr=log,
            start_new_session=True, env=environment,
        )  # fmt: skip
        processes.append(process)
        return process

    try:
        scheduler = start("dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
        options = ["--nthreads", str(threads), "--no-nanny", "--no-dashboard", "--local-directory", str(folder)]
        options += [word for code in preload for word in ("--preload", code)]
        started = [start("dask_worker", address, *options) for _ in range(workers)]
        yield address, scheduler, started
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_dask_does_every_run_once_although_workers_are_killed(
    forked_benchmark: Make, tmp_path: Path, alone: dict[str, Any]
) -> None:
    """A dask worker is killed from outside; a plug-in kills the process of its own twice, and is given up."""
    bench = forked_benchmark("dask", EIGHT)
    plugin = write_plugin(tmp_path, "dies-late", DIES_LATE)
    with dask_cluster(tmp_path, workers=2) as (address, _, workers):
        words = ("--backend", "dask", "--scheduler", address, "--plugin", str(plugin))
        command = bench.start("run", *words, "--methods", "proden,cc,dies-late", "--checkpoint-seconds", "0.05")
        pids = {worker.pid for worker in workers}

        def busy_worker() -> int | None:
            return next((p for f in running(bench, 1) if (p := documents(bench)[f]["time"]["pid"]) in pids), None)

        kill(wait_until(busy_worker, 120, "a dask worker in training"))
        code, out, err = finish(command, 240)
    assert code == 1, out + err
    found = [d for d in documents(bench).values() if d["method"] != "dies-late"]
    assert len(found) == 8 and {d["status"] for d in found} == {"done"} and {d["time"]["pid"] for d in found} <= pids
    assert sum(d["time"]["sittings"] for d in found) <= 9  # one session each, and one more for the run that was cut off
    assert out.count(" % in ") == 8 and err.count("warning: dask worker tcp://127.0.0.1:") == 1, err
    assert re.search(r"died; resuming digits (proden|cc) seed \d from its last checkpoint", err)
    assert {key: run for key, run in bench.results_only().items() if "/dies-late/" not in key} == alone
    plugins = [d for d in documents(bench).values() if d["method"] == "dies-late"]
    assert len(plugins) == 4 and all("died 2 times" in d["reason"] and d["status"] == "failed" for d in plugins)
    assert err.count("digits dies-late seed 0 died (signal 9); resuming") == 1


def test_a_run_that_dask_gives_up_is_tried_again_and_the_others_go_on(forked_benchmark: Make, tmp_path: Path) -> None:
    """Dask blames every task of a dead worker, those that only waited there too."""
    bench = forked_benchmark("dask", EIGHT)
    # The run has a process of its own; the dask worker dies first, so that it is not the worker who tries again.
    own = "            os.kill(os.getpid(), signal.SIGKILL)"
    body = DIES_ONCE.replace(own, own.replace("getpid", "getppid") + "\n" + own)
    plugin = write_plugin(tmp_path, "dies-once", body.format(marker=str(tmp_path / "died")))
    with dask_cluster(tmp_path, workers=2, deaths=0) as (address, _, _):
        words = ("--backend", "dask", "--scheduler", address, "--seeds", "0", "--plugin", str(plugin))
        done = bench.run("run", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "died (with several dask workers, the last at tcp://" in done.stderr
    found = list(documents(bench).values())
    assert len(found) == 3 and {d["status"] for d in found} == {"done"}
    assert sum(d["time"]["sittings"] for d in found) == 4


TWO_CARDS = f"""
import sys
from contextlib import nullcontext

sys.path.insert(0, {str(ROOT)!r})
from benchmark.contract.pretend import PretendCuda
from benchmark.errors import UsageError
from benchmark.runner import devices
from benchmark.runner import dask

devices.cuda_devices = lambda: ["cuda:0", "cuda:1"]


def do_on_its_card(task, spec, options, key):
    try:
        device = devices.claim(devices.resolve(options["device"]))
    except UsageError:
        device = "none"  # and that is said by the work itself
    with PretendCuda(index=int(device[-1])) if device.startswith("cuda") else nullcontext():
        return do_here(task, spec, options, key)


if dask.do_here.__module__ == dask.__name__:  # dask reads this twice
    do_here, dask.do_here = dask.do_here, do_on_its_card
"""


def test_dask_workers_of_a_machine_with_two_cards_take_one_each_and_do_what_a_cpu_does(
    forked_benchmark: Make, tmp_path: Path, alone: dict[str, Any]
) -> None:
    """Pretend cards, on each of which a tensor for the other is an error; the data lie on the card."""
    with dask_cluster(tmp_path, workers=2, preload=(TWO_CARDS,)) as (address, _, _):
        for device, seeds, expected in (("cuda", "0,1", {"cuda:0", "cuda:1"}), ("cuda:1", "0", {"cuda:1"})):
            bench = forked_benchmark(device.replace(":", "-"), EIGHT)
            words = ("--backend", "dask", "--scheduler", address, "--device", device, "--seeds", seeds)
            done = bench.run("run", *words)
            assert done.returncode == 0, done.stdout + done.stderr
            assert bench.results_only() == {k: v for k, v in alone.items() if k.split("/")[2] in seeds}
            used = {(d["time"]["pid"], d["environment"]["device"]) for d in documents(bench).values()}
            assert {card for _, card in used} == expected
            assert len(used) == len({pid for pid, _ in used})  # each worker kept to its card
        done = bench.run("run", "--backend", "dask", "--scheduler", address, "--device", "cuda:7", "--seeds", "9")
        assert done.returncode == 1 and "this machine has cuda:0, cuda:1" in done.stdout + done.stderr


def test_a_scheduler_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "CONNECT_SECONDS", 1)
    with pytest.raises(CandidError, match=r"^No dask scheduler answers at tcp://127\.0\.0\.1:\d+ .*\.$"):
        dask.connect(f"tcp://127.0.0.1:{free_port()}")


def test_a_worker_with_several_threads_does_one_run_at_a_time_and_a_lost_scheduler_is_one_sentence(
    forked_benchmark: Make, tmp_path: Path, alone: dict[str, Any]
) -> None:
    """torch's generator and thread count belong to the process: two runs in it at once would disturb each other."""
    bench = forked_benchmark("dask", EIGHT)
    with dask_cluster(tmp_path, workers=1, threads=4) as (address, scheduler, (worker,)):
        words = ("--backend", "dask", "--scheduler", address)
        done = bench.run("run", *words, "--seeds", "0,1")
        assert done.returncode == 0, done.stdout + done.stderr
        assert bench.results_only() == {k: v for k, v in alone.items() if k.split("/")[2] in ("0", "1")}
        assert {d["time"]["pid"] for d in documents(bench).values()} == {worker.pid}
        command = bench.start("run", *words, "--seeds", "0", "--epochs", "500")
        wait_until(lambda: running(bench, 1), 60, "a run in training")
        kill(scheduler.pid)
        code, _, err = finish(command, 60)
    assert code == 1
    assert "Traceback" not in err and "was lost" in err.splitlines()[-1], err


def test_a_dask_worker_uses_the_device_that_was_asked_for(tiny_benchmark: TinyBenchmark) -> None:
    options = RunOptions(tiny_benchmark.results, tiny_benchmark.folder / "data", device="cuda:99")
    spec = select(str(tiny_benchmark.profile)).specs()[0]
    for task in ("execute", "prepare"):
        outcome = dask.do_here(task, asdict(spec), dask.as_plain(options), "key")
        assert outcome["status"] == "failed" and "--device cuda:99" in outcome["reason"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [(TimeoutError(), "No dask worker connected to tcp://host:1"), (False, "does not see the results folder"),
     (ModuleNotFoundError("No module named 'benchmark'"), "it must be there on all machines")],
)  # fmt: skip
def test_a_cluster_that_cannot_work_is_one_sentence_before_anything_is_sent(answer: Any, words: str) -> None:
    class Client:
        def wait_for_workers(self, number: int, timeout: float) -> None:
            if isinstance(answer, TimeoutError):
                raise answer

        def run(self, *_: Any, **__: Any) -> dict[str, Any]:
            return {"tcp://host:2": answer}

    with pytest.raises(CandidError, match=words):
        dask.check_workers(Client(), "tcp://host:1", Path("/nowhere"))  # type: ignore[arg-type]


# Slurm ----------------------------------------------------------------------------------------------------------------

SLURM_CONF = """
ClusterName=candid
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """munged, slurmctld and slurmd with a configuration of their own; yields the environment for sbatch."""
    folder.chmod(0o755)
    for parent in list(folder.parents)[:-1]:
        parent.chmod(parent.stat().st_mode | 0o011)  # munge's user must reach its socket
    munge = folder / "munge"
    munge.mkdir()
    shutil.chown(munge, "munge", "munge")
    munge.chmod(0o755)
    key = munge / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    shutil.chown(key, "munge", "munge")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    host = socket.gethostname().split(".")[0]
    configuration = folder / "slurm.conf"
    configuration.write_text(
        SLURM_CONF.format(host=host, controller=free_port(), node=free_port(), folder=folder, cores=os.cpu_count())
    )
    environment = os.environ | {"SLURM_CONF": str(configuration)}
    processes: list[subprocess.Popen[bytes]] = []

    def start(*words: str, **options: object) -> None:
        log = (folder / f"{Path(words[0]).name}.out").open("wb")
        processes.append(subprocess.Popen(words, stdout=log, stderr=log, env=environment, **options))  # type: ignore[call-overload]

    try:
        start(
            "munged", "--foreground", f"--socket={munge}/socket", f"--key-file={key}", f"--pid-file={munge}/pid",
            f"--log-file={munge}/log", f"--seed-file={munge}/seed", "--num-threads=1", user="munge", group="munge",
        )  # fmt: skip
        wait_until((munge / "socket").exists, 10, "munged's socket")
        start("slurmctld", "-D", "-f", str(configuration))
        start("slurmd", "-D", "-f", str(configuration), "-N", host)

        def idle() -> bool:
            shown = subprocess.run(["sinfo", "-h", "-o", "%t"], env=environment, capture_output=True, text=True)
            return shown.stdout.strip() == "idle"

        wait_until(idle, 60, "an idle node")
        yield environment
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            if process.poll() is None:
                process.kill()


def array(environment: dict[str, str], bench: TinyBenchmark, tasks: int, *words: str) -> str:
    """Submit the same command as an array, as docs/cluster.md has it; returns the job's number."""
    job = bench.folder / "job.sh"
    command = " ".join(f"'{word}'" for word in bench.arguments("run", "--jobs", "1", "--no-wait", *words))
    head = f"#!/bin/bash\n#SBATCH --array=0-{tasks - 1}\n#SBATCH --cpus-per-task=1\n#SBATCH --open-mode=append\n"
    job.write_text(f"{head}cd '{ROOT}'\nexec {command}\n")
    output = f"--output={bench.folder}/task-%A-%a.out"
    done = subprocess.run(["sbatch", "--parsable", output, str(job)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def wait_for_array(environment: dict[str, str], job: str) -> None:
    queue = ["squeue", "-h", "-j", job]
    wait_until(
        lambda: not subprocess.run(queue, env=environment, capture_output=True, text=True).stdout.strip(),
        300,
        "the end of the array",
    )
    time.sleep(1)  # Slurm closes the output files after the queue is empty


def outputs(bench: TinyBenchmark, job: str) -> list[str]:
    return [path.read_text() for path in sorted(bench.folder.glob(f"task-{job}-*.out"))]


@pytest.fixture
def slurm_environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    programs = ("munged", "slurmctld", "slurmd", "sbatch")
    os.environ["PATH"] += ":/usr/sbin"
    if os.geteuid() != 0 or not all(shutil.which(name) for name in programs):
        pytest.skip("needs root and Debian's slurm-wlm and munge")
    folder = tmp_path / "slurm"
    folder.mkdir()
    with slurm(folder) as environment:
        yield environment


@pytest.mark.slurm
def test_a_slurm_array_of_the_same_command_shares_one_results_folder(
    forked_benchmark: Make, slurm_environment: dict[str, str], alone: dict[str, Any]
) -> None:
    bench = forked_benchmark("array", EIGHT)
    job = array(slurm_environment, bench, 4)
    wait_for_array(slurm_environment, job)
    texts = outputs(bench, job)
    assert len(texts) == 4
    found = list(documents(bench).values())
    assert len(found) == 8 and {d["status"] for d in found} == {"done"}, texts
    assert {d["time"]["sittings"] for d in found} == {1}
    assert sum(text.count(" % in ") for text in texts) == 8
    assert bench.results_only() == alone


@pytest.mark.slurm
def test_array_tasks_that_are_cancelled_or_killed_lose_nothing_and_the_next_array_goes_on(
    forked_benchmark: Make, slurm_environment: dict[str, str]
) -> None:
    """`scancel` of one task, kill -9 of a whole other task, then the same array again."""
    longer = EIGHT.replace("epochs = 9", "epochs = 30")
    bench = forked_benchmark("array", longer)
    often = ("--checkpoint-seconds", "0.05")
    job = array(slurm_environment, bench, 4, *often)
    wait_until(lambda: len(running(bench, 3)) >= min(2, os.cpu_count() or 1), 120, "tasks in training")
    subprocess.run(["scancel", f"{job}_0"], env=slurm_environment, check=True)
    wait_until(lambda: "rerun the command to resume" in "".join(outputs(bench, job)[:1]), 20, "a saved task")
    stopped = [d for d in documents(bench).values() if d["status"] == "interrupted"]
    assert len(stopped) == 1  # scancel's SIGTERM reached the command, which saved its run
    worker = wait_until(lambda: [documents(bench)[f]["time"]["pid"] for f in running(bench, 3)], 120, "another task")
    parent = int(Path(f"/proc/{worker[0]}/stat").read_text().rpartition(")")[2].split()[1])
    for pid in (parent, worker[0]):
        kill(pid)
    wait_for_array(slurm_environment, job)
    again = array(slurm_environment, bench, 2, *often)
    wait_for_array(slurm_environment, again)
    found = list(documents(bench).values())
    assert len(found) == 8 and {d["status"] for d in found} == {"done"}, outputs(bench, again)
    assert sum(d["time"]["sittings"] - 1 for d in found) == 2  # the two that were cut off, once more each
    whole = forked_benchmark("whole", longer)
    assert whole.run("run").returncode == 0
    assert bench.results_only() == whole.results_only()
