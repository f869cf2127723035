"""One lock, one atomic write, one file name for the whole project."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from datasets.storage import files
from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("digits", "digits"),
        ("cifar100h-rate0.1", "cifar100h-rate0.1"),
        ("a,b+c=d", "a_b_c_d"),
        ("two  blanks", "two_blanks"),
        (".hidden", "hidden"),
        ("..", "data"),
        ("../../etc/passwd", "etc_passwd"),
        ("[x]*", "x"),
        ("", "data"),
    ],
)
def test_any_text_becomes_the_name_of_one_visible_file(text: str, name: str) -> None:
    assert files.file_name(text) == name and files.file_name(name) == name


def test_a_file_appears_whole_readable_and_in_a_new_folder(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.bin"
    with files.atomic(path) as stream:
        stream.write(b"half")
        assert not path.exists()
        stream.write(b" and half")
    assert path.read_bytes() == b"half and half" and stat.S_IMODE(path.stat().st_mode) == 0o644
    with pytest.raises(RuntimeError), files.atomic(path) as stream:
        stream.write(b"new")
        raise RuntimeError("killed")
    assert path.read_bytes() == b"half and half" and os.listdir(path.parent) == ["file.bin"]


def test_a_lock_keeps_out_processes_and_threads(tmp_path: Path) -> None:
    path, order = tmp_path / "x.lock", []

    def second() -> None:
        with files.locked(path):
            order.append("second")

    probe = "import sys; from pathlib import Path; from datasets.storage.files import is_locked;"
    probe += "print(is_locked(Path(sys.argv[1])))"

    def asked() -> str:
        return subprocess.run(
            [sys.executable, "-c", probe, str(path)], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()

    thread = threading.Thread(target=second)
    with files.locked(path):
        thread.start()
        assert asked() == "True"
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"] and asked() == "False"


def test_who_has_better_to_do_than_to_wait_is_told_at_once(tmp_path: Path) -> None:
    path, busy = tmp_path / "x.lock", []

    def second() -> None:
        with files.without_waiting():
            try:
                with files.locked(path):
                    pass
            except files.Busy as error:
                busy.append(error.path)

    with files.locked(path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(10)
    assert busy == [path]
    second()
    assert busy == [path]
