"""`check` runs a plug-in on the pretend device, and names the lines of mixed devices and of waits."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from benchmark.contract.checks import check_device
from benchmark.contract.subject import Subject, run_check
from benchmark.errors import MethodDefect
from methods.registry import scan
from tests.support.broken_plugins import plugin, step

PLUGIN = plugin(
    "mine",
    step=step("logits = self.network(batch.views[0])", "{line}"),
    more="    def on_epoch_end(self, clock, data):\n        {hook}",
)
LINE, HOOK = (PLUGIN[: PLUGIN.index(mark)].count("\n") + 1 for mark in ("{line}", "{hook}"))


def advice(folder: Path, line: str = "", hook: str = "pass") -> str | None:
    path = Path(tempfile.mkdtemp(dir=folder)) / "mine.py"  # a file is imported once
    path.write_text(PLUGIN.format(line=line, hook=hook))
    return run_check(check_device, Subject(scan(path)[0]))


@pytest.mark.parametrize(
    ("line", "waits"),
    [
        ("", []),
        ("scale = logits.max().item()", [(LINE, "a value is read")]),
        ("logits = logits + torch.tensor(0.0, device=logits.device)", [(LINE, "copy to the device")]),
        (
            "logits = logits * (logits.max().item() > 0)\n        logits.sum().tolist()",
            [(LINE, "a value is read"), (LINE + 1, "tolist")],
        ),
    ],
)
def test_waits_in_a_step_are_named(tmp_path: Path, line: str, waits: list[tuple[int, str]]) -> None:
    text = advice(tmp_path, line) or ""
    assert text.count("mine.py:") == len(waits)
    assert all(f"mine.py:{number} ({what})" in text for number, what in waits)


@pytest.mark.parametrize(
    ("line", "hook", "where"),
    [
        ("logits = logits[torch.randperm(8, generator=torch.Generator(), device=logits.device)]", "pass", LINE),
        ("", "data.infer(lambda images: self.network(images) + torch.zeros(5))", HOOK),
    ],
)
def test_mixed_devices_are_defects_with_their_lines(tmp_path: Path, line: str, hook: str, where: int) -> None:
    with pytest.raises(MethodDefect, match=f"/mine.py:{where}: "):
        advice(tmp_path, line, hook)


def test_every_line_of_mixed_devices_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(MethodDefect, match=f"/mine.py:{LINE}: .*mine.py:{LINE + 1}: .*mine.py:{HOOK + 1}: "):
        add = "logits = logits + torch.zeros(5)"
        advice(tmp_path, f"{add}\n        {add}", "data.infer(lambda images: self.network(images).numpy())")
