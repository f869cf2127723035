"""Record where a number comes from: machine, versions, commit, a digest of the source."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmark.files import ROOT
from benchmark.runner.devices import cores

PACKAGES = ("joblib", "pandas", "pillow", "safetensors", "scikit-learn", "scipy", "timm")  # the others have a field


@functools.lru_cache(maxsize=4)
def environment(device: str) -> dict[str, Any]:
    """Return the machine and the versions that a run was trained with."""
    import numpy
    import torch

    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else cpu_name()
    return {
        "device": device,
        "device_name": name,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": package_version("torchvision"),  # asked without importing it, which takes seconds
        "numpy": numpy.__version__,
        "platform": platform.platform(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),  # the kernels that were taken: bits follow from it
        "cores": cores(),
        "memory_gb": memory_gb(),
        "packages": ", ".join(f"{name} {version}" for name in PACKAGES if (version := package_version(name))),
        **(cuda_versions() if device.startswith("cuda") else {}),
        "commit": commit(),
        "code_version": code_version(),
    }


def cuda_versions() -> dict[str, Any]:
    """Return what the bits of a run on CUDA follow from beside the GPU; TF32 is a setting of the run."""
    import torch

    driver = ""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.partition("\n")[0].strip()
    return {
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "driver": driver,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def package_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def memory_gb() -> int:
    """Return the memory of the machine; 0 where it is unknown."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9)
    return 0


def cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "CPU"


@functools.cache
def commit() -> str:
    """Return the commit of the checkout, with '+' when tracked files differ from it; empty outside git."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, timeout=10)
        diff = subprocess.run(
            ["git", "status", "--porcelain", "-uno", "--", "methods", "datasets", "benchmark"],
            cwd=ROOT, capture_output=True, text=True, timeout=20,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return head.stdout.strip() + ("+" if diff.stdout.strip() else "") if head.returncode == 0 else ""


@functools.cache
def code_version() -> str:
    """Return a digest of the source of the three packages: equal code has an equal version, independent of git."""
    digest = hashlib.sha256()
    for package in ("benchmark", "datasets", "methods"):
        for path in sorted((ROOT / package).rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
