"""`check` and `doctor`; `test` and `python` are carried out by reproduce.sh and stand here for the help."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from benchmark.cli import options as shared
from benchmark.errors import COMPLETE, FAILED, UsageError

PACKAGES = ("torch", "torchvision", "timm", "numpy", "pandas", "scipy", "matplotlib", "joblib", "distributed")


@click.command
@click.argument("file", type=shared.PATH)
def check(file: Path) -> int:
    """Run the contract tests on a method file and report each defect with its line."""
    from benchmark.contract.command import check

    if not file.is_file():
        raise UsageError(f"There is no file {file}; name the file of the method.")
    return check(file)


@click.command
@shared.results_to_read
@shared.data
def doctor(results: Path, data: Path) -> int:
    """Show devices, memory, disk, versions, datasets and weights of this machine."""
    from benchmark.runner import devices
    from benchmark.runner.provenance import commit, cpu_name, memory_gb, package_version
    from datasets.registry import SOURCES

    print(f"Python      {sys.version.split()[0]}")
    for package in PACKAGES:
        print(f"{package:<11} {package_version(package) or 'not installed'}")
    gpus = devices.cuda_devices()
    print(f"Device      {', '.join(gpus) or 'no GPU that torch can use; runs go to the CPU'}")
    print(f"CPU         {cpu_name()}, {devices.cores()} cores")
    print(f"Memory      {memory_gb() or '?'} GB")
    for name, folder in (("results", results), ("data", data)):
        parent = next(p for p in (folder.resolve(), *folder.resolve().parents) if p.exists())
        print(f"Disk        {shutil.disk_usage(parent).free / 2**30:.0f} GiB free for {name} in {folder}")
    print(f"Commit      {commit() or 'not a git checkout'}")
    print("Datasets")
    worst = COMPLETE
    for source in SOURCES.values():
        availability = source.find(data)
        print(f"  {source.name:<12} {availability.status:<10} {availability.detail}")
        if availability.how:
            print(f"  {'':<12} → {availability.how}")
        if availability.status == "incomplete":
            worst = FAILED
    for line in _weights():
        print(line)
    return worst


def _weights() -> list[str]:
    """Return the pretrained weights that the bundled profiles start from, and whether they are here."""
    from benchmark.config.profile import profile_names
    from benchmark.config.selection import select
    from benchmark.runner.missing import needed_weights

    lines: dict[str, None] = {}
    for profile in profile_names():
        try:
            selection = select(profile)
            for weights in needed_weights(selection.specs(selection.methods[:1])):
                location = weights.location
                state = "here" if location.here else "missing"
                lines[f"  {weights.network:<28} {state:<10} {location.words}"] = None
                if not location.here:
                    lines[f"  {'':<28} → {weights.advice}"] = None
        except UsageError as error:
            lines[f"  profile {profile}: {error}"] = None
    return ["Weights", *lines] if lines else []


def _by_the_script() -> int:
    raise UsageError("test and python are carried out by reproduce.sh; call ./reproduce.sh instead of this module.")


test = click.Command(
    "test", callback=_by_the_script, help="Run formatter, type checker and tests; arguments go to pytest."
)
python = click.Command("python", callback=_by_the_script, help="Run Python in this environment, as `python script.py`.")
