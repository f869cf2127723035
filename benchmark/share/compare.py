"""Two results folders side by side, cell by cell, with the paired test; and whether equal runs gave equal numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmark import store
from benchmark.accuracy import Accuracy
from benchmark.analysis import statistics as st
from benchmark.analysis.comparisons import ALPHA, add_holm
from benchmark.analysis.contents import TEST_NAMES
from benchmark.analysis.table import NONE, Row, Table, row
from benchmark.errors import CandidError

KEYS = ["profile", "dataset", "label"]
LETTERS = {st.WIN: "B higher", st.TIE: "tie", st.LOSS: "B lower", st.MISSING: NONE}


def finished(place: Path, profile: str | None, sources: Mapping[str, str]) -> pd.DataFrame:
    """Finished runs of a folder."""
    frame = store.run_frame(store.current_runs(place, profile, sources))
    store.check_schema(frame)
    return frame[frame["status"] == "done"]


def table(first: pd.DataFrame, second: pd.DataFrame, names: tuple[str, str], test: str, accuracy: Accuracy) -> Table:
    """Every cell that both have, B minus A; what only one has is said below."""
    cells = [_cells(frame) for frame in (first, second)]
    both = [key for key in cells[0] if key in cells[1]]
    if not both:
        raise CandidError(
            f"There is no cell that both have: {names[0]} has {_listed(cells[0])}; {names[1]} has {_listed(cells[1])}."
        )
    records = [_record(key, cells[0][key], cells[1][key], test, accuracy) for key in both]
    add_holm(records, ALPHA)
    columns = ("Profile", "Data set", "Method", "A", "B", "B − A", "p", "p (Holm)", "Test", "Equal runs")
    notes = [f"A is {names[0]}, B is {names[1]}."]
    for name, own, other in ((names[0], cells[0], cells[1]), (names[1], cells[1], cells[0])):
        alone = [key for key in own if key not in other]
        if alone:
            notes.append(f"Only in {name}: {_listed(alone)}.")
    differing = [r for r in records if r["same_identity"] > r["same_numbers"]]
    if differing:
        listed = ", ".join(" ".join(r[key] for key in KEYS) for r in differing)
        notes.append(f"Warning: runs of the same identity have other numbers in A and B: {listed}.")
    edited = [key for key in both if set(cells[0][key]["source"]) != set(cells[1][key]["source"])]
    if edited:
        notes.append(f"Warning: two versions of a plug-in, one in A and another in B: {_listed(edited)}.")
    notes.append(
        "Equal runs: of the runs with the same identity, how many have the same weights and numbers to the last bit."
    )
    caption = (
        f"Test accuracy (%) {accuracy.caption} of two results folders, mean ± sample standard deviation (seeds); "
        f"{TEST_NAMES[test]} at {ALPHA:g} on the seeds that both have, p also adjusted for {len(records)} tests by Holm's method."
    )
    summary = {"a": names[0], "b": names[1], "test": test, "alpha": ALPHA, "accuracy": accuracy.key}
    rows = tuple(_shown(record) for record in records)
    return Table("Comparison", caption, columns, rows, tuple(notes), (), tuple(records), summary, text_columns=3)


def _cells(frame: pd.DataFrame) -> dict[tuple[str, ...], pd.DataFrame]:
    return {tuple(map(str, key)): part for key, part in frame.groupby(KEYS, sort=True)}  # type: ignore[call-overload]


def _listed(keys: Sequence[tuple[str, ...]] | Mapping[tuple[str, ...], Any], most: int = 6) -> str:
    names = [" ".join(key) for key in keys]
    return (", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")) or "nothing"


def _record(key: tuple[str, ...], a: pd.DataFrame, b: pd.DataFrame, test: str, accuracy: Accuracy) -> dict[str, Any]:
    values = [
        {int(seed): float(v) for seed, v in zip(part["seed"], part[accuracy.key], strict=True) if store.is_number(v)}
        for part in (a, b)
    ]
    c = st.compare(values[1], values[0], test, ALPHA)
    ours, theirs = a.set_index("identity"), b.set_index("identity")
    shared = [identity for identity in ours.index if identity in theirs.index]
    columns = ["weights_sha256", *store.SUMMARY]
    same = sum(ours.loc[i, columns].equals(theirs.loc[i, columns]) for i in shared)
    return {
        **dict(zip(KEYS, key, strict=True)),
        "a": values[0], "b": values[1], "n": c.n, "seeds": list(c.seeds), "mean_difference": c.mean_difference,
        "ci_low": c.ci_low, "ci_high": c.ci_high, "p": c.p, "outcome": c.outcome, "effect": c.effect,
        "flags": list(c.flags), "same_identity": len(shared), "same_numbers": int(same),
        "runs": max(len(a), len(b)),
    }  # fmt: skip


def _shown(r: Mapping[str, Any]) -> Row:
    def side(values: Mapping[int, float]) -> str:
        found = list(values.values())
        return f"{st.mean(found):.2f}±{st.sample_std(found):.2f} ({len(found)})" if found else NONE

    def shown(value: float, form: str) -> str:
        return format(value, form) if store.is_number(value) else NONE

    equal = f"{r['same_numbers']}/{r['same_identity']}" if r["same_identity"] else NONE
    all_equal = r["same_numbers"] == r["same_identity"] == r["runs"]
    return row(
        *(r[key] for key in KEYS), side(r["a"]), side(r["b"]), shown(r["mean_difference"], "+.2f"),
        "" if all_equal else shown(r["p"], ".3f"), "" if all_equal else shown(r["p_holm"], ".3f"),
        "same" if all_equal else LETTERS[r["outcome_holm"]], equal,
    )  # fmt: skip
