"""Every op of every manifest, in float64: the methods, the statistics and the candidate rules against golden numbers.

The folder is `CANDID_VECTORS` (default: tests/vectors). An op or a method that is not known is a failure, not a skip.
"""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmark.contract.vectors import arrays_of, cases

FOLDER = Path(os.environ.get("CANDID_VECTORS") or Path(__file__).parent / "vectors")


def find_cases() -> list[Any]:
    return [
        pytest.param(subject, case, id=f"{subject}-{Path(case['file']).stem}-{case['variant']}")
        for subject, case in cases(FOLDER)
    ]


def test_there_are_cases() -> None:
    assert find_cases(), f"no manifest.json below {FOLDER}"


@pytest.mark.parametrize(("subject", "case"), find_cases())
def test_golden_numbers(subject: str, case: dict[str, Any]) -> None:
    ops = importlib.import_module(f"tests.conformance.{subject}").OPS
    assert case["op"] in ops, f"{subject} has no op {case['op']}: known are {sorted(ops)}"
    inputs, expected = arrays_of(FOLDER / subject / case["file"])
    assert expected, f"{case['file']} holds no out_ array"
    torch.manual_seed(0)
    got = ops[case["op"]](dict(case["params"]), inputs, case["variant"])
    missing = expected.keys() - got.keys()
    assert not missing, f"{subject}/{case['op']} does not return {sorted(missing)}"
    for key, want in expected.items():
        value = got[key]
        value = value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        if want.dtype.kind not in "fiub":
            assert value.tolist() == want.tolist(), f"{key} differs"
            continue
        assert value.shape == want.shape, f"{key}: shape {value.shape}, expected {want.shape}"
        scale = float(np.nanmax(np.abs(want[np.isfinite(want)]), initial=0.0)) if want.size else 0.0
        # rtol 1e-6 of each number; differences of cancelling terms are measured against the array's own scale.
        np.testing.assert_allclose(value, want, rtol=1e-6, atol=1e-9 * scale + 1e-12, err_msg=f"{key}: {case['about']}")


@pytest.mark.parametrize("op", ["trajectory", "linear_training"])
def test_a_trajectory_of_idgp_without_warm_up_needs_no_orders_for_one(op: str) -> None:
    folder = Path(__file__).parent / "vectors" / "idgp"
    listed = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["cases"]
    case = next(case for case in listed if case["op"] == op)
    inputs, _ = arrays_of(folder / case["file"])
    given = {name: value for name, value in inputs.items() if not name.startswith("order_warm_")}
    got = importlib.import_module("tests.conformance.idgp").OPS[op]({**case["params"], "warm_up": 0}, given, "")
    assert len(got["warm_loss_f"]) == len(got["warm_loss_g"]) == 0
    assert len(got["loss_f"]) == case["params"]["epochs"] == len(got["d"]) - 1
    candidates = inputs["candidates"].double()
    torch.testing.assert_close(got["d"][0], candidates / candidates.sum(1, keepdim=True))
