"""A disk that cannot be written and a terminal that lacks characters: one sentence, and the table is shown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.fake_store import write_store

TABLE = ("table2", "--no-run", "--profile", "quick", "--methods", "cc,proden", "--datasets", "fashion")


def command(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmark", *map(str, words)],
        cwd=ROOT, text=True, capture_output=True, timeout=120, errors="replace", env={**os.environ, **environment},
    )  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write_store(tmp_path / "r", profile="quick", methods=["cc", "proden"], datasets=["fashion"], epochs=3)
    return tmp_path / "r"


@pytest.mark.parametrize("words", [TABLE, ("table3", *TABLE[1:], "--reference", "cc"), ("export",), ("plot", "curves")])
def test_a_folder_that_cannot_be_written_is_one_sentence(results: Path, words: tuple[str, ...]) -> None:
    """A file where the folder of tables should be: root may write into read-only folders, so permissions prove nothing."""
    for name in ("tables", "figures"):
        (results / name).write_text("")
    (results / "epochs.csv").mkdir()
    done = command(*words, "--results", results)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert str(results) in done.stderr and done.stderr.count("\n") == 1
    if words[0].startswith("table"):
        assert "PRODEN" in done.stdout


def test_a_full_disk_is_one_sentence(results: Path) -> None:
    """Files of this process may have no more than one byte, which is what a full disk looks like to it."""
    script = (
        "import resource, sys; from benchmark.cli.main import main; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1)); import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        f"sys.exit(main({[*TABLE, '--results', str(results)]!r}))"
    )
    read, write = os.pipe()  # a pipe has no size limit
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    with os.fdopen(read) as stream:
        output = stream.read()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1 and "Traceback" not in errors, errors
    assert "PRODEN" in output and "cannot be written" in errors


@pytest.mark.parametrize("utf8", ["0", "1"])
def test_a_locale_that_cannot_express_a_folder_is_one_sentence_or_works(tmp_path: Path, utf8: str) -> None:
    write_store(tmp_path / "Ünï 漢字", profile="quick", methods=["cc"], datasets=["fashion"], epochs=3)
    words = ("table2", "--no-run", "--profile", "quick", "--methods", "cc", "--datasets", "fashion")
    done = command(*words, "--results", tmp_path / "Ünï 漢字", LC_ALL="C", PYTHONUTF8=utf8)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == (2 if utf8 == "0" else 0) and (utf8 == "1" or "PYTHONUTF8" in done.stderr), done.stderr


@pytest.mark.parametrize("words", [("fit", "größe.csv"), ("fit", "x.csv", "--out", "größe"), ("verify", "größe")])
def test_a_locale_that_cannot_express_a_word_is_one_sentence(words: tuple[str, ...]) -> None:
    done = command(*words, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.returncode == 2 and "PYTHONUTF8" in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_terminal_that_is_not_utf8_gets_question_marks(results: Path) -> None:
    done = command(*TABLE, "--results", results, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.returncode in (0, 3) and "Traceback" not in done.stderr, done.stderr
    assert done.stdout.isascii() and "PRODEN" in done.stdout and "?" in done.stdout
