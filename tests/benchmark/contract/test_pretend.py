"""The pretend device refuses what CUDA refuses, and sees every wait and every launch with its line."""

from __future__ import annotations

import inspect

import pytest
import torch

from benchmark.contract.pretend import MixedDevices, Pretend, PretendCuda


def here() -> str:
    """This line, as the device names it."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return f"tests/benchmark/contract/test_pretend.py:{frame.f_back.f_lineno}"


def test_values_are_those_of_the_cpu_and_the_device_is_named() -> None:
    with PretendCuda():
        for device in ("cuda", "cuda:0"):
            x = torch.arange(6, device=device).float().view(2, 3)
            assert isinstance(x, Pretend) and x.device == torch.device("cuda:0") and x.is_cuda
            assert (x @ x.T).cpu().tolist() == [[5, 14], [14, 50]]


def test_the_second_of_two_cards_takes_nothing_that_goes_to_the_first() -> None:
    with PretendCuda(index=1):
        there = torch.ones(2, device="cuda:1")
        assert torch.cuda.device_count() == 2 and there.device == (there + 1).device == torch.device("cuda:1")
        for device in ("cuda", "cuda:0"):
            with pytest.raises(MixedDevices, match="but this process has cuda:1"):
                torch.ones(2).to(device)


def test_two_devices_in_one_call_are_refused_with_the_line() -> None:
    with PretendCuda():
        x = torch.ones(3, device="cuda")
        assert float((x * torch.tensor(2.0)).sum()) == 6  # a single number of the CPU is allowed
        with pytest.raises(MixedDevices, match="same device") as caught:
            assert (place := here()) and (x + torch.ones(3)).any()
        assert place in str(caught.value)
        with pytest.raises(MixedDevices, match="pin"):
            x.pin_memory()
        with pytest.raises(TypeError, match="numpy"):
            x.numpy()


def test_a_generator_of_the_cpu_beside_tensors_of_the_device_is_refused() -> None:
    with PretendCuda():
        generator = torch.Generator().manual_seed(0)
        for call in (
            lambda: torch.randperm(4, generator=generator, device="cuda"),
            lambda: torch.rand(4, generator=generator, device="cuda"),
            lambda: torch.empty(4, device="cuda").uniform_(generator=generator),
            lambda: torch.multinomial(torch.ones(4, device="cuda"), 2, generator=generator),
        ):
            with pytest.raises(MixedDevices, match="generator"):
                call()
        assert torch.randperm(4, generator=generator).device.type == "cpu"


def test_every_wait_is_noted_with_its_line() -> None:
    with PretendCuda() as device:
        x = torch.arange(4.0, device="cuda")
        device.waits.clear()
        y = x + 1
        assert not device.waits
        first, *_ = (
            here(),
            float(y.sum()),
            y[y > 2],
            torch.tensor([1.0], device="cuda"),
            (y + 1).tolist(),
            (y + 1).nonzero(),
            (y + 1).cpu(),
        )
    file, _, line = first.rpartition(":")
    assert sum(device.waits.values()) == 6
    what = ["a value is read", "boolean mask", "copy to the device", "tolist", "nonzero", "copy to the host"]
    assert device.waits == {(name, f"{file}:{int(line) + k}"): 1 for k, name in enumerate(what, 1)}


def test_a_copy_waits_unless_its_source_is_pinned() -> None:
    large = torch.zeros(2**20, dtype=torch.uint8)
    with PretendCuda() as device:
        large.to("cuda", non_blocking=True)
        assert sum(device.waits.values()) == 1
        large.pin_memory()[5:].to("cuda", non_blocking=True)
        torch.empty(2**20, pin_memory=True).to("cuda", non_blocking=True)
        large[:1000].to("cuda", non_blocking=True)  # small ones are taken along
        assert sum(device.waits.values()) == 1


def test_gradients_flow_and_operations_without_a_deterministic_form_are_refused() -> None:
    with PretendCuda():
        table = torch.zeros(3, device="cuda", requires_grad=True)
        rows = torch.tensor([0, 0, 2], device="cuda")
        table.index_select(0, rows).sum().backward()
        assert table.grad is not None and table.grad.cpu().tolist() == [2, 0, 1]
        torch.use_deterministic_algorithms(True)
        assert rows.bincount().cpu().tolist() == [2, 0, 1]
        with pytest.raises(RuntimeError, match="bincount does not have a deterministic"):
            rows.bincount(torch.ones(3, device="cuda"))


def test_torch_is_left_as_it_was_found() -> None:
    before = (torch.cuda.is_available, torch.inference_mode, torch.are_deterministic_algorithms_enabled())
    with pytest.raises(ZeroDivisionError), PretendCuda():
        torch.use_deterministic_algorithms(True)
        _ = 1 / 0
    assert before == (torch.cuda.is_available, torch.inference_mode, torch.are_deterministic_algorithms_enabled())
    assert torch.ones(2).sum() == 2
