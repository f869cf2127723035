"""Device of a run, its settings and its memory: the same run on the same device gives the same bits."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

import torch

from benchmark.errors import CandidError

# CUDA reads these when it starts: exact matrix products, and an allocator for batches of many sizes.
ENVIRONMENT = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}

pretended = False  # whether this process has used the pretend device; its forks then cannot use autograd


def set_environment() -> None:
    """Set the environment of this process and its children; variables that are set already stay."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def ready(name: str | torch.device, tf32: str = "conv") -> torch.device:
    """Return the device of a run, set up for exact results.

    A GPU becomes the current device, algorithms become deterministic (an operation without such a form raises), attention
    takes its plain form, whose backward pass is exact, and `tf32` says where TF32 may replace float32.
    """
    device = torch.device(name)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    if device.type != "cuda":
        return device
    set_environment()
    if device.index is None:  # tensors name their GPU, and "cuda" is not equal to "cuda:0"
        device = torch.device("cuda", torch.cuda.current_device())
    torch.cuda.set_device(device)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cudnn.allow_tf32 = tf32 != "off"
    torch.backends.cuda.matmul.allow_tf32 = tf32 == "all"
    return device


# Settings of torch that change the numbers of a CPU run and that any code in the process can set, with what torch starts
# with. The number of threads is a setting of the run; the flags of CUDA are set by `ready` for every run.
GLOBAL_STATE: dict[str, tuple[Callable[[], object], object]] = {
    "torch.get_default_dtype()": (torch.get_default_dtype, torch.float32),
    "torch.get_default_device()": (torch.get_default_device, torch.device("cpu")),
    "torch.get_float32_matmul_precision()": (torch.get_float32_matmul_precision, "highest"),
    "torch.backends.mkldnn.enabled": (lambda: torch.backends.mkldnn.enabled, True),
    "torch.is_grad_enabled()": (torch.is_grad_enabled, True),
    "torch.is_autocast_enabled('cpu')": (lambda: torch.is_autocast_enabled("cpu"), False),
    "torch.is_anomaly_enabled()": (torch.is_anomaly_enabled, False),
    "torch.are_deterministic_algorithms_enabled()": (torch.are_deterministic_algorithms_enabled, False),
}
SET_FOR_CUDA = ("torch.get_float32_matmul_precision()", "torch.are_deterministic_algorithms_enabled()")


def changed_settings() -> dict[str, str]:
    """Return the global settings of torch that have changed, each with "VALUE instead of VALUE"."""
    values = {name: (read(), expected) for name, (read, expected) in GLOBAL_STATE.items()}
    return {name: f"{now} instead of {start}" for name, (now, start) in values.items() if now != start}


def check_global_state(device: torch.device) -> None:
    """Raise CandidError unless torch is set as every run expects; equal identities then give equal numbers."""
    for name, text in changed_settings().items():
        if device.type != "cuda" or name not in SET_FOR_CUDA:
            raise CandidError(
                f"{name} is {text} before the run starts, which would change its numbers; code in this process has set it"
            )


def release(device: str | torch.device) -> None:
    """Free the GPU memory of the last run; Python collects reference cycles only occasionally."""
    if torch.device(device).type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
