"""Method plug-ins that misbehave in one way each, as files for `--plugin`."""

from __future__ import annotations

from pathlib import Path

SOURCE = """
import os
import signal

import torch

from methods.base import About
from methods.proden import Proden
from methods.registry import register


@register
class Odd(Proden):
    name = "{name}"
    about = About("{name}", "PLL")

    def training_step(self, batch, clock):
        step = super().training_step(batch, clock)
{body}
        return step
"""
DIES = "        os.kill(os.getpid(), signal.SIGKILL)"
DIES_LATE = "        if clock.step == 7:\n            os.kill(os.getpid(), signal.SIGKILL)"
DIES_ONCE = """        if clock.step == 7 and not os.path.exists({marker!r}):
            open({marker!r}, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)"""
CRASHES = "        import ctypes\n        ctypes.string_at(0)"
NAN = "        step.loss = step.loss * (float('nan') if clock.step == 7 else 1.0)"
INFINITE = "        step.loss = step.loss * (float('inf') if clock.step == 7 else 1.0)"
GREEDY = "        if clock.step == 7:\n            torch.empty(1 << 36)"
GREEDY_PYTHON = "        if clock.step == 7:\n            bytearray(1 << 42)"
BIG_STATE = """        return step

    def __init__(self, config, task):
        super().__init__(config, task)
        self.register_buffer("ballast", torch.zeros(1 << 20))

    def unused(self, step):"""
SLOW = "        import time\n        time.sleep({seconds})"


def write_plugin(folder: Path, name: str, body: str) -> Path:
    path = folder / f"{name.replace('-', '_')}.py"
    path.write_text(SOURCE.format(name=name, body=body))
    return path
