"""The device of a run, made ready: by its number, and so that the same run on the same card gives the same bits."""

from __future__ import annotations

import gc

import torch

from benchmark.device.environment import set_environment


def ready(name: str | torch.device, tf32: str = "conv") -> torch.device:
    """The device that a run goes to, the first that its process touches. A CPU is left as it is.

    On CUDA it becomes the current device, algorithms become deterministic (an operation that has no such form raises),
    attention takes its plain form, whose backward pass is exact, and `tf32` says where float32 may be shortened.
    """
    device = torch.device(name)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    if device.type != "cuda":
        return device
    set_environment()
    if device.index is None:  # tensors name their card, and "cuda" is not equal to "cuda:0"
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


def release(device: str | torch.device) -> None:
    """Give back what the last run held on a card; Python collects circles of references only now and then."""
    if torch.device(device).type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
