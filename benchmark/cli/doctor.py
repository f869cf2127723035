"""`doctor`: what this machine has."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from benchmark.cli.options import Command, Request
from benchmark.errors import COMPLETE, FAILED, UsageError
from benchmark.exhibits.base import NoFlags

PACKAGES = ("torch", "torchvision", "timm", "numpy", "pandas", "scipy", "matplotlib", "joblib", "distributed")


def run(request: Request, own: NoFlags) -> int:
    from importlib.metadata import PackageNotFoundError, version

    from benchmark.runner import devices
    from benchmark.runner.devices import cores
    from benchmark.runner.provenance import commit, cpu_name
    from datasets.registry import SOURCES

    print(f"Python      {sys.version.split()[0]}")
    for package in PACKAGES:
        try:
            print(f"{package:<11} {version(package)}")
        except PackageNotFoundError:
            print(f"{package:<11} not installed")
    found = devices.cuda_devices()
    print(f"Device      {', '.join(found) or 'no GPU that torch can use; runs go to the CPU'}")
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
    for line in _weights():
        print(line)
    return worst


def _weights() -> list[str]:
    """What the bundled profiles start from that is no part of this checkout, and whether it is here."""
    from benchmark.config.profile import profile_names
    from benchmark.config.selection import select
    from benchmark.config.weights import needed
    from methods.networks.pretrained import whereabouts

    lines: dict[str, None] = {}
    for profile in profile_names():
        try:
            selection = select(profile)
            for weights in needed(selection.specs(selection.methods[:1])):
                found = whereabouts(weights.network, weights.file)
                lines[f"  {weights.network:<28} {'here' if found.here else 'missing':<10} {found.words}"] = None
                if not found.here:
                    lines[f"  {'':<28} → {weights.advice}"] = None
        except UsageError as error:
            lines[f"  profile {profile}: {error}"] = None
    return ["Weights", *lines] if lines else []


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
