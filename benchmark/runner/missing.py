"""Find the data that runs need and that are not on this machine. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmark.config.spec import RunSpec
from benchmark.errors import CandidError
from datasets import registry


def missing_data(specs: Iterable[RunSpec], root: Path) -> dict[str, str]:
    """Return by name on the command line which datasets are missing, and what to do about it."""
    missing: dict[str, str] = {}
    every = {spec.paths.get("dataset") or spec.dataset: spec.dataset_settings for spec in specs}
    for name, settings in every.items():
        availability = registry.get(name).find(root)
        cut_by_hand = availability.status == "incomplete" and settings.get("check_sizes") is False
        if availability.status != "found" and not cut_by_hand:
            missing[name] = f"{availability.detail}; {availability.how}"
    return missing


def refuse_missing(specs: Iterable[RunSpec], root: Path) -> None:
    """Raise CandidError before anything trains if data are not there."""
    specs = list(specs)
    missing = missing_data(specs, root)
    if not missing:
        return
    here = list(dict.fromkeys(s.dataset for s in specs if (s.paths.get("dataset") or s.dataset) not in missing))
    lines = [f"{name} is not here: {reason}." for name, reason in missing.items()]
    advice = f" To go on with the others: --datasets {','.join(here)}." if here else ""
    raise CandidError("\n".join(["Nothing was trained, because data are missing." + advice, *lines]))
