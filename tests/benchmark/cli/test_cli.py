"""The command line as a person meets it: one sentence for each mistake, nothing lost by any of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import numpy as np
import pytest

from benchmark.cli.main import GROUPS, application, main
from benchmark.files import Lock
from tests.conftest import ROOT, TINY, TinyBenchmark, command_of, make_tiny
from tests.support.forking import Command
from tests.support.killing import documents, finish, running, wait_until
from tests.support.plugins import SLOW, write_plugin

Make = Callable[..., TinyBenchmark]
MIXED = (
    (
        TINY.replace("[0, 1]", "[0]")
        .replace('["proden", "cc"]', '["cc"]')
        .replace('["digits"]', '["digits", "letter"]')
    ).replace("epochs = 3", "epochs = 1")
    + """
[data.letter]
settings = { train = 100, test = 50 }
generator = "uniform"
rate = 0.2
"""
)


def candid(*words: str) -> subprocess.CompletedProcess[str]:
    command = Command(words, ROOT)
    out, err = command.communicate(timeout=60)
    return subprocess.CompletedProcess(words, command.returncode, out, err)


def imported(*commands: Sequence[str]) -> set[str]:
    """Top-level modules that a process has imported after these commands."""
    script = (
        "import json, sys\nfrom benchmark.cli.main import main\n"
        "for words in json.loads(sys.argv[1]):\n    assert main(words) == 0, words\n"
        "print(*sorted({m.split('.')[0] for m in sys.modules}))"
    )
    words = [sys.executable, "-c", script, json.dumps(commands)]
    done = subprocess.run(words, cwd=ROOT, text=True, capture_output=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_help_imports_nothing_that_takes_long() -> None:
    assert not imported(["--help"]) & {"torch", "numpy", "pandas", "matplotlib"}


@pytest.mark.parametrize("words", [(), ("--help",)])
def test_the_bare_command_lists_all_commands_in_groups(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 0
    text = capsys.readouterr().out
    headings = [text.index(f"\n{heading}:\n") for heading in GROUPS]
    assert headings == sorted(headings) and len(headings) == 5
    assert text.index("\n  table2 ") < text.index("\n  run ") < text.index("\n  status ") < text.index("\n  fit ")
    assert set(application.commands) == {str(command.name) for group in GROUPS.values() for command in group}


def test_every_option_has_help_and_a_table_or_figure_has_at_most_sixteen() -> None:
    for words in (*([name] for name in application.commands if name != "plot"), ["plot", "curves"], ["plot", "ranks"]):
        command, _ = command_of(words)
        options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
        assert all(option.help for option in options), words
        assert words[0] not in {str(command.name) for command in GROUPS["Tables and figures"]} or len(options) <= 16
    assert "--version" in application.get_params(click.Context(application))[0].opts


def test_looking_needs_no_torch(tmp_path: Path) -> None:
    lists = [["list", what] for what in ("methods", "datasets", "profiles", "runs")]
    others = [["status"], ["run", "--dry-run"], ["estimate", "table2", "--dry-run"]]
    assert "torch" not in imported(*([*words, "--results", str(tmp_path)] for words in (*lists, *others)))


def test_a_dry_run_prints_the_plan_and_does_nothing(forked_benchmark: Make) -> None:
    bench = forked_benchmark("bench", MIXED)
    for command in ("run", "table2", "estimate", "all"):
        done = bench.run(command, "--dry-run")
        assert done.returncode == 0, done.stderr
        assert re.search(r"Plan: \d+ runs, 0 done", done.stdout)
    assert not bench.results.exists() and not (bench.folder / "data").exists()


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (("tabel2",), "'table2'"),
        (("table3", "--from-paper", "--methods", "cel"), "--methods"),
        (("table3", "--from-paper", "--reference", "pop"), "--from-paper"),
        (("run", "--methods", "proden", "--sweep", "cel.alpha=1,2"), "cel"),
        (("status", "--profile", "quik"), "'quick'"),
        (("run", "--jobs", "1/gpu", "--device", "cpu"), "GPU"),
        (("run", "--scheduler", "tcp://127.0.0.1:8786"), "--backend dask"),
        (("run", "--backend", "dask", "--scheduler", "somewhere"), "somewhere"),
        (("run", "--shutdown-timeout", "0"), "--shutdown-timeout"),
        (("table2", "--method", "cel"), "'--methods'"),
        (("table2", "--accuracy", "lsat"), "'last'"),
        (("run", "--device", "gpu"), "cuda:N"),
        (("run", "--epochs", "many"), "many"),
        (("run", "--track", "tensorbord"), "'tensorboard'"),
        (("run", "--backend", "dask"), "--scheduler"),
        (("list", "method"), "'methods'"),
        (("list", "methods", "--plugin", "/nowhere.py"), "/nowhere.py"),
        (("run", "--seeds", "0-4000000000"), "more than 10000 seeds"),
        (("status", "--jobs", "2"), "--jobs"),
        (("table2", "--backend", "dask"), "option of `run`"),
        (("table4", "--reference", "cel"), "--reference"),
        (("tune", "--no-wait"), "option of `run`"),
        (("estimate", "nonsense"), "nonsense"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_two(
    tmp_path: Path, words: tuple[str, ...], fact: str, capsys: pytest.CaptureFixture[str]
) -> None:
    results = () if words[0] == "tabel2" else ("--results", str(tmp_path / "results"))
    assert main([*words, *results]) == 2
    error = capsys.readouterr().err
    assert fact in error and len(error.splitlines()) == 1
    assert not (tmp_path / "results").exists()


def test_plug_ins_that_cannot_be_used_are_one_sentence(tmp_path: Path) -> None:
    syntax = tmp_path / "syntax.py"
    syntax.write_text("def broken(:\n")
    taken = write_plugin(tmp_path, "proden", "        pass")
    results = ("--results", str(tmp_path / "results"))
    done = candid("run", "--plugin", str(syntax), "--methods", "syntax", *results)
    assert done.returncode == 2 and f"{syntax}:1: syntax error" in done.stderr and len(done.stderr.splitlines()) == 1
    done = candid("list", "methods", "--plugin", str(taken))
    assert done.returncode == 2 and "the name 'proden' is taken by" in done.stderr


def test_a_candidate_file_that_does_not_match_its_hash_stops_its_own_runs_alone(forked_benchmark: Make) -> None:
    bench = forked_benchmark("bench", MIXED)
    assert bench.run("candidates", "--datasets", "letter").returncode == 0
    (stored,) = (bench.results / "candidates" / "letter").glob("*.npz")
    with np.load(stored) as arrays:
        content = dict(arrays)
    content["bits"][0, 0] ^= 1
    np.savez(stored, **content)
    damaged = stored.read_bytes()
    done = bench.run("run")
    assert done.returncode == 1
    assert re.search(r"letter cc seed 0: failed: The candidate file .* is damaged", done.stdout)
    assert {d["dataset"]: d["status"] for d in documents(bench).values()} == {"digits": "done"}
    assert stored.read_bytes() == damaged  # kept, for whoever wants to know
    stored.unlink()
    assert bench.run("run").returncode == 0


def test_status_is_live_from_another_shell(forked_benchmark: Make, tmp_path: Path) -> None:
    bench = forked_benchmark("bench", MIXED)
    plugin = write_plugin(tmp_path, "slow", SLOW.format(seconds=0.1))
    words = ("run", "--datasets", "digits", "--methods", "slow", "--epochs", "20", "--plugin", str(plugin))
    command = bench.start(*words)
    try:
        wait_until(lambda: running(bench, 2), 60, "two epochs")
        shown = bench.run("status")
        assert re.search(
            r"digits slow\[train.epochs=20\] seed 0: epoch [2-9]/20, test \d+\.\d %, \d+ s left on ", shown.stdout
        )
    finally:
        command.terminate()
        assert finish(command)[0] == 143
    assert "1 interrupted" in bench.run("status").stdout


def test_a_results_folder_in_use_is_shared_not_refused(tmp_path: Path) -> None:
    bench = make_tiny(tmp_path, MIXED)
    words = ("run", "--datasets", "digits", "--no-wait")
    assert bench.run(*words).returncode == 0
    (folder,) = documents(bench)
    (folder / "run.json").unlink()
    lock = Lock(folder / "lock")
    assert lock.acquire()
    try:
        busy = bench.run(*words)
    finally:
        lock.release()
    assert busy.returncode == 3 and "another process is doing it" in busy.stdout
    assert bench.run(*words).returncode == 0


def test_json_of_list_is_machine_readable() -> None:
    methods = {row["name"]: row for row in json.loads(candid("list", "methods", "--json").stdout)}
    assert methods["cel"]["venue"] == "KDD 2025" and "alpha" in methods["cel"]["config"]
