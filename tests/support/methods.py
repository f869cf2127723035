"""All methods as test parameters: five by default, the others under the marker `contract`."""

from __future__ import annotations

from typing import Any

import pytest

from methods.registry import discover

DEFAULT = ("cel", "nepll", "pico", "proden", "valen")  # with two networks, a queue, a neighbour graph, label weights


def every_method() -> list[Any]:
    return [
        pytest.param(name, marks=() if name in DEFAULT else pytest.mark.contract) for name in sorted(discover().entries)
    ]
