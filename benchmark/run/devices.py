"""Which devices a command may use, and how many runs at once; found out without importing torch where possible."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmark.device import probe
from benchmark.errors import UsageError, warn
from benchmark.files import Lock, file_name

MOST_JOBS = 1024


def cuda_devices() -> list[str]:
    """'cuda:0', … that torch can use; one sentence for those it cannot. Asked only if there is an NVIDIA device at all."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1"):
        return []
    if not any(Path("/dev").glob("nvidia[0-9]*")) and not Path("/dev/dxg").exists():
        return []
    found = probe.cards()
    for problem in problems(found):
        warn_once(problem)
    return [card.device for card in found if not card.problem]


def problems(found: Sequence[probe.Card]) -> list[str]:
    """What is wrong with cards; of several with one fault, the first."""
    kinds = {card.problem.replace(card.device, ""): card.problem for card in reversed(found) if card.problem}
    return list(reversed(kinds.values()))


@functools.cache
def warn_once(problem: str) -> None:
    warn(problem)


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
        have = f"this machine has {', '.join(found)}" if found else "torch can use no CUDA device here"
        raise UsageError(f"--device {device}: {have}; use --device cpu.")
    raise UsageError(f"--device {device}: choose auto, cpu, cuda or cuda:N.")


def claim(found: Sequence[str]) -> str:
    """One of the devices for this process, as long as it lives: workers that see the same cards take different ones.

    Cards are told apart by what CUDA_VISIBLE_DEVICES calls them; where there are more workers than cards, they share.
    """
    if len(found) == 1:
        return found[0]
    global _claimed
    if _claimed is not None and _claimed[0] in found:
        return _claimed[0]
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    folder = Path(tempfile.gettempdir()) / f"candid-cards-{os.getuid()}"
    for again in range(MOST_JOBS):
        for device in found:
            k = int(device.partition(":")[2])  # not its place in the list, where unusable cards are left out
            lock = Lock(folder / file_name(f"{visible[k] if k < len(visible) else k}-{again}"))
            if lock.acquire():
                _claimed = device, lock
                return device
    return found[0]


_claimed: tuple[str, Lock] | None = None


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


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
