"""The virtual clock: what it adds up, and that at 224 px the modelled card is kept busy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmark.cli import speed
from benchmark.cli.options import Request
from benchmark.device.clock import CARDS, LAUNCH, PCIE, VirtualClock
from benchmark.speed import model


def test_host_and_device_run_beside_each_other_and_meet_at_a_wait() -> None:
    card = CARDS["A100"]
    with VirtualClock(card) as clock:
        x = torch.empty(2**26, device="cuda")
        clock.reset()
        for _ in range(10):
            x.add_(1)
        once = 2 * x.nelement() * 4 / card.bandwidth  # read and written
        assert clock.host == pytest.approx(10 * LAUNCH) and clock.busy == pytest.approx(10 * once)
        assert clock.seconds == pytest.approx(LAUNCH + 10 * once)
        x.sum().item()
        assert clock.host == clock.device_free
        small = torch.empty(4, device="cuda")
        clock.reset()
        for _ in range(100):
            small.add_(1)
        assert clock.idle_share > 0.5  # launches take longer than the work


def test_multiplications_and_copies_take_their_time() -> None:
    card = CARDS["A100"]
    with VirtualClock(card) as clock:
        x = torch.empty(4096, 4096, device="cuda")
        clock.reset()
        x @ x
        assert clock.busy == pytest.approx(2 * 4096**3 / card.product["conv"])
        clock.reset()
        torch.empty(2**28, dtype=torch.uint8, pin_memory=True).to("cuda", non_blocking=True)
        assert clock.device_free == pytest.approx(2**28 / PCIE, rel=0.05)


@pytest.mark.parametrize("method", ["proden", "cel"])
def test_at_224_px_in_bf16_an_a100_is_idle_for_less_than_a_twentieth(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "STEPS", 2)
    with VirtualClock(CARDS["A100"], "bfloat16") as clock:
        trainer = model.modelled_trainer(method, "224 px")
        trainer.begin_epoch()
        trainer.step(trainer.batch(torch.arange(trainer.batch_size)))
        seconds, busy, waits = model._pipeline(clock, trainer)
    assert waits == 0
    assert 1 - busy / seconds < 0.05


def test_the_command_prints_the_model_as_one_and_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(model, "STEPS", 1)
    request = Request(results=tmp_path, methods="proden")
    assert speed.run(request, speed.Own(device_model="A100")) == 0
    printed = capsys.readouterr().out
    assert "a virtual clock on shapes, not a measurement" in printed and "modelled: " in printed
    document = json.loads((tmp_path / "speed" / "model-A100.json").read_text())
    assert document["kind"] == "model" and [(r["size"], r["precision"]) for r in document["rows"]] == [
        (size, precision) for size in ("32 px", "224 px") for precision in ("TF32", "bf16")
    ]
    assert all(row["idle"] < 0.05 and row["waits_per_step"] + row["waits_per_block"] == 0 for row in document["rows"])
    assert 0 < document["hours"]["bf16"] < document["hours"]["TF32"] < 30  # 18 runs of PRODEN
