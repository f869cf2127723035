"""The results folder as pandas reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmark.errors import CandidError
from benchmark.store import load, runs


@pytest.mark.parametrize("read", [runs, load])
def test_a_folder_that_is_not_there_is_one_sentence_and_an_empty_one_an_empty_frame(
    tmp_path: Path, read: Callable[..., Any]
) -> None:
    for where in (tmp_path / "nowhere", str(tmp_path / "nowhere")):
        with pytest.raises(CandidError, match=r"There is no results folder .*nowhere"):
            read(where)
    assert len(read(tmp_path)) == 0
