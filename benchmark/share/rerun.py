"""Doing a stored run again in a temporary folder, and how far the two agree."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmark.analysis import statistics as st
from benchmark.plan.spec import RunSpec
from benchmark.run.options import RunOptions
from benchmark.run.worker import execute
from benchmark.share.again import CannotBeDone
from benchmark.share.reading import Held
from benchmark.store import RunFolder, is_number
from datasets.labels.generators import GENERATORS

KIND = ("device", "device_name", "cpu_capability", "torch")  # equal ones give equal bits
LEAST = 0.5  # percentage points that are always allowed between machines of two kinds


@dataclass(frozen=True)
class Repetition:
    """A run done again: what is equal, and what is allowed where the machines differ."""

    run: str
    identity: str
    seconds: float
    same_kind: bool
    same_code: bool
    bit_equal: bool
    recorded: float | None
    here: float | None
    tolerance: float | None  # points; None where bits must be equal
    wrong: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def repeat(held: Held, spec: RunSpec, options: RunOptions, sets: Mapping[str, Path], results: Path) -> Repetition:
    """Train it from the start. A set that an annotator made is taken from the folder, where its SHA-256 was checked."""
    document, began = held.document, time.time()
    assert document is not None
    path = sets.get(str(document.get("candidates_sha256")))
    if path is not None and GENERATORS[spec.data.generator].annotator:
        copy = options.results / path.relative_to(results)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    outcome = execute(spec, options)
    made = sorted(options.results.glob("runs/*/*/*/*/run.json"))
    fresh = RunFolder(made[-1].parent) if made else None
    here = fresh.read() if fresh else None
    seconds = round(time.time() - began, 1)
    recorded = (document.get("summary") or {}).get("accuracy")
    if here is None or fresh is None or here["status"] != "done":
        reason = outcome.reason or outcome.status
        if outcome.status != "diverged":
            raise CannotBeDone(f"it cannot be trained here ({reason})")
        return Repetition(held.name, document["identity"], seconds, False, False, False, recorded, None, None, reason)
    there, now = document.get("environment") or {}, here["environment"]
    same_kind = all(key not in there or there[key] == now[key] for key in KIND)
    records = [[record["result"] for record in folder.epochs()] for folder in (held.folder, fresh)]
    if held.packed:
        records[1] = [{key: _six_digits(value) for key, value in result.items()} for result in records[1]]
    stated = document.get("summary") or {}
    parts = {
        "candidate set": here["candidates_sha256"] == document.get("candidates_sha256"),
        "weights": here["weights_sha256"] == document.get("weights_sha256"),
        "epochs": records[0] == records[1],
        "summary": all(here["summary"].get(key) == value for key, value in stated.items()),
    }
    differ = [name for name, equal in parts.items() if not equal]
    value, tolerance, wrong = here["summary"].get("accuracy"), None, ""
    if differ and same_kind:
        wrong = f"{_listed(differ)} differ on the same kind of machine"
    elif differ:
        tolerance = allowed(value, spec_test_size(fresh))
        if not is_number(recorded) or not is_number(value) or abs(recorded - value) > tolerance:
            wrong = f"accuracy is {value} here and {recorded} there, more than {tolerance:.2f} points apart"
    same_code = there.get("code_version") == now["code_version"]
    return Repetition(
        held.name, document["identity"], seconds, same_kind, same_code, not differ, recorded, value, tolerance, wrong
    )


def allowed(accuracy: float | None, rows: int) -> float:
    """Points that two machines may differ by: three standard errors of the difference of two accuracies on such rows."""
    if accuracy is None or not rows:
        return LEAST
    return max(LEAST, 3 * math.sqrt(2) * st.binomial_se(accuracy, rows))


def spec_test_size(folder: RunFolder) -> int:
    from benchmark import store

    found = store.predictions(folder)
    return 0 if found is None else len(found.test_rows)


def _six_digits(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
