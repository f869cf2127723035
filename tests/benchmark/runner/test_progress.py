"""What a command shows while it works: redrawn in place on a real terminal, plain lines elsewhere."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmark.config.selection import select
from benchmark.config.spec import RunSpec
from benchmark.runner.options import Outcome
from benchmark.runner.progress import Lines, Progress, Terminal
from tests.conftest import ROOT, TINY, TinyBenchmark, make_tiny

Make = Callable[..., TinyBenchmark]


def on_terminal(command: list[str], rows: int, columns: int) -> tuple[int, str]:
    """Exit code and everything a command writes to a pseudo-terminal of that size."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(command, cwd=ROOT, stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    written = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # Linux says so when the last writer is gone
            break
        if not part:
            break
        written += part
    os.close(master)
    return process.wait(60), written.decode()


def screen(text: str, columns: int) -> list[str]:
    """The lines that a terminal shows after these characters: it knows line feed, cursor up and erase below."""
    lines, row = [""], 0
    for part in re.split(r"(\x1b\[\d+A|\x1b\[J|\r?\n)", text):
        if part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1])
        elif part == "\x1b[J":
            lines = [*lines[:row], ""]
        elif part.endswith("\n"):
            row += 1
            lines += [""] * (row + 1 - len(lines))
        else:
            assert len(part) < columns or not part.startswith(("  ", "[")), part  # it would wrap
            lines[row] += part
    return lines


def test_a_terminal_shows_running_jobs_in_place_and_ends_with_a_line_per_run(forked_benchmark: Make) -> None:
    bench = forked_benchmark("bench", TINY.replace("epochs = 3", "epochs = 50"))
    code, text = on_terminal(bench.arguments("run", "--seeds", "0", "--jobs", "2"), 24, 60)
    assert code == 0, text
    assert re.search(r"  digits proden seed 0: epoch \d+/50, test \d+\.\d %, \d+ s left", text)
    assert "\x1b[3A\x1b[J" in text  # two jobs and the bar, drawn again
    shown = screen(text, 60)
    assert sum(" % in " in line for line in shown) == 2
    (bar,) = [line for line in shown if line.startswith("[")]
    assert f"[{'█' * 30}] 2/2 runs" in bar
    assert not any("left" in line or "epoch" in line for line in shown)  # nothing of what was redrawn stays


def test_elsewhere_there_are_plain_lines_alone(forked_benchmark: Make) -> None:
    bench = forked_benchmark("bench", TINY)
    done = bench.run("run", "--seeds", "0", "--jobs", "2")
    assert done.returncode == 0 and "\x1b" not in done.stdout and done.stderr == ""
    assert [re.sub(r"[\d.]+ % in \d+ s", "…", line) for line in sorted(done.stdout.splitlines()[2:])] in (
        ["[1/2] digits cc seed 0: …", "[2/2] digits proden seed 0: …"],
        ["[1/2] digits proden seed 0: …", "[2/2] digits cc seed 0: …"],
    )
    assert bench.run("run", "--seeds", "0,1", "--quiet").stdout == ""


def specs_in(folder: Path) -> list[RunSpec]:
    return select(str(make_tiny(folder).profile)).specs()


def test_many_jobs_and_a_narrow_terminal_never_scroll_the_display(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda **_: os.terminal_size((30, 8)))
    specs = specs_in(tmp_path)
    progress = Progress(100, running={slot: specs[slot % 4] for slot in range(50)})
    display = Terminal(tmp_path)
    display(progress)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6 and max(map(len, lines)) < 30
    assert lines[-2] == "  and 46 more" and lines[-1].startswith("[")
    progress.running.clear()
    progress.outcomes += [(specs[0], Outcome("done", accuracy=50.0))] * 100
    display(progress)
    display(progress)  # the end is shown once
    assert capsys.readouterr().out.count("[█") == 1


def test_candidate_labels_that_take_their_time_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[Any]) -> None:
    progress = Progress(1, preparing={0: "digits", 1: "digits"})
    lines = Lines(tmp_path)
    lines(progress)
    assert capsys.readouterr().out == ""
    progress.started = time.time() - 60
    lines(progress)
    lines(progress)
    assert capsys.readouterr().out == "digits: making its candidate labels\n"
    Terminal(tmp_path)(progress)
    assert "  digits: making its candidate labels" in capsys.readouterr().out
