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


@pytest.mark.parametrize("utf8", ["0", "1"])
def test_a_locale_that_cannot_express_a_folder_is_one_sentence_or_works(tmp_path: Path, utf8: str) -> None:
    write_store(tmp_path / "Ünï 漢字", profile="quick", methods=["cc"], datasets=["fashion"], epochs=3)
    words = ("table2", "--no-run", "--profile", "quick", "--methods", "cc", "--datasets", "fashion")
    done = command(*words, "--results", tmp_path / "Ünï 漢字", LC_ALL="C", PYTHONUTF8=utf8)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == (2 if utf8 == "0" else 0) and (utf8 == "1" or "PYTHONUTF8" in done.stderr), done.stderr


def test_a_terminal_that_is_not_utf8_gets_question_marks(results: Path) -> None:
    done = command(*TABLE, "--results", results, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.returncode in (0, 3) and "Traceback" not in done.stderr, done.stderr
    assert done.stdout.isascii() and "PRODEN" in done.stdout and "?" in done.stdout
