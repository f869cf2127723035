"""A terminal that is not UTF-8 gets plain characters, never a traceback."""

from __future__ import annotations

import io

import pytest

from benchmark.cli.main import speak_plainly


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_signs_that_a_terminal_lacks_become_plain_characters(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr("sys.stdout", screen)
    speak_plainly()
    print("★ 98.1±0.4° ─ α → š 嗨", flush=True)
    shown = screen.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
    assert shown == {"ascii": "* 98.1+/-0.4^ - alpha -> s ?\n", "latin-1": "* 98.1±0.4° - alpha -> s ?\n"}[encoding]
