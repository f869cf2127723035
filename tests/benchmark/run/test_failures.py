"""A failure inside a plug-in names the plug-in's own line and what to do about it; no folder is named."""

from __future__ import annotations

from pathlib import Path

from benchmark.run.failures import sentence


def failure(path: Path, code: str, call: str) -> BaseException:
    path.write_text(code)
    names: dict[str, object] = {}
    exec(compile(code, str(path), "exec"), names)
    try:
        eval(call, names)
    except Exception as error:
        return error
    raise AssertionError("it did not fail")


def test_the_last_line_of_the_plug_in_is_named_though_another_file_raised(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    code = "import json\ndef step():\n    return json.loads('{')\n"
    text = sentence(failure(mine, code, "step()"), str(mine))
    assert text.startswith("JSONDecodeError: ") and "(mine.py:3)" in text
    assert text.endswith("`./reproduce.sh check mine.py` tries the whole contract")
    assert str(tmp_path) not in text


def test_a_fault_that_the_trainer_finds_still_points_to_check(tmp_path: Path) -> None:
    try:
        raise RuntimeError(f"grad can be implicitly created only for scalar outputs in {tmp_path / 'mine.py'}")
    except RuntimeError as error:
        text = sentence(error, str(tmp_path / "mine.py"))
    assert "mine.py; `./reproduce.sh check mine.py`" in text and str(tmp_path) not in text
