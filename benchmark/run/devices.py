"""Which devices a command may use, found out without importing torch where possible."""

from __future__ import annotations

import os
from pathlib import Path

from benchmark.errors import UsageError


def cuda_devices() -> list[str]:
    """'cuda:0', … as torch sees them. torch is asked only if the machine has an NVIDIA device at all."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1"):
        return []
    if not any(Path("/dev").glob("nvidia[0-9]*")) and not Path("/dev/dxg").exists():
        return []
    import torch

    return [f"cuda:{k}" for k in range(torch.cuda.device_count())]


def resolve(device: str) -> list[str]:
    """`--device auto|cpu|cuda|cuda:1` -> the devices that slots are spread over."""
    if device == "cpu":
        return ["cpu"]
    found = cuda_devices()
    if device == "auto":
        return found or ["cpu"]
    if device == "cuda" and found:
        return found
    if device in found:
        return [device]
    if device.startswith("cuda"):
        have = f"this machine has {', '.join(found)}" if found else "torch sees no CUDA device here"
        raise UsageError(f"--device {device}: {have}; use --device cpu.")
    raise UsageError(f"--device {device}: choose auto, cpu, cuda or cuda:N.")
