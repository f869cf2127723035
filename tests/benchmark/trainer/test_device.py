"""How a run's device is made ready: exact on CUDA, by its number, before anything else touches it."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from benchmark.config.selection import select
from benchmark.contract.pretend import PretendCuda
from benchmark.runner import worker
from benchmark.runner.options import RunOptions
from benchmark.trainer.device import ENVIRONMENT, ready
from methods.networks import knn


def tf32() -> tuple[bool, bool]:
    return torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32


def test_a_run_on_cuda_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    with PretendCuda():
        assert ready("cuda") == torch.device("cuda", 0)
        assert (
            torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled()
        )
        assert not torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
        assert torch.backends.cudnn.deterministic and not torch.backends.cudnn.benchmark
        attention = torch.backends.cuda
        assert attention.math_sdp_enabled()
        assert not (attention.flash_sdp_enabled() or attention.mem_efficient_sdp_enabled())
        assert not attention.cudnn_sdp_enabled()
    assert {name: os.environ[name] for name in ENVIRONMENT} == ENVIRONMENT
    assert ENVIRONMENT["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(
    ("setting", "expected"), [("off", (False, False)), ("conv", (True, False)), ("all", (True, True))]
)
def test_tf32_is_as_it_is_set_and_neighbours_are_never_searched_in_it(
    setting: str, expected: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    real = knn.smallest

    def watched(values: torch.Tensor, m: int) -> torch.Tensor:
        seen.append(tf32()[1])
        return real(values, m)

    monkeypatch.setattr(knn, "smallest", watched)
    with PretendCuda():
        ready("cuda:0", setting)
        assert tf32() == expected
        knn.nearest_neighbours(torch.rand(70, 4, device="cuda"), 3)
        assert seen == [False] and tf32() == expected
        ready("cuda:0", "conv")  # the next run of this process may be set otherwise
        knn.nearest_neighbours(torch.rand(70, 4, device="cuda"), 3)
        assert seen == [False, False] and tf32() == (True, False)


def test_tf32_is_a_part_of_a_runs_identity_and_the_default_is_torchs() -> None:
    def spec(*settings: str) -> Any:
        (found,) = select("quick", methods="proden", datasets="digits", seeds="0", settings=settings).specs()
        return found

    assert spec().train.tf32 == "conv"
    assert spec("train.tf32=conv").digest == spec().digest
    assert len({spec(f"train.tf32={value}").digest for value in ("off", "conv", "all")}) == 3


@pytest.mark.parametrize("task", ["prepare", "execute"])
def test_a_worker_takes_its_card_before_it_does_anything_else_and_gives_its_memory_back(
    task: str, tmp_path: Any
) -> None:
    (spec,) = select("quick", methods="proden", datasets="digits", seeds="0").specs()
    order: list[str] = []

    def work(*_: object) -> None:
        order.append("work")
        raise ValueError("no data")

    with PretendCuda(index=1), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "set_device", lambda device: order.append(f"set {device}"))
        patch.setattr(torch.cuda, "empty_cache", lambda: order.append("given back"))
        patch.setattr(worker, "dataset_of", work)
        assert getattr(worker, task)(spec, RunOptions(tmp_path, tmp_path, "cuda:1")).status == "failed"
    assert order == ["set cuda:1", "work", "given back"]
