"""Which devices a command may use, and how many runs at once; found out without importing torch where possible."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from benchmark.errors import UsageError

MOST_JOBS = 1024


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


def parse_jobs(text: str | None, devices: Sequence[str]) -> list[str]:
    """The device of every slot: `--jobs N`, `--jobs K/gpu`; default one per CUDA device, on a CPU one per core."""
    if text is None:
        return list(devices) if devices[0] != "cpu" else ["cpu"] * cores()
    number, _, per = text.partition("/")
    if not number.isdecimal() or int(number) < 1 or per not in ("", "gpu"):
        raise UsageError(f"--jobs {text}: write a whole number, or K/gpu for K runs on each GPU.")
    if int(number) > MOST_JOBS:
        raise UsageError(f"--jobs {text}: that is more than one machine can do at once; {MOST_JOBS} is the most.")
    if per == "gpu":
        if devices[0] == "cpu":
            raise UsageError(f"--jobs {text}: there is no GPU here; write --jobs {number}.")
        return [device for device in devices for _ in range(int(number))]
    return [devices[k % len(devices)] for k in range(int(number))]


def memory_of(device: str) -> float:
    """Bytes that a device has, a CPU the machine's; 0 if nobody knows."""
    if device.startswith("cuda"):
        import torch

        return float(torch.cuda.get_device_properties(device).total_memory)
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        return 0.0


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
