"""`doctor --gpu` without a GPU: its tests on the pretend device and on the CPU, and what it says where something fails."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmark import certificate
from benchmark.certificate import TESTS, Failed, Trial, certify, passed
from benchmark.device.pretend import PretendCuda
from tests.conftest import TinyBenchmark

FEW = ["proden", "nepll", "cel"]
CUDA = torch.device("cuda", 0)


@pytest.mark.parametrize("test", [test for test in TESTS if not test.needs_card], ids=lambda test: test.name)
def test_what_needs_no_card_passes_on_the_pretend_device(test: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate, "methods", lambda: FEW)
    monkeypatch.setattr(certificate, "RESUMED", FEW[:1])
    with PretendCuda():
        assert test.run(CUDA)


def test_a_method_that_ends_otherwise_every_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = iter("ab")
    monkeypatch.setattr(certificate, "methods", lambda: ["proden"])
    monkeypatch.setattr(certificate, "trained", lambda trainer: next(digests))
    with pytest.raises(Failed, match="proden: two equal trainings end in different weights"):
        certificate.repetition(torch.device("cpu"))


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
