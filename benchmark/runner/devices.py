"""Choose the devices of a command and how many runs it does at once, without importing torch where possible."""

from __future__ import annotations

import functools
import os
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

from benchmark.errors import UsageError, warn
from benchmark.files import Lock, file_name

MOST_JOBS = 1024


def cuda_devices() -> list[str]:
    """Return "cuda:0", "cuda:1", … for the GPUs that torch can use. Without an NVIDIA device torch is not imported."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1"):
        return []
    if not any(Path("/dev").glob("nvidia[0-9]*")) and not Path("/dev/dxg").exists():
        return []
    return [f"cuda:{k}" for k in range(usable_gpus())]


@functools.cache
def usable_gpus() -> int:
    """Return how many GPUs torch can use; warn where there is a GPU and it can use none.

    Asks the driver and creates no CUDA context. Workers on GPUs are spawned, not forked, so this does not disturb them.
    """
    import torch

    with warnings.catch_warnings(record=True) as reasons:
        warnings.simplefilter("always")
        if torch.cuda.is_available():
            return torch.cuda.device_count()
    reason = str(reasons[0].message).splitlines()[0] if reasons else "no reason given"
    warn(f"torch {torch.__version__} cannot use the GPU of this machine ({reason}); see `nvidia-smi`.")
    return 0


def resolve(device: str) -> list[str]:
    """Return the devices that slots are spread over, for `--device auto|cpu|cuda|cuda:1`."""
    if device == "cpu":
        return ["cpu"]
    gpus = cuda_devices()
    if device == "auto":
        return gpus or ["cpu"]
    if device == "cuda" and gpus:
        return gpus
    if device in gpus:
        return [device]
    if device.startswith("cuda"):
        have = f"this machine has {', '.join(gpus)}" if gpus else "there is no GPU that torch can use"
        raise UsageError(f"--device {device}: {have}; use --device cpu.")
    raise UsageError(f"--device {device}: choose auto, cpu, cuda or cuda:N.")


def claim(gpus: Sequence[str]) -> str:
    """Return one of the devices for this process, as long as it lives: workers that see the same GPUs take different ones.

    GPUs are identified by what CUDA_VISIBLE_DEVICES calls them; where there are more workers than GPUs, they share.
    """
    if len(gpus) == 1:
        return gpus[0]
    global _claimed
    if _claimed is not None and _claimed[0] in gpus:
        return _claimed[0]
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    folder = Path(tempfile.gettempdir()) / f"candid-cards-{os.getuid()}"
    for again in range(MOST_JOBS):
        for device in gpus:
            k = int(device.partition(":")[2])
            lock = Lock(folder / file_name(f"{visible[k] if k < len(visible) else k}-{again}"))
            if lock.acquire():
                _claimed = device, lock
                return device
    return gpus[0]


_claimed: tuple[str, Lock] | None = None


def parse_jobs(text: str | None, devices: Sequence[str]) -> list[str]:
    """Return the device of every slot, for `--jobs N` or `--jobs K/gpu`; by default one per GPU, on a CPU one per core."""
    if text is None:
        return list(devices) if devices[0] != "cpu" else ["cpu"] * cores()
    number, _, per = text.partition("/")
    if not number.isdecimal() or int(number) < 1 or per not in ("", "gpu"):
        raise UsageError(f"--jobs {text}: write a positive integer, or K/gpu for K runs on each GPU.")
    if int(number) > MOST_JOBS:
        raise UsageError(f"--jobs {text}: one machine does at most {MOST_JOBS} runs at once.")
    if per == "gpu":
        if devices[0] == "cpu":
            raise UsageError(f"--jobs {text}: there is no GPU here; write --jobs {number}.")
        return [device for device in devices for _ in range(int(number))]
    return [devices[k % len(devices)] for k in range(int(number))]


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
