"""Which CUDA cards torch can really use: each is tried once, in a child process, so that this one never starts CUDA.

The driver's own list counts cards that this torch cannot use: too old ones, or all of them if the driver is too old.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from benchmark.files import ROOT

SECONDS = 180  # for torch to be imported and CUDA to start, on a busy node
OLDER_WHEEL = "the wheel of torch for CUDA 12.6"  # the last that serves cards before sm_75 and drivers before R580


@dataclass(frozen=True)
class Card:
    """One device, and what is wrong with it in one sentence, or nothing."""

    device: str
    name: str = ""
    problem: str = ""


@functools.cache
def cards() -> tuple[Card, ...]:
    """What the child saw; if it saw nothing although there is a driver, one card that stands for the reason."""
    command = [sys.executable, "-m", "benchmark.device.probe"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
        answer = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return (Card("cuda", problem=f"No CUDA device answered within {SECONDS} s; look at `nvidia-smi`."),)
    except (OSError, ValueError, IndexError):
        return (Card("cuda", problem="torch ended while it looked for CUDA devices; look at `nvidia-smi`."),)
    return read(answer)


def read(answer: dict[str, Any]) -> tuple[Card, ...]:
    """The child's answer as cards with sentences."""
    torch_is = f"torch {answer['torch']}"
    if answer["error"]:
        return (Card("cuda", problem=_sentence("No CUDA device can be used", answer["error"], torch_is)),)
    found = []
    for k, card in enumerate(answer["cards"]):
        device, problem = f"cuda:{k}", ""
        if card["error"]:
            what = f"{device} ({card['name']}) cannot be used"
            architecture = f"sm_{''.join(map(str, card['capability']))}"
            if card["capability"] and architecture not in answer["architectures"] and _is_older(card, answer):
                built = ", ".join(answer["architectures"])
                problem = f"{what}: it is {architecture}, and {torch_is} is built for {built}; use {OLDER_WHEEL}."
            else:
                problem = _sentence(what, card["error"], torch_is)
        found.append(Card(device, card["name"], problem))
    return tuple(found)


def _is_older(card: dict[str, Any], answer: dict[str, Any]) -> bool:
    built = [int("".join(filter(str.isdigit, one))) for one in answer["architectures"] if one.startswith("sm_")]
    major, minor = card["capability"]
    return bool(built) and 10 * major + minor < min(built)


def _sentence(what: str, error: str, torch_is: str) -> str:
    if "driver" in error and ("old" in error or "insufficient" in error):
        return f"{what}: the NVIDIA driver is too old for {torch_is}; update it, or use {OLDER_WHEEL}."
    return f"{what} by {torch_is}: {error.rstrip('.')}."


def look() -> dict[str, Any]:
    """In the child: every device by name, and what came of one addition on it."""
    import torch

    answer: dict[str, Any] = {"torch": torch.__version__, "architectures": [], "cards": [], "error": ""}
    try:
        torch.cuda.init()
        answer["architectures"] = torch.cuda.get_arch_list()
    except Exception as error:
        return answer | {"error": first_line(error)}
    for k in range(torch.cuda.device_count()):
        card: dict[str, Any] = {"name": "unknown", "capability": (), "error": ""}
        try:
            card |= {"name": torch.cuda.get_device_name(k), "capability": torch.cuda.get_device_capability(k)}
            if float(torch.zeros(1, device=f"cuda:{k}") + 1) != 1.0:
                card["error"] = "0 + 1 is not 1 on it"
        except Exception as error:
            card["error"] = first_line(error)
        answer["cards"].append(card)
    return answer


def first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


if __name__ == "__main__":
    print(json.dumps(look()))
