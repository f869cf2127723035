"""`doctor`: what this machine has."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from benchmark.cli.options import Command, Request
from benchmark.errors import COMPLETE, FAILED
from benchmark.exhibits.base import NoFlags

PACKAGES = ("torch", "torchvision", "timm", "numpy", "pandas", "scipy", "matplotlib", "joblib", "distributed")


def run(request: Request, own: NoFlags) -> int:
    from importlib.metadata import PackageNotFoundError, version

    from benchmark.run import devices
    from benchmark.run.devices import cores
    from benchmark.run.provenance import commit, cpu_name
    from datasets.registry import SOURCES

    print(f"Python      {sys.version.split()[0]}")
    for package in PACKAGES:
        try:
            print(f"{package:<11} {version(package)}")
        except PackageNotFoundError:
            print(f"{package:<11} not installed")
    found = devices.cuda_devices()
    print(f"Device      {', '.join(found) or 'no CUDA device; runs go to the CPU'}")
    print(f"CPU         {cpu_name()}, {cores()} cores")
    print(f"Memory      {_memory()}")
    for name, folder in (("results", request.results), ("data", request.data)):
        existing = next(p for p in (folder.resolve(), *folder.resolve().parents) if p.exists())
        print(f"Disk        {shutil.disk_usage(existing).free / 2**30:.0f} GiB free for {name} in {folder}")
    print(f"Commit      {commit() or 'not a git checkout'}")
    print("Data sets")
    worst = COMPLETE
    for source in SOURCES.values():
        availability = source.find(request.data)
        print(f"  {source.name:<12} {availability.status:<10} {availability.detail}")
        if availability.how:
            print(f"  {'':<12} → {availability.how}")
        if availability.status == "incomplete":
            worst = FAILED
    return worst


def _memory() -> str:
    try:
        values = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        total, free = (int(values[k].split()[0]) / 2**20 for k in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        return "unknown"
    return f"{total:.0f} GiB, {free:.0f} GiB available"


COMMANDS = (
    Command(
        "doctor",
        "what this machine has: device, memory, disk, data sets, versions",
        run,
        ("results", "data"),
        writes=False,
    ),
)
