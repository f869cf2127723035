"""The speed tool: the bare loop repeats what the networks do in a step, and `--docs` keeps what was not measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from benchmark.config.selection import select
from benchmark.tools import docs, speed


def test_the_bare_loop_gives_the_gradients_of_the_step_and_leaves_the_weights_alone() -> None:
    (spec,) = select("quick", methods="pico", datasets="digits", seeds="0").specs()
    trainer, batches, _ = speed.late_trainer(spec)
    method = trainer.method
    before = [parameter.detach().clone() for parameter in method.parameters()]
    loop = speed.BareLoop(trainer, batches[:1])
    expected = [parameter.grad.clone() for parameter in method.parameters() if parameter.grad is not None]
    assert len(expected) > 4
    with torch.no_grad():  # return to the weights of the recorded step, which trained like any other
        assert any(not torch.equal(p, old) for p, old in zip(method.parameters(), before, strict=True))
        for parameter, old in zip(method.parameters(), before, strict=True):
            parameter.copy_(old)
    loop.step()
    gradients = [parameter.grad for parameter in method.parameters() if parameter.grad is not None]
    for ours, theirs in zip(gradients, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert all(torch.equal(p, old) for p, old in zip(method.parameters(), before, strict=True))


def test_docs_are_renewed_for_the_measured_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, stored, cost = tmp_path / "speed.md", docs.costs(), tmp_path / "cost.json"
    page.write_text("Words.\n<!-- steps -->\nold\n<!-- /steps -->\n")
    cost.write_bytes(docs.COST.read_bytes())
    monkeypatch.setattr(docs, "COST", cost)
    monkeypatch.setattr(docs, "PARTS", {page: {"steps": docs.step_table}})
    networks = {"small network": (), "ResNet-18": ()}  # the small one for both
    for name, value in {"ROUNDS": 1, "TURN_SECONDS": 0.0, "NETWORKS": networks}.items():
        monkeypatch.setattr(speed, name, value)
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    monkeypatch.setattr(docs.evidence, "TABLES", tmp_path)
    monkeypatch.setattr(docs.evidence, "FILES", {})
    monkeypatch.setattr(sys, "argv", ["speed", "--methods", "cc", "--docs"])
    speed.main()
    new = docs.costs()
    assert new.keys() == stored.keys() and new["rc"] == stored["rc"]
    assert new["cc"]["bare_loop"]["small network"] > 0 and new["cc"]["seconds_per_step_relative_to_proden"] > 0
    text = page.read_text()
    assert text.startswith("Words.\n") and "old" not in text
    assert f"| cc | {new['cc']['bare_loop']['small network']:.2f} |" in text


def test_an_unknown_method_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["speed", "--methods", "prodem"])
    with pytest.raises(SystemExit) as stopped:
        speed.main()
    assert stopped.value.code == 2 and "prodem" in capsys.readouterr().err
