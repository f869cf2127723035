"""Golden vectors: inputs and outputs of losses and state updates from the authors' code, in tests/vectors of a checkout.

The tests hold the methods to them in float64 on a CPU. Here they are tried as a run computes: in float32, on a device.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from benchmark.files import ROOT

FOLDER = ROOT / "tests" / "vectors"
METHODS = ROOT / "methods"
Arrays = dict[str, Any]


def cases(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every subject of a folder with every case of its manifest."""
    for manifest in sorted(folder.glob("*/manifest.json")):
        for case in json.loads(manifest.read_text(encoding="utf-8"))["cases"]:
            yield manifest.parent.name, case


def cases_of_methods() -> list[tuple[str, dict[str, Any]]]:
    """Those of losses and state updates; none where the checkout has no tests."""
    return [(subject, case) for subject, case in cases(FOLDER) if (METHODS / f"{subject}.py").exists()]


def arrays_of(path: Path) -> tuple[Arrays, Arrays]:
    """Inputs and expected outputs of a case."""
    inputs, expected = {}, {}
    with np.load(path, allow_pickle=False) as arrays:
        for key in arrays.files:
            if key.startswith("in_"):
                value = arrays[key]
                inputs[key[3:]] = torch.from_numpy(np.array(value)) if value.dtype.kind in "fiub" else value
            elif key.startswith("out_"):
                expected[key[4:]] = np.array(arrays[key])
    return inputs, expected


class SinglePrecision(TorchFunctionMode):
    """Who asks for float64 gets float32, but for a method that raises its own numbers, as it does in training."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.double and METHODS not in Path(sys._getframe(1).f_code.co_filename).parents:
            func = Tensor.float
        single = {torch.float64: torch.float32}
        named = {key: single.get(value, value) if _is_type(value) else value for key, value in (kwargs or {}).items()}
        return func(*(single.get(value, value) if _is_type(value) else value for value in args), **named)


def _is_type(value: Any) -> bool:
    return isinstance(value, torch.dtype)


def deviation(subject: str, case: dict[str, Any], device: torch.device) -> float:
    """Largest difference from the stored outputs in float32 on a device, as a part of each array's largest number."""
    call = importlib.import_module(f"tests.conformance.{subject}").OPS[case["op"]]
    inputs, expected = arrays_of(FOLDER / subject / case["file"])
    torch.manual_seed(0)
    with torch.device(device), SinglePrecision():
        there = {name: _sent(value, device) for name, value in inputs.items()}
        got = call(dict(case["params"]), there, case["variant"])
    return max(_difference(got[name], want) for name, want in expected.items() if want.dtype.kind in "fiub")


def _sent(value: Any, device: torch.device) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.to(device, torch.float32 if value.dtype == torch.float64 else value.dtype)


def _difference(value: Any, want: np.ndarray) -> float:
    got = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value, dtype=np.float64)
    finite = np.isfinite(want)
    if got.shape != want.shape or not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return float("inf")
    gap = np.abs(got - want)[finite].max(initial=0.0)
    return float(gap / max(np.abs(want[finite]).max(initial=0.0), 1e-12))
