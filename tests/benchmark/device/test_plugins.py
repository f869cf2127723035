"""`check` runs a plug-in on the pretend device, and names the lines of mixed devices and of waits."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmark.contract.claims import CLAIMS
from benchmark.contract.examiner import Finding, Subject, try_claim
from methods.registry import scan

PLUGIN = """
import torch
from methods.base import About, Method, Step
from methods.blocks import Classifier
from methods.registry import register


@register
class Mine(Method):
    name = "mine"
    about = About("Mine", "PLL")

    def __init__(self, config, task):
        super().__init__(config, task)
        self.network = Classifier(task)

    def training_step(self, batch, clock):
        logits = self.network(batch.views[0])
        {line}
        return Step(-(logits.log_softmax(1) * batch.candidates).sum(1).mean())

    def predict(self, images):
        return self.network(images)

    def on_epoch_end(self, clock, data):
        {hook}
"""
LINE, HOOK = 19, 26


def found(folder: Path, line: str = "", hook: str = "pass") -> Finding:
    path = Path(tempfile.mkdtemp(dir=folder)) / "mine.py"  # a file is imported once
    path.write_text(PLUGIN.format(line=line, hook=hook))
    claim = next(claim for claim in CLAIMS if claim.name == "device")
    return try_claim(Subject(scan(path)[0]), claim, seconds=60)


def test_a_clean_plugin_has_no_remark(tmp_path: Path) -> None:
    assert found(tmp_path) == Finding("mine", "device", "ok")


def test_waits_in_a_step_are_named(tmp_path: Path) -> None:
    finding = found(tmp_path, "scale = logits.max().item()")
    assert finding.status == "ok" and f"mine.py:{LINE} (a value is read)" in finding.text
    finding = found(tmp_path, "logits = logits + torch.tensor(0.0, device=logits.device)")
    assert f"mine.py:{LINE} (copy to the device)" in finding.text
    several = "logits = logits * (logits.max().item() > 0); logits.sum().tolist()"
    assert found(tmp_path, several.replace("; ", "\n        ")).text.count("mine.py:") == 2


def test_mixed_devices_are_defects_with_their_lines(tmp_path: Path) -> None:
    for finding, line in (
        (found(tmp_path, "logits = logits + torch.zeros(5)"), LINE),
        (
            found(tmp_path, "logits = logits[torch.randperm(8, generator=torch.Generator(), device=logits.device)]"),
            LINE,
        ),
        (found(tmp_path, hook="data.infer(lambda images: self.network(images) + torch.zeros(5))"), HOOK),
    ):
        assert finding.status == "defect" and finding.where.endswith(f"/mine.py:{line}"), finding
    finding = found(tmp_path, "logits = logits + torch.zeros(5)", "data.infer(lambda x: self.network(x).numpy())")
    assert finding.where.endswith(f"/mine.py:{LINE}") and f"; mine.py:{HOOK}: can't convert" in finding.text  # all
