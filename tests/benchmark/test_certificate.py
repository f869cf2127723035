"""`doctor --gpu` without a GPU: its tests on the pretend device and on the CPU, and what it says where something fails."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import torch

from benchmark import certificate
from benchmark.certificate import TESTS, Failed, Trial, certify, passed
from benchmark.cli import doctor
from benchmark.cli.options import Request
from benchmark.contract import vectors
from benchmark.device import probe
from benchmark.device.operations import REFUSED
from benchmark.device.pretend import PretendCuda
from benchmark.run import devices
from benchmark.run.backends.local import Worker
from benchmark.run.provenance import environment
from benchmark.speed import model
from tests.conformance import proden
from tests.conftest import TinyBenchmark

FEW = ["proden", "nepll", "cel"]
CUDA = torch.device("cuda", 0)


@pytest.mark.parametrize("test", [test for test in TESTS if not test.needs_card], ids=lambda test: test.name)
def test_what_needs_no_card_passes_on_the_pretend_device(test: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate, "methods", lambda: FEW)
    monkeypatch.setattr(certificate, "RESUMED", FEW[2:])
    with PretendCuda() as device:
        assert test.run(CUDA)
    assert device.launches or test.run is certificate.card
    assert not {name for name, _ in device.inexact} & REFUSED.keys()


@pytest.mark.parametrize("test", [test for test in TESTS if test.needs_card], ids=lambda test: test.name)
def test_what_needs_a_card_runs_to_its_end_without_one(test: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """On small networks or on the CPU: what it says then means nothing, but its code was run."""
    monkeypatch.setattr(certificate, "TIMED_STEPS", 2)
    monkeypatch.setattr(certificate, "LEAST", 0)
    monkeypatch.setattr(model, "modelled_trainer", lambda method, size, device: certificate.trainer_on(device, method))
    if test.name in ("fresh worker", "two processes"):
        assert test.run(torch.device("cpu"))
        return
    with PretendCuda():
        assert test.run(CUDA)


def test_what_must_repeat_draws_the_dropout_masks_of_the_paper() -> None:
    """`quick` has none, and a card draws from a generator of its own."""
    drawn = []
    for draws in (False, True):
        with PretendCuda() as device:
            certificate.trained(certificate.trainer_on(CUDA, "cel", draws=draws))
        drawn.append(sum(count for (name, _), count in device.launches.items() if name == "bernoulli_"))
    assert drawn[0] == 0 and drawn[1] > 0


def test_golden_numbers_are_tried_in_float32() -> None:
    with vectors.SinglePrecision():
        assert torch.nn.Linear(2, 2).double().weight.dtype == torch.zeros(1, dtype=torch.float64).dtype == torch.float32


def test_a_golden_number_that_a_card_misses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    right = proden.OPS["loss"]

    def wrong(params, x, variant):
        found = right(params, x, variant)
        return found | {"loss": found["loss"] * (1.001 if x["logits"].is_cuda else 1)}

    monkeypatch.setitem(proden.OPS, "loss", wrong)
    listed = [one for one in vectors.cases_of_methods() if one[0] == "proden"]
    monkeypatch.setattr(vectors, "cases_of_methods", lambda: listed)
    with PretendCuda(), pytest.raises(Failed, match=r"proden loss \(loss-0.npz\) is 1.0e-03 from the golden numbers"):
        certificate.golden(CUDA)


def test_without_golden_vectors_the_certificate_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "FOLDER", tmp_path / "nothing")
    lines: list[str] = []
    document = certify(
        torch.device("cpu"), tmp_path, lines.append, tuple(t for t in TESTS if t.run is certificate.golden)
    )
    assert passed(document) and "skip" in lines[0] and "no tests/vectors" in lines[0]


def test_a_wait_in_a_step_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate, "methods", lambda: ["nepll"])
    monkeypatch.setattr(certificate, "WAITING", ())
    with PretendCuda(), pytest.raises(Failed, match=r"nepll: a step waits for the card .*methods/nepll.py:\d+"):
        certificate.waits(CUDA)


def test_training_is_timed_beside_its_bare_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate, "TIMED_STEPS", 10)
    rate, part = certificate.pace(certificate.trainer_on(torch.device("cpu"), "proden"))
    assert rate > 0 and 0.02 < part < 1.2


def test_a_training_far_slower_than_its_bare_loop_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "modelled_trainer", lambda *_: None)
    monkeypatch.setattr(certificate, "busy_share", lambda _: "busy 40 %")
    monkeypatch.setattr(certificate, "pace", lambda _: (1000.0, 0.45))
    with pytest.raises(Failed, match=r"cel at 224 px below 0.7 of the bare loop.*1,000 pictures/s, 0.45"):
        certificate.speed(torch.device("cpu"))


def test_a_method_that_does_not_fit_is_said_and_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(model, "modelled_trainer", no_room)
    assert "idgp does not fit; use paper-bf16" in certificate.memory(torch.device("cpu"))


def test_a_method_that_ends_otherwise_every_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = iter("ab")
    monkeypatch.setattr(certificate, "methods", lambda: ["proden"])
    monkeypatch.setattr(certificate, "trained", lambda trainer: next(digests))
    with pytest.raises(Failed, match="proden: two equal trainings end in different weights"):
        certificate.repetition(torch.device("cpu"))


def test_a_slot_with_another_card_than_its_own_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "do", lambda *_: ("cuda:1", "GPU-b"))
    monkeypatch.setattr(certificate, "card_number", lambda _: "GPU-a")
    with pytest.raises(Failed, match="the worker of cuda:0 GPU-a computes on cuda:1 GPU-b"):
        certificate.fresh_worker(CUDA)


@pytest.mark.parametrize(("said", "code"), [("certified", 0), ("NOT certified", 1)])
def test_the_command_prints_reasons_and_writes_what_a_report_needs(
    said: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def waits(device: torch.device) -> str:
        raise Failed("a step waits for the card")

    tests = (TESTS[0], *([Trial("waits", "A step waits for nothing", waits)] if code else []))
    monkeypatch.setattr(certificate, "certify", partial(certify, tests=tests))
    monkeypatch.setattr(devices, "cuda_devices", lambda: ["cuda:0", "cuda:1"])
    monkeypatch.setattr(probe, "cards", lambda: (probe.Card("cuda:0", "pretend"),))
    environment.cache_clear()
    with PretendCuda():
        assert doctor.run(Request(results=tmp_path, device="cuda:0"), doctor.Own(gpu=True)) == code
    environment.cache_clear()
    printed = capsys.readouterr().out
    assert f"  {said}; attach {tmp_path}/doctor-gpu-" in printed and "cuda:1" not in printed
    assert "pass  Card and driver: pretend, sm_80, 68.7 GB; driver" in printed
    assert ("FAIL  A step waits for nothing: a step waits for the card" in printed) == bool(code)
    (path,) = tmp_path.glob("doctor-gpu-*.json")
    document = json.loads(path.read_text())
    assert document["architectures"] == ["sm_80"] and document["cards"][0]["name"] == "pretend"
    assert {"driver", "cuda", "cudnn", "torch", "device_name"} <= document["environment"].keys()
    assert [row["status"] for row in document["tests"]] == ["pass", *["FAIL"] * code, "pass"]


def test_the_certificate_says_what_failed_and_goes_on(tmp_path: Path) -> None:
    def broken(device: torch.device) -> str:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    lines: list[str] = []
    tests = (Trial("a", "It breaks", broken), Trial("b", "It works", lambda device: "seen"))
    document = certify(torch.device("cpu"), tmp_path, lines.append, tests)
    assert [row["status"] for row in document["tests"]] == ["FAIL", "pass", "pass"] and not passed(document)
    assert "illegal memory access" in lines[0] and "locks work" in lines[2]
    assert not list(tmp_path.iterdir())


def test_without_a_card_it_is_one_sentence(tiny_benchmark: TinyBenchmark) -> None:
    done = tiny_benchmark.run("doctor", "--gpu")
    assert done.returncode == 1
    assert done.stderr == "reproduce.sh: doctor --gpu needs a CUDA card that torch can use, and there is none here.\n"
