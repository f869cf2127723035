"""A failure inside a plug-in names the plug-in's own line and what to do about it; no folder is named."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmark.cli.execution import report_failures
from benchmark.errors import CandidError
from benchmark.files import ROOT
from benchmark.runner.log import sentence
from benchmark.runner.options import Outcome


def test_the_last_line_of_the_plug_in_is_named_though_another_file_raised(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    with pytest.raises(ValueError) as failure:
        exec(compile("import json\njson.loads('{')\n", str(mine), "exec"))
    text = sentence(failure.value, str(mine))
    assert text.startswith("JSONDecodeError: ") and "(mine.py:2)" in text
    assert text.endswith("`./reproduce.sh check mine.py` tries the whole contract")
    assert str(tmp_path) not in text


def test_a_fault_that_the_trainer_finds_names_the_class_and_points_to_check(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from methods.registry import register\n\n@register\nclass Mine: ...\n")
    text = sentence(RuntimeError(f"no gradient in {tmp_path / 'mine.py'}"), str(tmp_path / "mine.py"))
    assert "mine.py (mine.py:3); `./reproduce.sh check mine.py`" in text and str(tmp_path) not in text


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("no file '/home/ann/my/file.bin'", "no file 'file.bin'"),
        (f"read {ROOT}/data/cub200/list.txt: empty", "read data/cub200/list.txt: empty"),
        (
            "see https://host.org/a/b or ./reproduce.sh, 3/4 of N/C/2",
            "see https://host.org/a/b or ./reproduce.sh, 3/4 of N/C/2",
        ),
    ],
)
def test_a_reason_names_no_folder_of_the_machine(text: str, shared: str) -> None:
    assert sentence(CandidError(text)) == shared
    assert shared in sentence(OSError(text)) and shared in sentence(ValueError(text), "mine.py")


def test_a_single_failure_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The line of the run itself says it; of many runs the failures are gathered at the end."""
    spec = SimpleNamespace(dataset="digits", label="mine", seed=0)

    def told(runs: int, quiet: bool, skipped: bool = False) -> str:
        failed = Outcome("failed", "why", skipped=skipped)
        assert report_failures(SimpleNamespace(outcomes=[(spec, failed)] * runs), quiet) == 1  # type: ignore[arg-type]
        return capsys.readouterr().out

    assert told(1, quiet=False) == ""
    assert told(1, quiet=True) == "digits mine seed 0: failed: why\n"
    assert told(1, quiet=False, skipped=True).count("why") == 1, "a neighbour's failure has no line of its own"
    assert told(2, quiet=False).count("why") == 1
