"""Golden vectors: inputs and outputs of losses and state updates, with a manifest per method, in tests/vectors."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

FOLDER = Path(__file__).resolve().parents[1] / "vectors"
Arrays = dict[str, Any]


def cases(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every subject of a folder with every case of its manifest."""
    for manifest in sorted(folder.glob("*/manifest.json")):
        for case in json.loads(manifest.read_text(encoding="utf-8"))["cases"]:
            yield manifest.parent.name, case


def arrays_of(path: Path) -> tuple[Arrays, Arrays]:
    """Return the inputs and the expected outputs of a case."""
    inputs, expected = {}, {}
    with np.load(path, allow_pickle=False) as arrays:
        for key in arrays.files:
            if key.startswith("in_"):
                value = arrays[key]
                inputs[key[3:]] = torch.from_numpy(np.array(value)) if value.dtype.kind in "fiub" else value
            elif key.startswith("out_"):
                expected[key[4:]] = np.array(arrays[key])
    return inputs, expected


def op_of(subject: str, name: str) -> Callable[..., Arrays]:
    """Return the function of that name in the subject's module in tests/conformance."""
    op = getattr(importlib.import_module(f"tests.conformance.{subject}"), name, None)
    assert op is not None and op.__module__.startswith("tests.conformance."), f"{subject} has no op {name}"
    return op


def assert_golden(folder: Path, subject: str, case: dict[str, Any], device: str = "cpu") -> None:
    """Compute a case in float64 on a device and compare every output with the stored one."""
    op = op_of(subject, case["op"])
    inputs, expected = arrays_of(folder / subject / case["file"])
    assert expected, f"{case['file']} holds no out_ array"
    torch.manual_seed(0)
    with torch.device(device):
        inputs = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in inputs.items()}
        got = op(dict(case["params"]), inputs, case["variant"])
    missing = expected.keys() - got.keys()
    assert not missing, f"{subject}/{case['op']} does not return {sorted(missing)}"
    for key, want in expected.items():
        value = got[key]
        value = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
        if want.dtype.kind not in "fiub":
            assert value.tolist() == want.tolist(), f"{key} differs"
            continue
        assert value.shape == want.shape, f"{key}: shape {value.shape}, expected {want.shape}"
        scale = float(np.nanmax(np.abs(want[np.isfinite(want)]), initial=0.0)) if want.size else 0.0
        # rtol 1e-6 of each number; differences of cancelling terms are measured against the array's own scale.
        np.testing.assert_allclose(value, want, rtol=1e-6, atol=1e-9 * scale + 1e-12, err_msg=f"{key}: {case['about']}")
