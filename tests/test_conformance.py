"""Every op of every manifest, in float64: the methods, the statistics and the candidate rules against golden numbers.

The folder is `CANDID_VECTORS` (default: tests/vectors). An op or a method that is not known is a failure, not a skip.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support import vectors
from tests.support.vectors import arrays_of, assert_golden, cases

FOLDER = Path(os.environ.get("CANDID_VECTORS") or vectors.FOLDER)


def find_cases() -> list[Any]:
    return [
        pytest.param(subject, case, id=f"{subject}-{Path(case['file']).stem}-{case['variant']}")
        for subject, case in cases(FOLDER)
    ]


def test_there_are_cases() -> None:
    assert find_cases(), f"no manifest.json below {FOLDER}"


@pytest.mark.parametrize(("subject", "case"), find_cases())
def test_golden_numbers(subject: str, case: dict[str, Any]) -> None:
    assert_golden(FOLDER, subject, case)


@pytest.mark.parametrize("op", ["trajectory", "linear_training"])
def test_a_trajectory_of_idgp_without_warm_up_needs_no_orders_for_one(op: str) -> None:
    folder = vectors.FOLDER / "idgp"
    listed = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["cases"]
    case = next(case for case in listed if case["op"] == op)
    inputs, _ = arrays_of(folder / case["file"])
    given = {name: value for name, value in inputs.items() if not name.startswith("order_warm_")}
    got = vectors.op_of("idgp", op)({**case["params"], "warm_up": 0}, given, "")
    assert len(got["warm_loss_f"]) == len(got["warm_loss_g"]) == 0
    assert len(got["loss_f"]) == case["params"]["epochs"] == len(got["d"]) - 1
    candidates = inputs["candidates"].double()
    torch.testing.assert_close(got["d"][0], candidates / candidates.sum(1, keepdim=True))
