"""The device of a test: a real GPU (marker `gpu`), the pretend CUDA device, or the CPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmark.contract.pretend import PretendCuda
from benchmark.runner.devices import cuda_devices
from benchmark.trainer.device import ready


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a GPU where there is none: from here, so that pytest reports all of it in one line."""
    if item.get_closest_marker("gpu") and not cuda_devices():
        pytest.skip("no GPU that torch can use")


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the name of the device."""
    if request.param == "pretend":
        with PretendCuda():
            yield "cuda:0"
    elif request.param == "cuda":
        ready("cuda:0", tf32="off")
        yield "cuda:0"
    else:
        yield "cpu"
