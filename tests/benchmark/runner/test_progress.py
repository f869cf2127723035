"""What a command shows while it works: redrawn in place on a real terminal, plain lines elsewhere."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmark.config.selection import select
from benchmark.runner.options import Outcome
from benchmark.runner.progress import Bars, Progress, without_bars
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


def screen(text: str) -> list[str]:
    """The lines that a terminal shows after these characters: it knows line feed, carriage return and cursor up."""
    lines, row, column = [""], 0, 0
    for part in re.split(r"(\x1b\[A|\r|\n)", text):
        if part in ("\x1b[A", "\n"):
            row += 1 if part == "\n" else -1
            lines += [""] * (row + 1 - len(lines))
        elif part == "\r":
            column = 0
        else:
            lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + len(part) :]
            column += len(part)
    return [line.strip() for line in lines if line.strip()]


def test_a_terminal_shows_running_jobs_in_place_and_ends_with_a_line_per_run(forked_benchmark: Make) -> None:
    bench = forked_benchmark("bench", TINY.replace("epochs = 3", "epochs = 50"))
    code, text = on_terminal(bench.arguments("run", "--seeds", "0", "--jobs", "2"), 24, 72)
    assert code == 0, text
    assert re.search(r"  digits proden seed 0: epoch \d+/50, test \d+\.\d %, \d+ s left", text)
    shown = screen(text)
    assert sum(" % in " in line for line in shown) == 2
    (bar,) = [line for line in shown if "run/s" in line or "s/run" in line]
    assert "100%" in bar and "| 2/2 [" in bar
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


def test_a_line_of_text_does_not_mix_with_bars(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, progress = select(str(make_tiny(tmp_path).profile)).specs()[0], Progress(2)
    progress.running[0] = spec
    display = Bars(tmp_path)
    display(progress)
    with without_bars():
        print("a warning")
    progress.outcomes += [(spec, Outcome("done", accuracy=50.0, seconds=1.0))] * 2
    progress.running.clear()
    progress.over = True
    display(progress)
    shown = screen(capsys.readouterr().out)
    assert [line for line in shown if "run/s" not in line and "s/run" not in line] == [
        "a warning", *["digits proden seed 0: 50.00 % in 1 s"] * 2,
    ]  # fmt: skip
